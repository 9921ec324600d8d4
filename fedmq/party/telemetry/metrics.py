"""What does a daemon count of its own work? Plain numbers; other rooms show them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedmq.messages.envelope import Header

__all__ = [
    "BOUNDS",
    "Counters",
    "Gauges",
    "LookupCounters",
    "RecentTimes",
    "ScoreCounters",
    "Times",
    "Traffic",
    "Volume",
]


@dataclass
class Counters:
    """Counts since the daemon started. Keys are few: none is a text that a peer chose."""

    clock: Callable[[], float] = time.time
    heard: dict[str, float] = field(default_factory=dict)
    """Time of the last message of each party, in seconds since the epoch."""
    messages_sent: Counter[str] = field(default_factory=Counter)
    """By kind; the next three too."""
    bytes_sent: Counter[str] = field(default_factory=Counter)
    messages_received: Counter[str] = field(default_factory=Counter)
    bytes_received: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    """By the peer that did not answer."""
    redeliveries: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By kind of reason."""
    dropped: int = 0
    """Messages of unknown sessions."""
    queue_age: float = 0.0
    """Seconds from the sending to the arrival of the last message."""
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By party whose last message came long before it was sent: its time then, and the own."""
    trees: int = 0
    sessions_ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By purpose and outcome."""
    arithmetic_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By label of the computation; its wait for a free worker is included."""


@dataclass(frozen=True)
class Gauges:
    """The present state, beside the counters."""

    connected: bool
    dead_letters: int
    sessions: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    """Running sessions, by purpose and state."""
    waiting: int = 0
    """Peers that sessions are waiting for."""


@dataclass(slots=True)
class Volume:
    """A number of messages and their bytes on the wire."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Traffic:
    """Volumes per (sender, recipient) and message kind."""

    volumes: dict[tuple[str, str], dict[str, Volume]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Volume))
    )

    def count(self, header: Header, size: int) -> None:
        """Add one message of ``size`` bytes."""
        volume = self.volumes[header.sender, header.recipient][header.kind]
        volume.messages += 1
        volume.bytes += size

    @property
    def total(self) -> Volume:
        """The sum of all volumes."""
        return _sum([volume for kinds in self.volumes.values() for volume in kinds.values()])

    def between(self, sender: str, recipient: str) -> Volume:
        """The volume from ``sender`` to ``recipient``, of all kinds."""
        return _sum(self.volumes.get((sender, recipient), {}).values())


def _sum(volumes: Collection[Volume]) -> Volume:
    return Volume(
        sum(volume.messages for volume in volumes), sum(volume.bytes for volume in volumes)
    )


BOUNDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram's buckets, in seconds; one more bucket has no bound."""


@dataclass
class Times:
    """A histogram of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Number of times by bucket."""
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


_RECENT_REQUESTS = 1000
_RECENT_SECONDS = 60.0


class RecentTimes:
    """The rate of an event in the last minute, and the durations of the last thousand."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: deque[tuple[float, float]] = deque(maxlen=_RECENT_REQUESTS)

    def add(self, at: float, seconds: float) -> None:
        """Record an event that ended at ``at``, by the clock, and took ``seconds``."""
        self._times.append((at, seconds))

    def described(self) -> dict[str, float | int | None]:
        """Plain data: the rate, and times in seconds, None if there are none."""
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
        """Measure a lookup, with or without an error."""
        begun = self.clock()
        try:
            yield
        finally:
            self.seconds.add(self.clock() - begun)


@dataclass
class ScoreCounters:
    """Counts since the daemon started, for HTTP and messages together."""

    clock: Callable[[], float] = time.perf_counter
    requests: Counter[int] = field(default_factory=Counter)
    """By HTTP status, also for messages; 200 means answered."""
    seconds: Times = field(default_factory=Times)
    rows: int = 0
    """Rows of the answered requests."""
    degraded: int = 0
    """Answers with a guessed part of a party."""
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
        """Count a request that has its scores."""
        self.rows += rows
        self.degraded += degraded
