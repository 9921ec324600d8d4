"""A port of the loopback address that nothing listens on."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Free when it is returned; somebody else may take it before it is used."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
