"""Scores go before the long messages and computations of a training."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["PriorityGate"]

_LONGEST_WAIT_SECONDS = 0.05
"""A training goes on, however many scores are asked for."""


class PriorityGate:
    """Held while a score is computed; whoever has a long message waits for it, but not for long.

    To seal, send, store and open a megabyte keeps a core busy for milliseconds each, and a score
    passes through the same processes.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the gate; several scores may hold it at once."""
        self._holders += 1
        self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._free.set()

    async def wait(self) -> None:
        """Return when no score holds the gate, or after 50 ms."""
        if self._holders:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                    await self._free.wait()
