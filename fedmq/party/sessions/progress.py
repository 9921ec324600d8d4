"""How far a session is, how it came there, and how long it still takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

from fedmq.protocol.events import Report

__all__ = ["Progress"]

_PACE_REPORTS = 12
"""Reports that the pace is taken from."""


class Progress:
    """What a session reported so far, over all its attempts; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace: deque[tuple[float, int]] = deque(maxlen=_PACE_REPORTS)
        self._figures: dict[int, Mapping[str, float]] = {}
        self._left = 0

    def begin_attempt(self) -> None:
        """The pace is taken anew: what happened between two attempts says nothing of it."""
        self._pace.clear()

    def add(self, report: Report) -> None:
        """Take one more report."""
        self._pace.append((self._clock(), report.done))
        self._left = report.total - report.done
        if report.details:
            self._figures[report.done] = dict(report.details)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the pace of the last reports; None before there are two."""
        if len(self._pace) < 2:
            return None
        (begun, first), (at, last) = self._pace[0], self._pace[-1]
        if last <= first or at <= begun:
            return None
        return max(0.0, self._left * (at - begun) / (last - first) - (self._clock() - at))

    @property
    def curve(self) -> dict[str, list[float | None]]:
        """By figure its values, None where it is not known; and ``done``, at which they were."""
        done = sorted(self._figures)
        names = dict.fromkeys(name for at in done for name in self._figures[at])
        return {
            "done": [float(at) for at in done],
            **{name: [self._figures[at].get(name) for at in done] for name in names},
        }
