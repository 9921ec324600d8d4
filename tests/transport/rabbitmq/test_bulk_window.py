"""Long messages go to the broker in their order, and so many bytes at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fedmq.transport.rabbitmq.connection import BulkWindow

KILOBYTE, WHOLE_WINDOW = 1024, 4 * 1024 * 1024


class Sending:
    """Messages that go through one window; each leaves it when its broker confirms."""

    def __init__(self) -> None:
        self.window = BulkWindow()
        self.inside: list[str] = []
        self.confirmed: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def send(self, name: str, size: int) -> None:
        self.confirmed[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._send(name, size))
        await asyncio.sleep(0)

    async def _send(self, name: str, size: int) -> None:
        async with self.window.through(size):
            self.inside.append(name)
            try:
                await self.confirmed[name].wait()
            finally:
                self.inside.remove(name)

    async def confirm(self, name: str) -> None:
        self.confirmed[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[name]
        await asyncio.sleep(0)


async def test_pieces_are_on_their_way_together() -> None:
    sending = Sending()
    for name in "abcde":
        await sending.send(name, 1000 * KILOBYTE)
    assert sending.inside == ["a", "b", "c", "d"]
    await sending.confirm("b")
    assert sending.inside == ["a", "c", "d", "e"]


async def test_two_messages_are_on_their_way_together_however_long() -> None:
    sending = Sending()
    for name in "abc":
        await sending.send(name, WHOLE_WINDOW)
    assert sending.inside == ["a", "b"]


async def test_a_shorter_message_does_not_overtake() -> None:
    sending = Sending()
    for name, size in (("a", WHOLE_WINDOW), ("b", 70 * KILOBYTE), ("c", WHOLE_WINDOW)):
        await sending.send(name, size)
    await sending.send("d", 70 * KILOBYTE)
    assert sending.inside == ["a", "b"]
    await sending.confirm("a")
    assert sending.inside == ["b", "c"]
    await sending.confirm("b")
    assert sending.inside == ["c", "d"]


async def test_a_message_that_is_given_up_makes_room() -> None:
    sending = Sending()
    for name in "abcd":
        await sending.send(name, WHOLE_WINDOW)
    await sending.cancel("c")  # while it waits
    await sending.cancel("a")  # while it is on its way
    assert sending.inside == ["b", "d"]


async def test_a_message_that_is_given_up_in_the_moment_it_is_let_in_makes_room() -> None:
    sending = Sending()
    for name in "abcd":
        await sending.send(name, WHOLE_WINDOW)
    sending.confirmed["a"].set()
    await asyncio.sleep(0)  # a has left, c is let in and has not run yet
    await sending.cancel("c")
    assert sending.inside == ["b", "d"]
