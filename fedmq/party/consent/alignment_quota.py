"""How many alignments a party takes part in within any day."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from fedmq.errors import Refused

__all__ = ["DAY", "AlignmentQuota"]

DAY = 24 * 3600.0


class AlignmentQuota:
    """Alignments of the last day, and the ``most`` that they may be.

    A new attempt counts as much as a new alignment: its lists need not be those of the last one.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.time) -> None:
        self.most = most
        self._clock = clock
        self._taken: deque[float] = deque()

    def remember(self, at: float) -> None:
        """Count an alignment of ``at`` (Unix seconds), earlier than all counted so far."""
        self._taken.appendleft(at)

    def take(self) -> None:
        """Count one more; raises Refused, and counts none, when it is too many."""
        now = self._clock()
        while self._taken and self._taken[0] <= now - DAY:
            self._taken.popleft()
        if len(self._taken) >= self.most:
            raise Refused(f"it takes part in {self.most} alignments a day at most")
        self._taken.append(now)
