"""Two mailboxes in virtual time, of which one is behind a link with a rate, a delay and a queue.

A message takes its bytes' time up to the broker, which confirms it, and down to its recipient. The
broker may lose what it has confirmed. With ``yields`` small messages pass the large ones, as the
connections of a daemon let them; without, everything waits in one queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import QueryPiece
from fedmq.protocol.events import CancelTimer, Effect, SetTimer, Transmit, Waiting
from fedmq.protocol.session import Address, Lost, Mailbox, RetryPolicy

__all__ = [
    "ACTIVE",
    "KILOBIT",
    "MEGABIT",
    "PASSIVE",
    "PIECE",
    "LinkedMail",
    "SlowLink",
    "piece",
]

PIECE = 270_000
SMALL = 600
KILOBIT, MEGABIT = 125, 125_000  # bytes a second
ACTIVE, PASSIVE = "bank", "telco"
POLICY = RetryPolicy(jitter=0)
_PAYLOAD = {"pairs": Array.of(np.zeros(1, np.uint8))}


def piece(number: int) -> QueryPiece:
    """One of many large messages; the simulation takes it for `PIECE` bytes."""
    return QueryPiece(tree=0, node=1, round=0, piece=number, payload=_PAYLOAD)


@dataclass(frozen=True)
class SlowLink:
    """Bytes a second each way, and seconds of a round trip, between ``party`` and the broker."""

    party: str
    rate: float
    round_trip: float
    yields: bool = False


class _Way:
    """One direction of a link: what comes waits until those before it have had their time."""

    def __init__(self, rate: float, delay: float, yields: bool) -> None:
        self._rate, self.delay, self._yields = rate, delay, yields
        self._free = 0.0

    def arrival(self, now: float, size: int, in_bulk: bool = False) -> float:
        if size == SMALL and self._yields and not in_bulk:
            return now + size / self._rate + self.delay
        self._free = max(self._free, now) + size / self._rate
        return self._free + self.delay


class LinkedMail:
    """The mail of both parties over ``link``.

    ``loses``: whether the broker loses a message, by its sender, at this moment. ``names_early``:
    whether acknowledgements name early messages, as those of parties since 0.1.0 do.
    """

    def __init__(
        self,
        link: SlowLink,
        *,
        loses: Callable[[str, float], bool] = lambda _, __: False,
        names_early: bool = True,
    ) -> None:
        self.boxes = {
            party: Mailbox(
                Address("demo", "session", 1, party),
                [other],
                POLICY,
                np.random.default_rng(0),
                names_early=names_early,
            )
            for party, other in ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE))
        }
        self.taken: dict[str, list[Body]] = {ACTIVE: [], PASSIVE: []}
        self.took: dict[str, float] = {ACTIVE: 0.0, PASSIVE: 0.0}
        """When each party took its last body."""
        self.needed: dict[str, int] = {ACTIVE: 0, PASSIVE: 0}
        """Bytes that each has sent for the first time, and must."""
        self.sent: dict[str, int] = {ACTIVE: 0, PASSIVE: 0}
        """Bytes that each has given to the link."""
        self.lost: list[Lost] = []
        self.waits = 0
        self.now = 0.0
        self._loses = loses
        self._wiped = -1.0
        self._ways = {
            (party, way): _Way(link.rate, link.round_trip / 2, link.yields)
            if party == link.party
            else _Way(1000 * MEGABIT, 0.0005, True)
            for party in self.boxes
            for way in ("up", "down")
        }
        self._numbers = count(1)
        self._timers: dict[tuple[str, Hashable], int] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def send(self, party: str, *bodies: Body) -> None:
        """Send ``bodies`` to the other party."""
        other = PASSIVE if party == ACTIVE else ACTIVE
        for body in bodies:
            self.needed[party] += _size(body)
            self._act(party, self.boxes[party].send(other, body))

    def at(self, seconds: float, happen: Callable[[], None]) -> int:
        """Let something happen at a time; returns its number."""
        number = next(self._numbers)
        heapq.heappush(self._queue, (seconds, number, happen))
        return number

    def run(self, seconds: float = 100_000.0) -> None:
        """Let time pass until nothing is left to happen."""
        while self._queue and self._queue[0][0] <= seconds:
            self.now, _, happen = heapq.heappop(self._queue)
            happen()

    def wipe(self) -> None:
        """The broker restarts, and forgets all that it has not delivered."""
        self._wiped = self.now

    def close(self) -> None:
        """Probe no silent party any more, so that the mail comes to an end."""
        for party, box in self.boxes.items():
            self._act(party, box.stop_probing())

    @property
    def excess(self) -> float:
        """Bytes sent over bytes needed, of the party that sent the most in vain."""
        return max(self.sent[party] / self.needed[party] for party in self.boxes)

    def _act(self, party: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(envelope, _, in_bulk):
                    self._leave(party, envelope, in_bulk)
                case SetTimer(key, wait):
                    self._timers[party, key] = self._set(party, key, wait)
                case CancelTimer(key):
                    self._timers.pop((party, key), None)
                case Waiting(retry=retry):
                    self.waits += retry > 0

    def _set(self, party: str, key: Any, wait: float) -> int:
        def fire() -> None:
            if self._timers.get((party, key)) == number:
                lost, effects = self.boxes[party].timer(key)
                self.lost += [lost] if lost else []
                self._act(party, effects)

        number = self.at(self.now + wait, fire)
        return number

    def _leave(self, party: str, envelope: Envelope, in_bulk: bool) -> None:
        header, size = envelope.header, _size(envelope.body)
        box, recipient = self.boxes[party], header.recipient
        self.sent[party] += size
        box.publishing(recipient, header.sequence)

        def reach_broker() -> None:
            reached = self.now

            def arrive() -> None:
                if self._wiped < reached:
                    self._take(recipient, envelope)

            if not self._loses(party, self.now):
                self.at(self._ways[recipient, "down"].arrival(self.now, size, in_bulk), arrive)
            self.at(self.now + self._ways[party, "up"].delay, confirm)

        def confirm() -> None:
            self._act(party, box.published(recipient, header.sequence, size, self.now))

        self.at(self._ways[party, "up"].arrival(self.now, size), reach_broker)

    def _take(self, party: str, envelope: Envelope) -> None:
        bodies, effects = self.boxes[party].receive(envelope, self.now)
        self.taken[party] += bodies
        if bodies:
            self.took[party] = self.now
        self._act(party, effects)


def _size(body: Body) -> int:
    return PIECE if isinstance(body, QueryPiece) else SMALL
