"""Parties that crash and come back, in virtual time, under a seeded schedule.

Each party has a store that outlives it. A checkpoint takes a moment to reach it, and what is sent
after the checkpoint leaves only then. The broker keeps messages for a party that is away. Which
message goes where, and what follows from it, is decided by the code that the daemon uses.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.inference import InferenceOpen
from fedmq.messages.training import TrainingOpen, TreeStarted
from fedmq.party.store.journal import Row, checkpoint_of, row_of
from fedmq.protocol.events import (
    Arrived,
    CancelTimer,
    ConsentDecided,
    Fail,
    Finish,
    Interrupted,
    RequestConsent,
    Save,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.session import (
    Address,
    Decision,
    Mailbox,
    RetryPolicy,
    Session,
    StoredState,
    decide,
)
from fedmq.protocol.session_records import ActiveTree, Checkpoint, PassiveTree
from tests.stepper import RunComputation, SteppedSession

_MOST_EVENTS = 300_000
_REMIND_SECONDS = 5.0
_OPENINGS = (AlignmentOpen, TrainingOpen, InferenceOpen)

Build = Callable[[Sequence[Checkpoint]], Machine]


@dataclass(frozen=True)
class Faults:
    """Chances per message, longest delays in seconds, and who crashes when."""

    drop: float = 0.0
    repeat: float = 0.0
    delay: float = 0.5
    disk: float = 0.3
    crashes: Sequence[tuple[float, str, float]] = ()
    """(when, which party, seconds until it is back)."""


@dataclass
class _Disk:
    attempt: int = 0
    rows: list[Row] = field(default_factory=list)
    ended: bool = False
    result: Any = None
    error: str = ""

    @property
    def stored_state(self) -> StoredState | None:
        return StoredState(self.attempt, bool(self.error)) if self.attempt else None


@dataclass
class _Party:
    build: Build
    disk: _Disk = field(default_factory=_Disk)
    session: Session | None = None
    life: int = 0
    """Counts crashes and attempts: effects of an earlier life are dropped."""
    away_until: float = 0.0
    written: float = 0.0
    """When the last checkpoint is on disk."""


class CrashSimulation:
    """Runs a session under ``faults``; the first of the parties, by how each is built, is active.

    ``on_life`` sees every session that begins, and may wrap it. ``owners`` answer at these times;
    what they have said outlives a crash (``has_agreed``).
    """

    def __init__(
        self,
        builds: Mapping[str, Build],
        faults: Faults,
        seed: int = 0,
        on_life: Callable[[Session, Sequence[Row]], Session] = lambda session, _: session,
        owners: Mapping[str, float] | None = None,
    ) -> None:
        self.faults = faults
        self._on_life = on_life
        self._owners = dict(owners or {})
        self.parties = {name: _Party(build) for name, build in builds.items()}
        self.active = next(iter(builds))
        self.trees_begun: list[int] = []
        """The tree of each ``tree started`` that the active party sent to the first other one."""
        self.attempts = 0
        self.now = 0.0
        self.ended = 0.0
        """When the last party had its result on disk."""
        self._random = np.random.default_rng(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._timers: dict[tuple[str, Hashable], int] = {}

    @property
    def results(self) -> dict[str, Any]:
        return {name: party.disk.result for name, party in self.parties.items()}

    def has_agreed(self, name: str) -> bool:
        """Whether the owner of this party has answered by now."""
        return self.now >= self._owners[name]

    def run(self) -> None:
        """Run until every party has its result on disk, and nothing is left to happen."""
        self.play()
        for name, party in self.parties.items():
            assert party.disk.ended, f"{name} ended with {party.disk.error!r}"

    def play(self) -> None:
        """Run until nothing is left to happen."""
        for when, who, away in self.faults.crashes:
            self.at(when, lambda who=who, away=away: self._crash(who, away))
        self._attempt(self.active, 1)
        for _ in range(_MOST_EVENTS):
            if not self._queue:
                break
            self.now, _, happen = heapq.heappop(self._queue)
            happen()
        else:
            states = {name: party.session for name, party in self.parties.items()}
            raise AssertionError(f"no end after {_MOST_EVENTS} events: {states}")

    # A party's lives

    def _crash(self, name: str, away: float) -> None:
        party = self.parties[name]
        party.life += 1
        party.session = None
        party.away_until = self.now + away
        self.at(party.away_until, lambda: self._come_back(name))

    def _come_back(self, name: str) -> None:
        party = self.parties[name]
        if self.now < party.away_until or party.disk.error or not party.disk.attempt:
            return
        if party.disk.ended:
            return
        if name == self.active:
            self._attempt(name, party.disk.attempt + 1)
        else:
            self._remind(name, party.life)

    def _remind(self, name: str, life: int) -> None:
        party = self.parties[name]
        if party.life == life and not party.disk.ended and not party.disk.error:
            self._outside(name, self.active, party.disk.attempt, SessionUnknown())
            self.at(self.now + _REMIND_SECONDS, lambda: self._remind(name, life))

    def _attempt(self, name: str, attempt: int) -> None:
        party = self.parties[name]
        self.attempts = max(self.attempts, attempt)
        party.life += 1
        machine = party.build([checkpoint_of(row) for row in party.disk.rows])
        address = Address("demo", "session", attempt, name)
        mailbox = Mailbox(
            address, machine.peers, RetryPolicy(jitter=0), np.random.default_rng(self._number)
        )
        session = SteppedSession(Session(machine, mailbox))
        party.session = self._on_life(session, party.disk.rows)
        self._write(name, lambda disk: _begun(disk, attempt))
        if name == self.active:
            self._feed(name, Start())

    def _write(self, name: str, change: Callable[[_Disk], None]) -> None:
        party, life = self.parties[name], self.parties[name].life
        begin = max(self.now, party.written)
        party.written = begin + self._random.random() * self.faults.disk

        def write() -> None:
            if party.life == life:
                change(party.disk)

        self.at(party.written, write)

    def _ended(self, disk: _Disk, result: Any) -> None:
        disk.result, disk.ended, self.ended = result, True, self.now

    # What happens to it

    def _arrive(self, name: str, data: bytes) -> None:
        party = self.parties[name]
        if self.now < party.away_until:
            self.at(party.away_until + 0.001, lambda: self._arrive(name, data))
            return
        envelope = decode(data)
        header, body = envelope.header, envelope.body
        running = party.session.mailbox.address.attempt if party.session else 0
        if party.session is not None and header.attempt <= running:
            if header.attempt == running:
                self._feed(name, Arrived(envelope))
            return
        opens = isinstance(body, _OPENINGS) and header.sender == self.active
        match decide(
            header, body, party.disk.stored_state, opens=opens, drives=name == self.active
        ):
            case Decision.JOIN:
                self._attempt(name, header.attempt)
                self._feed(name, Arrived(envelope))
            case Decision.GO_ON:
                self._attempt(name, party.disk.attempt + 1)
            case Decision.END:
                party.disk.error = "given up"
                if header.sequence:
                    self._outside(name, header.sender, header.attempt, SessionUnknown())
            case Decision.REFUSE:
                self._outside(name, header.sender, header.attempt, Abort(reason="failed"))
            case Decision.REPLY_UNKNOWN:
                self._outside(name, header.sender, header.attempt, SessionUnknown())
            case Decision.DROP:
                pass

    def _feed(self, name: str, event: Any) -> None:
        party = self.parties[name]
        assert party.session is not None
        life = party.life
        effects = party.session.handle(event)
        party.session.machine.check()
        for effect in effects:
            if party.life == life:
                self._act(name, effect)

    def _act(self, name: str, effect: Any) -> None:
        party = self.parties[name]
        life = party.life
        match effect:
            case Transmit(envelope):
                self._transmit(name, envelope)
            case RunComputation():
                event = effect.outcome()
                self._later(name, self._random.random() * self.faults.delay, event)
            case SetTimer(timer, seconds):
                self._number += 1
                number = self._timers[name, timer] = self._number

                def fire() -> None:
                    if party.life == life and self._timers.get((name, timer)) == number:
                        self._feed(name, TimerFired(timer))

                self.at(self.now + seconds, fire)
            case CancelTimer(timer):
                self._timers.pop((name, timer), None)
            case RequestConsent():
                self._later(name, self._owners[name] - self.now, ConsentDecided())
            case Save(ActiveTree() | PassiveTree() as step):
                row = row_of(step)
                self._write(name, lambda disk: _saved(disk, row))
            case Finish(result):
                self._write(name, lambda disk: self._ended(disk, result))
            case Fail(error):
                self._write(name, lambda disk: setattr(disk, "error", str(error)))
            case Interrupted():
                self._interrupted(name, life)

    def _interrupted(self, name: str, life: int) -> None:
        party = self.parties[name]
        if name != self.active:
            self._remind(name, life)
            return
        assert party.session is not None
        attempt = party.session.mailbox.address.attempt + 1

        def again() -> None:
            if party.life == life:
                self._attempt(name, attempt)

        # As the daemon does, which waits a little, and for its own store to be written.
        self.at(max(self.now + 0.05, party.written + 0.001), again)

    def _later(self, name: str, seconds: float, event: Any) -> None:
        party, life = self.parties[name], self.parties[name].life

        def happen() -> None:
            if party.life == life:
                self._feed(name, event)

        self.at(self.now + seconds, happen)

    # What it says

    def _transmit(self, name: str, envelope: Envelope) -> None:
        party, life = self.parties[name], self.parties[name].life
        first_other = list(self.parties)[1]
        if isinstance(envelope.body, TreeStarted) and envelope.header.recipient == first_other:
            self.trees_begun.append(envelope.body.tree)
        data = encode(envelope)

        def leave() -> None:
            if party.life == life:
                self._send(envelope.header.recipient, data)

        if party.written > self.now:
            self.at(party.written + 1e-6, leave)
        else:
            leave()

    def _outside(self, name: str, recipient: str, attempt: int, body: Body) -> None:
        header = Header(
            id=f"{name}/{recipient}/{body.kind}",
            federation="demo",
            session="session",
            attempt=attempt,
            sender=name,
            recipient=recipient,
            sequence=0,
            acknowledged=0,
            kind=body.kind,
        )
        self._send(recipient, encode(Envelope(header, body)))

    def _send(self, recipient: str, data: bytes) -> None:
        for _ in range(1 + (self._random.random() < self.faults.repeat)):
            if self._random.random() >= self.faults.drop:
                delay = 0.001 + self._random.random() * self.faults.delay
                self.at(self.now + delay, lambda: self._arrive(recipient, data))

    def at(self, when: float, happen: Callable[[], None]) -> None:
        """Let something happen at that time."""
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, happen))


def _begun(disk: _Disk, attempt: int) -> None:
    disk.attempt = attempt


def _saved(disk: _Disk, row: Row) -> None:
    disk.rows = [saved for saved in disk.rows if saved[0] < row[0]] + [row]
    saved = json.loads(row[1])
    if "adds_alone" in saved:
        return
    # As the store does: only the margins of the last trees are kept.
    needless = row[0] - 2 - (saved.get("turns", 1) - 1)
    disk.rows = [
        (tree, data, margin if tree > needless else None) for tree, data, margin in disk.rows
    ]
