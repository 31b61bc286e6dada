"""Free ports for tests that listen."""

import random
import socket


def free_port() -> int:
    """Return a port of the loopback interface that is free at the moment.

    It lies below the ports that systems assign themselves, so no process gets it by chance.
    """
    anywhere = random.SystemRandom()  # differs from a worker with the same seed
    while True:
        try:
            with socket.create_server(("127.0.0.1", anywhere.randrange(20_000, 32_000))) as server:
                return server.getsockname()[1]
        except OSError:
            pass
