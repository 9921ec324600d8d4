"""The link between parties that benchmarks make: a rate, a delay, and every byte in its order."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.wide_area_link import Link, linked


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    with server:
        yield server.getsockname()[1]


def test_bytes_arrive_in_their_order_after_the_time_that_the_link_takes(echo: int) -> None:
    sent = bytes(range(256)) * 1000
    with (
        linked(echo, Link(megabits=16, milliseconds=100)) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        begun = time.monotonic()
        connection.sendall(sent)
        got = connection.recv(len(sent), socket.MSG_WAITALL)
        took = time.monotonic() - begun
    assert got == sent
    # 256 kB take 0.128 s on a link of 2 MB a second, and both ways together 0.1 s.
    assert took >= 0.228


def test_no_link_is_the_port_itself() -> None:
    with linked(5672, None) as port:
        assert port == 5672
