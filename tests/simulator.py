"""All parties of a session under a seeded schedule that drops, repeats, delays and reorders.

Time is virtual, computations run inline, envelopes pass through their bytes. Invariants are
checked after every event, and a schedule that never ends is an error.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmq.errors import FedmqError
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope
from fedmq.protocol.events import (
    Arrived,
    CancelTimer,
    ComputationFailed,
    Computed,
    Effect,
    Fail,
    Finish,
    Report,
    RunComputation,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
    Waiting,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.mailbox import Address, Mailbox, RetryPolicy
from fedmq.protocol.session import Session

_MOST_EVENTS = 300_000


@dataclass(frozen=True)
class Link:
    """What befalls a message: chances of loss and repetition, and its longest delay in seconds."""

    drop: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0


class Hang(AssertionError):
    """The schedule did not end."""


@dataclass(order=True)
class _Due:
    time: float
    number: int
    party: str = field(compare=False)
    event: Any = field(compare=False)
    timer: int | None = field(compare=False, default=None)


class Simulation:
    """Runs ``machines`` by party; the first one is started. ``tap`` sees every envelope sent."""

    def __init__(
        self,
        machines: Mapping[str, Machine],
        seed: int = 0,
        link: Link | None = None,
        tap: Callable[[Envelope], None] = lambda _: None,
        silent: Sequence[str] = (),
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.link = link or Link()
        self.tap = tap
        self.silent = set(silent)
        self.results: dict[str, Any] = {}
        self.errors: dict[str, FedmqError] = {}
        self.reports: list[tuple[str, Report]] = []
        self.waits: list[tuple[str, Waiting]] = []
        self.now = 0.0
        self._queue: list[_Due] = []
        self._number = 0
        self._timers: dict[tuple[str, str], int] = {}
        policy = RetryPolicy()
        self.sessions = {
            party: Session(
                machine,
                Mailbox(
                    Address("demo", "session", 1, party),
                    machine.peers,
                    policy,
                    np.random.default_rng(seed + 1),
                ),
            )
            for party, machine in machines.items()
        }

    def run(self) -> None:
        """Run until nothing is left to happen."""
        first = next(iter(self.sessions))
        self._act(first, self.sessions[first].handle(Start()))
        for _ in range(_MOST_EVENTS):
            if not self._queue:
                break
            due = heapq.heappop(self._queue)
            self.now = due.time
            if due.timer is None or self._timers.get((due.party, due.event.name)) == due.timer:
                session = self.sessions[due.party]
                self._act(due.party, session.handle(due.event))
                session.machine.check()
        else:
            raise Hang(f"no end after {_MOST_EVENTS} events")
        for party, session in self.sessions.items():
            if party not in self.silent and not session.over:
                raise Hang(f"{party} waits for ever in {session.machine.state}")

    def _act(self, party: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(envelope):
                    self._transmit(party, envelope)
                case RunComputation(ticket, computation):
                    self._compute(party, ticket, computation)
                case SetTimer(name, seconds):
                    self._number += 1
                    self._timers[party, name] = self._number
                    self._push(seconds, party, TimerFired(name), self._number)
                case CancelTimer(name):
                    self._timers.pop((party, name), None)
                case Finish(result):
                    self.results[party] = result
                case Fail(error):
                    self.errors[party] = error
                case Report():
                    self.reports.append((party, effect))
                case Waiting():
                    self.waits.append((party, effect))

    def _transmit(self, party: str, envelope: Envelope) -> None:
        data = encode(envelope)
        assert len(data) <= 2**20, f"{envelope.header.kind} has {len(data)} bytes"
        self.tap(envelope)
        recipient = envelope.header.recipient
        if party in self.silent or recipient in self.silent:
            return
        copies = 1 + (self.random.random() < self.link.repeat)
        for _ in range(copies):
            if self.random.random() >= self.link.drop:
                delay = 0.001 + self.random.random() * self.link.delay
                self._push(delay, recipient, Arrived(decode(data)))

    def _compute(self, party: str, ticket: int, computation: Any) -> None:
        try:
            event: Any = Computed(ticket, computation.run())
        except FedmqError as error:
            event = ComputationFailed(ticket, error)
        self._push(self.random.random() * self.link.delay, party, event)

    def _push(self, delay: float, party: str, event: Any, timer: int | None = None) -> None:
        self._number += 1
        heapq.heappush(self._queue, _Due(self.now + delay, self._number, party, event, timer))
