"""How many requests for scores there were, and how they ended; other rooms show the numbers."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["BOUNDS", "LookupCounters", "RecentTimes", "ScoreCounters", "Times"]

BOUNDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram's buckets, in seconds; one more bucket has no bound."""


@dataclass
class Times:
    """A histogram of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Number of times by bucket."""
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


_RECENT_REQUESTS = 1000
_RECENT_SECONDS = 60.0


class RecentTimes:
    """How often something happened in the last minute, and how long the last thousand took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: deque[tuple[float, float]] = deque(maxlen=_RECENT_REQUESTS)

    def add(self, at: float, seconds: float) -> None:
        """Something has ended at ``at``, by the clock, that took ``seconds``."""
        self._times.append((at, seconds))

    def described(self) -> dict[str, float | int | None]:
        """Plain data: the rate, and times in seconds, None where there are none."""
        now, ordered = self._clock(), sorted(seconds for _, seconds in self._times)
        recent = [at for at, _ in self._times if now - at <= _RECENT_SECONDS]
        full = len(recent) == _RECENT_REQUESTS
        span = max(now - recent[0], 1e-3) if full else _RECENT_SECONDS
        return {
            "requests": len(ordered),
            "per_second": len(recent) / span,
            "median": ordered[len(ordered) // 2] if ordered else None,
            "p99": ordered[int(0.99 * len(ordered))] if ordered else None,
        }


@dataclass
class LookupCounters:
    """Lookups of rows in a database, counted since the daemon started."""

    clock: Callable[[], float] = time.perf_counter
    hits: int = 0
    """Ids whose rows were in the cache."""
    misses: int = 0
    """Ids that had to be looked up."""
    failures: int = 0
    """Lookups that the database did not answer."""
    seconds: Times = field(default_factory=Times)

    @contextmanager
    def lookup(self) -> Iterator[None]:
        """Measure a lookup, however it ends."""
        begun = self.clock()
        try:
            yield
        finally:
            self.seconds.add(self.clock() - begun)


@dataclass
class ScoreCounters:
    """Counted since the daemon started, for HTTP and messages together."""

    clock: Callable[[], float] = time.perf_counter
    requests: Counter[int] = field(default_factory=Counter)
    """By HTTP status, also for messages; 200 is answered."""
    seconds: Times = field(default_factory=Times)
    rows: int = 0
    """Rows of the requests that were answered."""
    degraded: int = 0
    """Answers in which a party's part was guessed."""
    recent: RecentTimes = field(init=False)

    def __post_init__(self) -> None:
        self.recent = RecentTimes(self.clock)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Measure a request, from its body to its answer."""
        begun, status = self.clock(), 500
        try:
            yield
            status = 200
        except Exception as error:
            status = getattr(error, "http_status", 500)
            raise
        finally:
            self.requests[status] += 1
            ended = self.clock()
            self.seconds.add(ended - begun)
            self.recent.add(ended, ended - begun)

    def answered(self, rows: int, degraded: bool) -> None:
        """A request has its scores."""
        self.rows += rows
        self.degraded += degraded
