"""All parties of a session under a seeded schedule that drops, repeats, delays and reorders.

Time is virtual, computations run inline, envelopes pass through their bytes. Invariants are
checked after every event, and a schedule that never ends is an error. A party may die at a given
time, and what it sends may be rewritten on the way, as a peer that breaks the protocol would.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmq.errors import FedmqError
from fedmq.messages.body import Body
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope
from fedmq.protocol.events import (
    Arrived,
    CancelTimer,
    ConsentDecided,
    ConsentPending,
    Fail,
    Finish,
    Report,
    RequestConsent,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
    Waiting,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from tests.stepper import RunComputation, SteppedSession

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
    """Runs ``machines`` by party; the first one is started. ``tap`` sees every envelope sent.

    ``deaths`` are the times, in seconds, from which on a party neither receives nor sends anything;
    ``outages`` those between which nothing reaches or leaves it.
    ``rewrite`` makes the body that arrives from a body that is sent. ``owners`` answer in so many
    seconds, with a refusal or nothing; others never do.
    """

    def __init__(
        self,
        machines: Mapping[str, Machine],
        seed: int = 0,
        link: Link | None = None,
        tap: Callable[[Envelope], None] = lambda _: None,
        deaths: Mapping[str, float] | None = None,
        outages: Mapping[str, tuple[float, float]] | None = None,
        rewrite: Callable[[Envelope], Body] = lambda envelope: envelope.body,
        owners: Mapping[str, tuple[float, str]] | None = None,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.link = link or Link()
        self.tap = tap
        self.deaths = dict(deaths or {})
        self.outages = dict(outages or {})
        self.rewrite = rewrite
        self.owners = dict(owners or {})
        self.results: dict[str, Any] = {}
        self.errors: dict[str, FedmqError] = {}
        self.reports: list[tuple[str, Report]] = []
        self.waits: list[tuple[str, Waiting]] = []
        self.consents: list[tuple[str, ConsentPending]] = []
        self.now = 0.0
        self.ended = 0.0
        """When the last party's machine finished or failed."""
        self._queue: list[_Due] = []
        self._number = 0
        self._timers: dict[tuple[str, Hashable], int] = {}
        policy = RetryPolicy(resends=8, stall=600)
        self.sessions = {
            party: SteppedSession(
                Session(
                    machine,
                    Mailbox(
                        Address("demo", "session", 1, party),
                        machine.peers,
                        policy,
                        np.random.default_rng(seed + 1),
                    ),
                )
            )
            for party, machine in machines.items()
        }

    def run(self) -> None:
        """Run until nothing is left to happen."""
        first = next(iter(self.sessions))
        self._push(0.0, first, Start())
        for _ in range(_MOST_EVENTS):
            if not self._queue:
                break
            due = heapq.heappop(self._queue)
            if self._is_dead(due.party, due.time):
                continue
            self.now = due.time
            if due.timer is None or self._timers.get((due.party, due.event.key)) == due.timer:
                session = self.sessions[due.party]
                self._act(due.party, session.handle(due.event))
                session.machine.check()
        else:
            raise Hang(f"no end after {_MOST_EVENTS} events")
        for party, session in self.sessions.items():
            asked = party == first or session.machine.state.name != "READY"
            if asked and not session.over and not self._is_dead(party, self.now):
                raise Hang(f"{party} waits for ever in {session.machine.state}")

    def cause(self, seconds: float, party: str, event: Any) -> None:
        """Let ``event`` happen to ``party`` in so many seconds."""
        self._push(seconds, party, event)

    def send(self, party: str, recipient: str, body: Body) -> None:
        """Let ``party`` send what its machine would not send here."""
        self._act(party, self.sessions[party].mailbox.send(recipient, body))

    def _is_cut_off(self, party: str) -> bool:
        begins, ends = self.outages.get(party, (np.inf, np.inf))
        return begins <= self.now < ends

    def _is_dead(self, party: str, time: float) -> bool:
        return time >= self.deaths.get(party, np.inf)

    def _act(self, party: str, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Transmit(envelope):
                    self._transmit(envelope)
                case RunComputation():
                    self._push(self.random.random() * self.link.delay, party, effect.outcome())
                case SetTimer(key, seconds):
                    self._number += 1
                    self._timers[party, key] = self._number
                    self._push(seconds, party, TimerFired(key), self._number)
                case CancelTimer(key):
                    self._timers.pop((party, key), None)
                case Finish(result):
                    self.results[party] = result
                    self.ended = self.now
                case Fail(error):
                    self.errors[party] = error
                    self.ended = self.now
                case Report():
                    self.reports.append((party, effect))
                case RequestConsent():
                    if party in self.owners:
                        seconds, refusal = self.owners[party]
                        self._push(seconds, party, ConsentDecided(refusal))
                case ConsentPending():
                    self.consents.append((party, effect))
                case Waiting():
                    self.waits.append((party, effect))

    def _transmit(self, envelope: Envelope) -> None:
        body = self.rewrite(envelope)
        header = envelope.header.model_copy(update={"kind": body.kind})
        sent = Envelope(header, body)
        self.tap(sent)
        data = encode(sent)
        assert len(data) <= 2**20, f"{header.kind} has {len(data)} bytes"
        if self._is_cut_off(header.sender) or self._is_cut_off(header.recipient):
            return
        copies = 1 + (self.random.random() < self.link.repeat)
        for _ in range(copies):
            if self.random.random() >= self.link.drop:
                delay = 0.001 + self.random.random() * self.link.delay
                self._push(delay, header.recipient, Arrived(decode(data)))

    def _push(self, delay: float, party: str, event: Any, timer: int | None = None) -> None:
        self._number += 1
        heapq.heappush(self._queue, _Due(self.now + delay, self._number, party, event, timer))
