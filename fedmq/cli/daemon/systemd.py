"""The state of the daemon for systemd: the protocol of sd_notify(3), without its library."""

from __future__ import annotations

import os
import socket

__all__ = ["notify_systemd"]


def notify_systemd(state: str) -> None:
    """Send ``state``, such as ``READY=1``, to systemd; do nothing where it does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # An abstract name begins with a null byte, which systemd writes as @.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), name)
