"""Which computation is next: the most urgent that waits."""

from __future__ import annotations

import asyncio
import heapq

__all__ = ["PriorityQueue"]


class PriorityQueue:
    """Lets ``places`` computations in at once; the others wait in the order of their urgency."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    async def acquire(self, urgency: int) -> None:
        """Wait for a place: the most urgent first, and of the same urgency whoever came first."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-urgency, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place was handed over just before
            raise

    def release(self) -> None:
        """Hand the place to whoever is next."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
