"""Nothing is sent twice over a link that is only slow, and what is lost is still sent again."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.messages.body import Acknowledge
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
from tests.how_often import examples
from tests.protocol.simulated_link import (
    ACTIVE,
    KILOBIT,
    PASSIVE,
    LinkedMail,
    SlowLink,
    piece,
)
from tests.protocol.simulated_link import PIECE as PIECE_BYTES

POLICY = RetryPolicy(jitter=0)
PIECE = 270_000
MEGABIT = 125_000  # bytes a second
QUICK = 100 * MEGABIT


def mailbox(party: str, peer: str, *, names_early: bool = True) -> Mailbox:
    address = Address("demo", "session", 1, party)
    return Mailbox(address, [peer], POLICY, np.random.default_rng(0), names_early=names_early)


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


def transmits(effects: list[Effect]) -> list[Transmit]:
    return [effect for effect in effects if isinstance(effect, Transmit)]


def confirmed(bank: Mailbox, pieces: int) -> list[Envelope]:
    """So many pieces that the bank has sent, and the broker has confirmed."""
    envelopes = []
    for number in range(pieces):
        [sent] = transmits(bank.send("telco", piece(number)))
        bank.publishing("telco", number + 1)
        bank.published("telco", number + 1, PIECE, 0.0)
        envelopes.append(sent.envelope)
    return envelopes


def test_an_overdue_message_is_followed_by_a_probe_in_its_own_queue_and_not_sent_again() -> None:
    bank = mailbox("bank", "telco")
    confirmed(bank, 3)
    for retry in (1, 2, 3):
        [probe] = transmits(bank.timer(Resend("telco"))[1])
        assert (probe.envelope.header.kind, probe.envelope.header.sequence) == ("probe", 4)
        assert (probe.in_bulk, probe.again) == (True, retry > 1)


def test_what_left_before_a_probe_that_arrived_and_is_not_named_is_sent_again_alone() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    _, second, _, fourth = confirmed(bank, 4)
    [probe] = transmits(bank.timer(Resend("telco"))[1])
    for envelope in (second, fourth):
        telco.receive(envelope)
    [named] = transmits(telco.receive(probe.envelope)[1])
    assert named.envelope.body == Acknowledge(early=((2, 2), (4, 5)))
    lost = transmits(bank.receive(named.envelope)[1])
    assert [(one.envelope.header.sequence, one.again, one.in_bulk) for one in lost] == [
        (1, True, False),
        (3, True, False),
    ]


def test_what_left_after_the_probe_is_not_sent_again_although_it_is_not_named() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    confirmed(bank, 1)
    [probe] = transmits(bank.timer(Resend("telco"))[1])
    bank.send("telco", piece(2))
    bank.published("telco", 3, PIECE, 0.0)
    [named] = transmits(telco.receive(probe.envelope)[1])
    lost = transmits(bank.receive(named.envelope)[1])
    assert [one.envelope.header.sequence for one in lost] == [1]


@pytest.mark.parametrize("older", ["bank", "telco"])
def test_to_a_peer_that_reads_no_names_goes_the_oldest_message_again(older: str) -> None:
    """As one of 0.1.0, which would refuse an acknowledgement with a field that it does not know."""
    bank, telco = (
        mailbox(party, peer, names_early=party != older)
        for party, peer in (("bank", "telco"), ("telco", "bank"))
    )
    _, second = confirmed(bank, 2)
    telco.receive(second)
    [answer] = transmits(telco.timer(Acknowledgement("bank"))[1])
    assert answer.envelope.body == Acknowledge()
    bank.receive(answer.envelope)
    [again] = transmits(bank.timer(Resend("telco"))[1])
    assert again.envelope.header.sequence == 1


def test_a_party_reads_names_if_its_acknowledgements_and_probes_say_so() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    confirmed(bank, 2)
    [probe] = transmits(bank.timer(Resend("telco"))[1])
    assert probe.envelope.header.id == "session/1/bank/telco/3 early"
    [answer] = transmits(telco.receive(probe.envelope)[1])
    assert answer.envelope.header.id == "session/1/telco/bank/a1 early"


def test_a_peer_that_answers_no_probe_gets_the_oldest_message_again_after_a_while() -> None:
    bank = mailbox("bank", "telco")
    confirmed(bank, 2)
    kinds = [
        [one.envelope.header.kind for one in transmits(bank.timer(Resend("telco"))[1])]
        for _ in range(9)
    ]
    seldom = {4, 8}
    assert kinds == [
        ["query piece", "probe"] if retry in seldom else ["probe"] for retry in range(1, 10)
    ]


def test_the_speed_of_a_link_is_measured_and_decides_how_long_large_messages_may_take() -> None:
    trip = RoundTrip()
    trip.measure(2.0, 64_000)
    assert trip.rate == 32_000
    trip.measure(0.1, 600)  # it says nothing about the speed
    assert trip.rate == 32_000
    trip.measure(1.0, 400_000)
    assert trip.rate == 32_000 + (400_000 - 32_000) / 8
    assert trip.due(780_000) - trip.due(0) == pytest.approx(10.0)


LINKS = {
    "10 Mbit/s, 50 ms": (10 * MEGABIT, 0.05),
    "1 Mbit/s, 100 ms": (MEGABIT, 0.1),
    "256 kbit/s, 300 ms": (256 * KILOBIT, 0.3),
}
parties = pytest.mark.parametrize("party", [ACTIVE, PASSIVE])
links = pytest.mark.parametrize("link", LINKS)
queues = pytest.mark.parametrize("yields", [True, False], ids=["small first", "one queue"])


def exchanged(post: LinkedMail, pieces: int) -> LinkedMail:
    """Both parties send so many pieces at once, and time passes until all is quiet."""
    for number in range(pieces):
        post.send(ACTIVE, piece(number))
        post.send(PASSIVE, piece(number))
    post.close()
    post.run()
    bodies = [piece(number) for number in range(pieces)]
    assert all(taken == bodies for taken in post.taken.values())
    assert all(box.idle for box in post.boxes.values())
    assert not post.lost
    return post


@parties
@links
@queues
@pytest.mark.parametrize("pieces", [20, 40, 100])
def test_a_burst_over_a_slow_link_costs_its_own_bytes_and_their_time(
    party: str, link: str, yields: bool, pieces: int
) -> None:
    rate, round_trip = LINKS[link]
    post = exchanged(LinkedMail(SlowLink(party, rate, round_trip, yields)), pieces)
    assert post.excess <= 1.1
    assert max(post.took.values()) <= 1.1 * pieces * PIECE_BYTES / rate + 10 * round_trip


@parties
@links
@queues
def test_a_peer_that_names_no_early_messages_costs_little_more(
    party: str, link: str, yields: bool
) -> None:
    """As one of 0.1.0, to which a burst of a hundred was sent eleven times."""
    rate, round_trip = LINKS[link]
    slow = SlowLink(party, rate, round_trip, yields)
    post = exchanged(LinkedMail(slow, names_early=False), 100)
    assert post.excess <= (1.1 if yields else 1.3)


@parties
@pytest.mark.parametrize("names_early", [True, False])
def test_after_a_wiped_queue_what_was_in_it_is_sent_again_and_soon(
    party: str, names_early: bool
) -> None:
    post = LinkedMail(SlowLink(party, 10 * MEGABIT, 0.05), names_early=names_early)
    for number in range(40):
        post.send(ACTIVE, piece(number))
        post.send(PASSIVE, piece(number))
    post.at(4.0, post.wipe)
    post.close()
    post.run()
    bodies = [piece(number) for number in range(40)]
    assert all(taken == bodies for taken in post.taken.values())
    undisturbed = 40 * PIECE_BYTES / (10 * MEGABIT)
    assert max(post.took.values()) <= 2 * undisturbed + (10 if names_early else 60)
    assert post.excess <= 2


@examples(60)
@given(
    kilobits=st.floats(256, 100_000),
    round_trip=st.floats(0.001, 0.6),
    party=st.sampled_from([ACTIVE, PASSIVE]),
    yields=st.booleans(),
    bursts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=4),
)
def test_over_any_link_that_loses_nothing_hardly_anything_is_sent_twice(
    kilobits: float, round_trip: float, party: str, yields: bool, bursts: list[tuple[int, int]]
) -> None:
    post = LinkedMail(SlowLink(party, kilobits * KILOBIT, round_trip, yields))
    number = 0
    for from_active, from_passive in bursts:
        for sender, count in ((ACTIVE, from_active), (PASSIVE, from_passive)):
            for _ in range(count):
                number += 1
                post.send(sender, piece(number))
        post.run(post.now + 5)
    post.close()
    post.run()
    for sender, receiver in ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE)):
        assert post.needed[sender] == PIECE_BYTES * len(post.taken[receiver])
        assert post.sent[sender] - post.needed[sender] <= 2 * PIECE_BYTES + 0.1 * sum(
            post.needed.values()
        )


@examples(60)
@given(
    kilobits=st.floats(256, 100_000),
    round_trip=st.floats(0.001, 0.6),
    party=st.sampled_from([ACTIVE, PASSIVE]),
    names_early=st.booleans(),
    share=st.floats(0, 0.3),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_a_link_of_any_speed_loses_is_sent_again(
    kilobits: float, round_trip: float, party: str, names_early: bool, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    slow = SlowLink(party, kilobits * KILOBIT, round_trip)
    post = exchanged(
        LinkedMail(slow, names_early=names_early, loses=lambda *_: random.random() < share), 30
    )
    if names_early:
        assert post.excess <= 1.2 / (1 - share) ** 2 + 0.2
