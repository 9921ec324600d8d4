"""How much bulk is on its way to the broker at once? What is longer waits here, for shorter ones.

A broker confirms a message when it is on disk, so that a window of few messages would mostly wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["BULK_BYTES", "BulkWindow"]

BULK_BYTES = 64 * 1024
"""Longer messages are bulk."""

_WINDOW_BYTES = 4 * 1024 * 1024
"""What a broker takes while it writes what came before; a slow link of 5 Mbit/s takes 7 s for it,
which is less than a confirm may last."""
_ALWAYS = 2  # messages, however long they are


class BulkWindow:
    """Lets long messages through in their order: two, or as many as have 4 MB together."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def under_way(self) -> int:
        """Bytes that were let through and are not confirmed."""
        return self._bytes

    @asynccontextmanager
    async def through(self, size: int) -> AsyncIterator[None]:
        """Around publishing ``size`` bytes."""
        await self._enter(size)
        try:
            yield
        finally:
            self._leave(size)

    async def _enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._add(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(size)  # it was let in just before
            else:
                self._waiting.remove((size, turn))
                self._let_in()
            raise

    def _leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            self._add(size)
            turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._messages < _ALWAYS or self._bytes + size <= _WINDOW_BYTES

    def _add(self, size: int) -> None:
        self._messages += 1
        self._bytes += size
