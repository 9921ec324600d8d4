"""How many rows a party answers for within any hour."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from fedmq.errors import Refused

__all__ = ["HOUR", "RowQuota"]

HOUR = 3600.0
_TOGETHER = 1.0  # seconds whose rows are counted as one entry


class RowQuota:
    """Rows of the last hour, and the ``most`` that they may be; any number where that is None."""

    def __init__(self, most: int | None, clock: Callable[[], float] = time.time) -> None:
        self.most = most
        self._clock = clock
        self._taken: deque[tuple[float, float, int]] = deque()  # from, until, rows
        self._used = 0

    def remember(self, at: float, rows: int) -> None:
        """Count ``rows`` scored at ``at`` (Unix seconds), earlier than all counted so far."""
        self._taken.appendleft((at, at, rows))
        self._used += rows

    def take(self, rows: int) -> None:
        """Use up ``rows``; raises Refused, and uses none, when they are too many."""
        now = self._clock()
        while self._taken and self._taken[0][1] <= now - HOUR:
            self._used -= self._taken.popleft()[2]
        if self.most is not None and self._used + rows > self.most:
            raise Refused(
                f"it answers for {self.most} rows an hour; {self._used} were asked for within the "
                f"last hour, and {rows} more are too many"
            )
        since, before = now, 0
        if self._taken and now - self._taken[-1][0] < _TOGETHER:
            since, _, before = self._taken.pop()
        self._taken.append((since, now, before + rows))
        self._used += rows
