"""The right of way of scores before the long messages of a training."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["PriorityGate"]

_LONGEST_SECONDS = 0.05
"""So that a training goes on, however many scores are asked for."""


class PriorityGate:
    """Taken while somebody waits for scores; given, for a moment, by whoever has a long message.

    A megabyte that is sealed, sent, written down by the broker and opened keeps a core busy for
    milliseconds, one after the other, and a score passes through the same processes.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """For as long as a score is under way here."""
        self._taken += 1
        self._free.clear()
        try:
            yield
        finally:
            self._taken -= 1
            if not self._taken:
                self._free.set()

    async def give(self) -> None:
        """Return when no score is under way, or after 50 ms."""
        if self._taken:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_SECONDS):
                    await self._free.wait()
