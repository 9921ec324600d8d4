"""What a daemon counts of its own work, as plain numbers; other rooms show them."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedmq.computation import Computation
from fedmq.messages.envelope import Header
from fedmq.transport.link import Delivery

__all__ = ["Counters", "Gauges"]


@dataclass
class Counters:
    """Counted since the daemon started. Keys are few: none is a text that a peer chose."""

    clock: Callable[[], float] = time.time
    heard: dict[str, float] = field(default_factory=dict)
    """When a message of each party came last, in seconds since the epoch."""
    messages_sent: Counter[str] = field(default_factory=Counter)
    """By kind; so are the next three."""
    bytes_sent: Counter[str] = field(default_factory=Counter)
    messages_received: Counter[str] = field(default_factory=Counter)
    bytes_received: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    """By the peer that did not answer."""
    redeliveries: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By the kind of reason."""
    dropped: int = 0
    """Messages of unknown sessions."""
    queue_age: float = 0.0
    """Seconds from the sending to the arrival of the last message."""
    trees: int = 0
    sessions_ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By purpose and outcome."""
    arithmetic_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By the label of the computation; its wait for a free worker is included."""

    def sent(self, header: Header, size: int) -> None:
        """A message of ``size`` bytes goes out."""
        self.messages_sent[header.kind] += 1
        self.bytes_sent[header.kind] += size

    def arrived(self, delivery: Delivery) -> None:
        """A delivery has arrived; it may still be refused."""
        self.redeliveries += delivery.redelivered
        if delivery.sent is not None:
            self.queue_age = max(0.0, self.clock() - delivery.sent)

    def received(self, header: Header, size: int) -> None:
        """A delivery has turned out to be a message."""
        self.messages_received[header.kind] += 1
        self.bytes_received[header.kind] += size
        self.heard[header.sender] = self.clock()

    @contextmanager
    def computing(self, computation: Computation) -> Iterator[None]:
        """Measure a computation."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.arithmetic_seconds[computation.label] += time.perf_counter() - begun


@dataclass(frozen=True)
class Gauges:
    """The present state, beside what the counters count."""

    connected: bool
    dead_letters: int
    sessions: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    """Running sessions, by purpose and state."""
    waiting: int = 0
    """Peers that sessions wait for."""
