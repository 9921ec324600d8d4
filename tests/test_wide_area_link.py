"""The link between parties that benchmarks make: a rate, a delay, and every byte in its order."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.wide_area_link import Direction, Link, linked
from tests.virtual_clock import in_virtual_time


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


class Arrivals:
    """The far end of a link: when how many bytes came."""

    def __init__(self) -> None:
        self.bytes = 0
        self.last = 0.0

    def write(self, data: bytes) -> None:
        self.bytes += len(data)
        self.last = asyncio.get_running_loop().time()

    async def drain(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("rate", [32_000, 1_250_000, 12_500_000])
def test_a_link_carries_all_of_its_rate_though_its_relay_wakes_to_the_millisecond(
    rate: int,
) -> None:
    arrivals, seconds, delay = Arrivals(), 4, 0.15

    async def carry() -> None:
        sender = asyncio.StreamReader()
        sender.feed_data(bytes(rate * seconds))
        sender.feed_eof()
        await Direction(rate, delay).carry(sender, arrivals)  # type: ignore[arg-type]

    in_virtual_time(carry(), tick=0.001)
    assert arrivals.bytes == rate * seconds
    assert seconds + delay <= arrivals.last <= seconds + delay + 0.002


def test_no_link_is_the_port_itself() -> None:
    with linked(5672, None) as port:
        assert port == 5672
