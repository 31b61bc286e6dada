"""Where a test may listen."""

import random
import socket


def free_port() -> int:
    """Of loopback's; nobody's at the moment.

    Below those that systems hand out by themselves: nobody gets it by chance before it is used.
    """
    anywhere = random.SystemRandom()  # not what another worker of the same seed draws
    while True:
        try:
            with socket.create_server(("127.0.0.1", anywhere.randrange(20_000, 32_000))) as server:
                return server.getsockname()[1]
        except OSError:
            pass
