"""Batches of online scores under a seeded schedule that drops, repeats, delays and reorders.

Time is virtual. A party may be away for a while: what is sent to it then is lost, and it keeps
nothing, as after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.online import OnlineHop, OnlineRows, OnlineSealed
from fedmq.protocol.events import (
    Answer,
    CancelTimer,
    Received,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_active import SealedBatch
from tests.simulator import Link
from tests.stepper import RunComputation, Stepper

ACTIVE = "active"


@dataclass(order=True)
class _Due:
    time: float
    number: int
    what: Any = field(compare=False)


class OnlineSchedule:
    """Runs ``batches`` at once against ``shares`` by party; answers by (batch, request)."""

    def __init__(
        self,
        batches: Sequence[OnlineBatch | SealedBatch],
        shares: Mapping[str, AnsweringShare | Any],
        seed: int = 0,
        link: Link | None = None,
        away: Mapping[str, tuple[float, float]] | None = None,
        slow_work: float = 0.0,
        handle_of: Callable[[OnlineBatch | SealedBatch], Callable[[Any], list[Any]]] = (
            lambda batch: Stepper(batch.handle).handle
        ),
    ) -> None:
        self.batches = dict(enumerate(batches))
        self.handles = {number: handle_of(batch) for number, batch in self.batches.items()}
        self.shares = shares
        self.random = np.random.default_rng(seed)
        self.link = link or Link()
        self.away = away or {}
        self.slow_work = slow_work
        self.answers: dict[tuple[int, int], Any] = {}
        self.answered_at: dict[tuple[int, int], float] = {}
        self.sent: list[tuple[str, str, Body]] = []
        self.now = 0.0
        self._queue: list[_Due] = []
        self._number = 0
        self._timers: dict[tuple[int, Hashable], int] = {}

    def run(self) -> dict[tuple[int, int], Any]:
        for batch in self.batches:
            self._feed(batch, Start())
        for _ in range(200_000):
            if not self._queue:
                return self.answers
            due = heapq.heappop(self._queue)
            self.now = due.time
            due.what()
        raise AssertionError("no end")

    def _feed(self, batch: int, event: Any) -> None:
        machine = self.batches[batch]
        effects = self.handles[batch](event)
        machine.check()
        for effect in effects:
            match effect:
                case Send(recipient, body):
                    self._send(ACTIVE, recipient, batch, body)
                case RunComputation():
                    outcome = effect.outcome()
                    wait = self.slow_work * self.random.random()
                    self._later(wait, lambda event=outcome: self._feed(batch, event))
                case SetTimer(key, seconds):
                    self._number += 1
                    self._timers[batch, key] = number = self._number
                    self._later(seconds, partial(self._fire, batch, key, number))
                case CancelTimer(key):
                    self._timers.pop((batch, key), None)
                case Answer(request, result):
                    assert (batch, request) not in self.answers, "answered twice"
                    self.answers[batch, request] = result
                    self.answered_at[batch, request] = self.now

    def _fire(self, batch: int, key: Hashable, number: int) -> None:
        if self._timers.get((batch, key)) == number:
            del self._timers[batch, key]
            self._feed(batch, TimerFired(key))

    def _send(self, sender: str, recipient: str, batch: int, body: Body) -> None:
        header = Header(
            id="x", federation="demo", session="online", attempt=1, sender=sender,
            recipient=recipient, sequence=0, acknowledged=0, kind=body.kind,
        )  # fmt: skip
        data = encode(Envelope(header, body))
        assert len(data) <= 2**20
        self.sent.append((sender, recipient, body))
        for _ in range(1 + (self.random.random() < self.link.repeat)):
            if self.random.random() >= self.link.drop:
                wait = 0.001 + self.random.random() * self.link.delay
                self._later(wait, lambda: self._arrive(sender, recipient, batch, data))

    def _arrive(self, sender: str, recipient: str, batch: int, data: bytes) -> None:
        body = decode(data).body
        since, until = self.away.get(recipient if recipient != ACTIVE else sender, (1.0, 0.0))
        if since <= self.now < until:
            return
        if recipient == ACTIVE:
            self._feed(batch, Received(sender, body))
            return
        share = self.shares[recipient]
        try:
            if isinstance(body, OnlineHop):
                self._send(recipient, sender, batch, share.exits(body))
            elif isinstance(body, OnlineRows):
                self._send(recipient, sender, batch, share.bitmaps(body))
            elif isinstance(body, OnlineSealed):
                self._send(recipient, sender, batch, share.products(body))
        except ProtocolError as error:
            raise AssertionError(str(error)) from None

    def _later(self, seconds: float, what: Any) -> None:
        self._number += 1
        heapq.heappush(self._queue, _Due(self.now + seconds, self._number, what))
