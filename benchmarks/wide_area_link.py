"""A link of a rate and a delay: a relay between a party and its broker.

Every byte leaves no sooner than ``delay`` after it came, and not before those ahead of it had their
time on the link. The relay takes a few bytes ahead of those, as a router does, and then no more
than the link has room for, so that senders wait as they would for a real one. It is a process of
its own: nothing in it waits for the parties.

::

    python -m benchmarks.wide_area_link PORT --megabits 10 --milliseconds 25

It prints the port on which it listens, and passes on to PORT of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK = 16 * 1024
"""The most bytes that are passed on at once; at 10 Mbit/s they take 13 ms."""

AHEAD_SECONDS = 0.02
"""How long the link takes for what waits in the relay. An event loop wakes to the millisecond at
best: without bytes that wait, the link would idle each time, and carry two thirds of its rate."""


@dataclass(frozen=True)
class Link:
    """``megabits`` a second each way, and a round trip of ``milliseconds``."""

    megabits: float
    milliseconds: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.megabits:g} Mbit/s, {self.milliseconds:g} ms"


@contextlib.contextmanager
def linked(port: int, link: Link | None) -> Iterator[int]:
    """A port that leads to ``port`` of this machine over ``link``; ``port`` itself without one."""
    if link is None:
        yield port
        return
    relay = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.wide_area_link", str(port)),
            *("--megabits", str(link.megabits), "--milliseconds", str(link.milliseconds / 2)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert relay.stdout is not None
        yield int(relay.stdout.readline())
    finally:
        relay.terminate()
        relay.communicate()


class Direction:
    """One way of all connections of a link, which share its rate."""

    def __init__(self, bytes_per_second: float, delay: float) -> None:
        self._rate = bytes_per_second
        self._chunk = min(CHUNK, max(1500, int(bytes_per_second * AHEAD_SECONDS)))
        self._delay = delay
        self._free = 0.0  # when the link has sent all that it took

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what ``reader`` gets to ``writer``, until it ends."""
        arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(_deliver(arriving, writer))
        try:
            while data := await reader.read(self._chunk):
                now = asyncio.get_running_loop().time()
                self._free = max(self._free, now) + len(data) / self._rate
                arriving.put_nowait((self._free + self._delay, data))
                await asyncio.sleep(max(0.0, self._free - now - AHEAD_SECONDS))
        finally:
            arriving.put_nowait((0.0, b""))
            await delivering


async def _deliver(
    arriving: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
) -> None:
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(ConnectionError):
        while (item := await arriving.get())[1]:
            due, data = item
            await asyncio.sleep(max(0.0, due - clock()))
            writer.write(data)
            await writer.drain()
    writer.close()


async def relay(port: int, bytes_per_second: float, delay: float) -> None:
    """Listen on a free port, print it, and pass on to ``port`` until this process ends."""
    there, back = (Direction(bytes_per_second, delay) for _ in range(2))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                there.carry(reader, other_writer), back.carry(other_reader, writer)
            )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Relay."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--megabits", type=float, required=True, help="a second, each way")
    parser.add_argument("--milliseconds", type=float, required=True, help="one way")
    options = parser.parse_args()
    asyncio.run(relay(options.port, options.megabits * 125_000, options.milliseconds / 1e3))


if __name__ == "__main__":
    main()
