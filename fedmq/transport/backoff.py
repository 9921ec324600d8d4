"""Exponential back-off with jitter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Delays between attempts.

    Attempt ``n`` waits between half of and the whole of ``min(limit, first * factor ** n)``
    seconds. The jitter keeps parties that lost the same broker from reconnecting in step. Half of
    the delay is fixed, so no caller hammers the broker.
    """

    first: float = 0.25
    factor: float = 2.0
    limit: float = 30.0

    def delays(self, random: Random) -> Iterator[float]:
        """Yield the waits in seconds, without end."""
        delay = self.first
        while True:
            yield min(delay, self.limit) * random.uniform(0.5, 1.0)
            delay = min(delay * self.factor, self.limit)
