"""How many sessions of a kind a party takes part in within any day."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedmq.errors import Refused

__all__ = ["DAY", "DailyQuota"]

DAY = 24 * 3600.0


class DailyQuota:
    """What was taken within the last day, and the ``most`` that it may be.

    ``what`` is counted, in words: "alignments". A name that is taken again counts once, but for
    what is taken ``anew``.
    """

    def __init__(self, most: int, what: str, clock: Callable[[], float] = time.time) -> None:
        self.most = most
        self._what = what
        self._clock = clock
        self._taken: list[tuple[float, str]] = []

    def remember(self, at: float, name: str = "", *, anew: bool = False) -> None:
        """Count what was taken at ``at`` (Unix seconds)."""
        if anew or not self._counts(name):
            self._taken.append((at, name))

    @property
    def used(self) -> int:
        """How many were taken within the last day."""
        since = self._clock() - DAY
        return sum(at > since for at, _ in self._taken)

    def take(self, name: str = "", *, anew: bool = False) -> None:
        """Count one more; raises Refused, and counts nothing, when it is one too many."""
        now = self._clock()
        self._taken = [(at, taken) for at, taken in self._taken if at > now - DAY]
        if not anew and self._counts(name):
            return
        if len(self._taken) >= self.most:
            raise Refused(f"it takes part in {self.most} {self._what} a day at most")
        self._taken.append((now, name))

    def _counts(self, name: str) -> bool:
        """Whether something of this name is among them; what has none never is."""
        return bool(name) and any(taken == name for _, taken in self._taken)
