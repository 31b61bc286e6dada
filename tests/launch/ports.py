"""Where a test may listen."""

import socket


def free_port() -> int:
    """Of loopback's; nobody's at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
