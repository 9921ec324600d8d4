"""Nothing is sent twice over a link that is only slow, and what is lost is still sent again."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pytest

from fedmq.messages.envelope import Envelope
from fedmq.messages.training import TreeFinished
from fedmq.protocol.events import Effect, SetTimer, Transmit, Waiting
from fedmq.protocol.session import (
    Acknowledgement,
    Address,
    Mailbox,
    Probing,
    Resend,
    RetryPolicy,
    RoundTrip,
)

POLICY = RetryPolicy(jitter=0)
PIECE = 270_000
MEGABIT = 125_000  # bytes a second
QUICK = 100 * MEGABIT


def mailbox(party: str, peer: str) -> Mailbox:
    address = Address("demo", "session", 1, party)
    return Mailbox(address, [peer], POLICY, np.random.default_rng(0))


def wait_of(effects: list[Effect], key: Hashable) -> list[float]:
    return [
        effect.seconds for effect in effects if isinstance(effect, SetTimer) and effect.key == key
    ]


@dataclass(frozen=True)
class Happens:
    """Something that befalls ``party``: an envelope, a timer, or the broker's confirm."""

    party: str
    what: Envelope | Hashable | tuple[int, int]


class SlowPost:
    """The bank sends to the telco; a message takes its bytes' time up to the broker, and down."""

    def __init__(self, up: float, down: float, lost: tuple[int, ...] = ()) -> None:
        self.boxes = {"bank": mailbox("bank", "telco"), "telco": mailbox("telco", "bank")}
        for box in self.boxes.values():
            box.stop_probing()  # no probe is to be told from a piece that was sent again
        self.now = 0.0
        self.taken = 0
        self.left: list[int] = []
        self.waited = False
        self._rates = (up, down)
        self._free = [0.0, 0.0]
        self._lost = list(lost)
        self._timers: dict[tuple[str, Hashable], int] = {}
        self._queue: list[tuple[float, int, Happens]] = []
        self._number = 0

    def send(self, number: int) -> None:
        self._act("bank", self.boxes["bank"].send("telco", TreeFinished(tree=number)))

    def run(self, seconds: float) -> None:
        while self._queue and self._queue[0][0] <= seconds:
            self.now, number, happens = heapq.heappop(self._queue)
            box, party = self.boxes[happens.party], happens.party
            match happens.what:
                case Envelope() as envelope:
                    bodies, effects = box.receive(envelope, self.now)
                    self.taken += len(bodies) if party == "telco" else 0
                case (sequence, size):
                    effects = box.published("telco", sequence, size, self.now)
                case Resend() | Probing() | Acknowledgement() as key:
                    if self._timers.get((party, key)) != number:
                        continue
                    effects = box.timer(key)[1]
                case _:
                    raise AssertionError(happens)
            self._act(party, effects)

    def _act(self, party: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(envelope) if party == "bank" and envelope.header.sequence:
                    self._leave(envelope)
                case Transmit(envelope):
                    self._push(self.now + 0.05, Happens(envelope.header.recipient, envelope))
                case SetTimer(key, wait):
                    self._timers[party, key] = self._push(self.now + wait, Happens(party, key))
                case Waiting(retry=retry):
                    self.waited |= retry > 0

    def _leave(self, envelope: Envelope) -> None:
        sequence = envelope.header.sequence
        self.left.append(sequence)
        self.boxes["bank"].publishing("telco", sequence)
        at = self.now
        for way, rate in enumerate(self._rates):
            at = self._free[way] = max(self._free[way], at) + PIECE / rate
            if way == 0:
                self._push(at + 0.05, Happens("bank", (sequence, PIECE)))
        if sequence in self._lost:
            self._lost.remove(sequence)
        else:
            self._push(at + 0.05, Happens("telco", envelope))

    def _push(self, at: float, happens: Happens) -> int:
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, happens))
        return self._number


@pytest.mark.parametrize("megabits", [0.5, 1, 10, 100])
@pytest.mark.parametrize("slow", ["up", "down", "both"])
def test_over_a_slow_link_every_piece_leaves_once(megabits: float, slow: str) -> None:
    rate = megabits * MEGABIT
    post = SlowPost(QUICK if slow == "down" else rate, QUICK if slow == "up" else rate)
    for number in range(40):
        post.send(number)
    post.run(3600)
    assert post.taken == 40
    assert post.left == list(range(1, 41))
    assert not post.waited


@pytest.mark.parametrize("megabits", [1, 100])
def test_what_a_slow_link_has_lost_is_sent_again(megabits: float) -> None:
    post = SlowPost(megabits * MEGABIT, megabits * MEGABIT, lost=(1, 20, 40))
    for number in range(40):
        post.send(number)
    post.run(3600)
    assert post.taken == 40
    assert post.boxes["bank"].idle


def test_what_is_on_its_way_to_the_broker_is_not_sent_again_until_that_failed() -> None:
    bank = mailbox("bank", "telco")
    bank.send("telco", TreeFinished(tree=1))
    bank.publishing("telco", 1)
    lost, effects = bank.timer(Resend("telco"))
    assert lost is None
    assert wait_of(effects, Resend("telco")) == [POLICY.first]
    assert len(effects) == 1
    assert bank.published("telco", 1, 0, None) == []
    _, effects = bank.timer(Resend("telco"))
    assert [type(effect) for effect in effects] == [Waiting, Transmit, SetTimer]


def test_the_wait_begins_at_the_confirm_and_is_longer_for_more_bytes() -> None:
    waits = []
    for size in (1_000, 270_000, 500_000):
        bank = mailbox("bank", "telco")
        bank.send("telco", TreeFinished(tree=1))
        bank.publishing("telco", 1)
        waits += wait_of(bank.published("telco", 1, size, 7.0), Resend("telco"))
    assert waits == [POLICY.first, pytest.approx(270 / 32), pytest.approx(500 / 32)]


def test_no_wait_is_longer_than_the_ceiling_of_the_policy() -> None:
    bank = mailbox("bank", "telco")
    bank.send("telco", TreeFinished(tree=1))
    bank.publishing("telco", 1)
    [wait] = wait_of(bank.published("telco", 1, 10**8, 0.0), Resend("telco"))
    assert wait == POLICY.ceiling


def test_an_acknowledgement_that_comes_before_the_confirm_leaves_nothing_behind() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    [first, *_] = bank.send("telco", TreeFinished(tree=1))
    assert isinstance(first, Transmit)
    bank.publishing("telco", 1)
    telco.receive(first.envelope)
    [answer] = (e for e in telco.timer(Acknowledgement("bank"))[1] if isinstance(e, Transmit))
    bank.receive(answer.envelope, 1.0)
    assert bank.idle
    assert bank.published("telco", 1, 1_000, 2.0) == []
    assert bank.timer(Resend("telco")) == (None, [])


def test_round_trips_are_smoothed_as_in_rfc_6298() -> None:
    trip = RoundTrip()
    assert trip.due(0) == 0
    trip.measure(2.0)
    assert trip.due(0) == 2.0 + 4 * 1.0
    trip.measure(4.0)
    smoothed, deviation = 7 / 8 * 2.0 + 1 / 8 * 4.0, 3 / 4 * 1.0 + 1 / 4 * 2.0
    assert trip.due(0) == pytest.approx(smoothed + 4 * deviation)


def test_round_trips_that_are_always_the_same_leave_no_margin() -> None:
    trip = RoundTrip()
    for _ in range(100):
        trip.measure(3.0)
    assert trip.due(0) == pytest.approx(3.0, abs=1e-6)
