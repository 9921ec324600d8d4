"""Exactly once and in order, over a link that loses, repeats, delays and reorders."""

from __future__ import annotations

import heapq
import tracemalloc
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import MessageError
from fedmq.messages.array import Array
from fedmq.messages.body import Abort, Acknowledge, Body, Probe
from fedmq.messages.codec import pack
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import GradientBroadcast, TreeFinished
from fedmq.protocol import session as mailbox_module
from fedmq.protocol.events import CancelTimer, Effect, SetTimer, Transmit, Waiting
from fedmq.protocol.session import (
    Acknowledgement,
    Address,
    Lost,
    Mailbox,
    Probing,
    Resend,
    RetryPolicy,
    resend_wait,
)
from tests.how_often import examples

POLICY = RetryPolicy(resends=8)


def mailbox(party: str, *peers: str, policy: RetryPolicy = POLICY) -> Mailbox:
    return Mailbox(Address("demo", "session", 1, party), peers, policy, np.random.default_rng(0))


def numbered(number: int) -> TreeFinished:
    return TreeFinished(tree=number)


def sent(effects: list[Effect]) -> list[Envelope]:
    return [effect.envelope for effect in effects if isinstance(effect, Transmit)]


@dataclass(frozen=True)
class Published:
    """What a broker says of a message: it has it, or nobody knows."""

    recipient: str
    sequence: int
    confirmed: bool


class Post:
    """Two mailboxes and a link between them that ``random`` makes bad.

    ``unsure``: how often nobody knows whether the broker has a message; None if it says nothing.
    """

    def __init__(
        self, seed: int, drop: float, repeat: float, delay: float, unsure: float | None = None
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.chances = (drop, repeat, delay)
        self.unsure = unsure
        patient = POLICY.model_copy(update={"resends": 60})
        self.boxes = {
            party: mailbox(party, other, policy=patient)
            for party, other in (("bank", "telco"), ("telco", "bank"))
        }
        self.taken: dict[str, list[Body]] = {"bank": [], "telco": []}
        self.lost: list[Lost] = []
        self.now = 0.0
        self.transmitted = 0
        self._queue: list[tuple[float, int, str, Any]] = []
        self._number = 0
        self._timers: dict[tuple[str, Hashable], int] = {}

    def act(self, party: str, effects: list[Effect]) -> None:
        drop, repeat, delay = self.chances
        for effect in effects:
            match effect:
                case Transmit(envelope):
                    self.transmitted += 1
                    self._publish(party, envelope.header)
                    for _ in range(1 + (self.random.random() < repeat)):
                        if self.random.random() >= drop:
                            wait = self.random.random() * delay
                            self._push(wait, envelope.header.recipient, envelope)
                case SetTimer(key, seconds):
                    self._push(seconds, party, key)
                    self._timers[party, key] = self._number
                case CancelTimer(key):
                    self._timers.pop((party, key), None)

    def _publish(self, party: str, header: Header) -> None:
        if self.unsure is None or not header.sequence:
            return
        self.boxes[party].publishing(header.recipient, header.sequence)
        confirmed = self.random.random() >= self.unsure
        wait = self.random.random() * self.chances[-1]
        self._push(wait, party, Published(header.recipient, header.sequence, confirmed))

    def send(self, party: str, body: Body) -> None:
        other = "telco" if party == "bank" else "bank"
        self.act(party, self.boxes[party].send(other, body))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, number, party, event = heapq.heappop(self._queue)
            box = self.boxes[party]
            if isinstance(event, Envelope):
                bodies, effects = box.receive(event, self.now)
                self.taken[party] += bodies
                self.act(party, effects)
            elif isinstance(event, Published):
                at = self.now if event.confirmed else None
                self.act(party, box.published(event.recipient, event.sequence, 100, at))
            elif self._timers.get((party, event)) == number:
                lost, effects = box.timer(event)
                self.lost += [lost] if lost else []
                self.act(party, effects)
        self.now = until

    def _push(self, wait: float, party: str, event: Any) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + wait, self._number, party, event))


Step = tuple[str, int, float]
steps = st.lists(
    st.tuples(st.sampled_from(["bank", "telco"]), st.integers(0, 40), st.floats(0, 20)), max_size=8
)


@examples(150)
@given(
    sending=steps,
    seed=st.integers(0, 2**32 - 1),
    drop=st.floats(0, 0.4),
    repeat=st.floats(0, 1),
    delay=st.floats(0, 5),
    unsure=st.none() | st.floats(0, 1),
)
def test_every_body_arrives_once_and_in_order_and_then_there_is_silence(
    sending: list[Step], seed: int, drop: float, repeat: float, delay: float, unsure: float | None
) -> None:
    post = Post(seed, drop, repeat, delay, unsure)
    spoken: dict[str, list[Body]] = {"bank": [], "telco": []}
    number = 0
    for party, count, pause in sending:
        for _ in range(count):
            number += 1
            spoken["telco" if party == "bank" else "bank"].append(numbered(number))
            post.send(party, numbered(number))
        post.run(pause)
    for party in post.boxes:
        post.act(party, post.boxes[party].stop_probing())
    post.run(3000)
    assert not post.lost
    assert post.taken == spoken
    assert all(box.idle for box in post.boxes.values())
    before = post.transmitted
    post.run(3000)
    assert post.transmitted == before


def test_a_good_link_carries_each_body_once_and_few_acknowledgements() -> None:
    post = Post(seed=0, drop=0, repeat=0, delay=0.01)
    for number in range(160):
        post.send("bank", numbered(number))
    post.run(10)
    assert len(post.taken["telco"]) == 160
    assert post.transmitted <= 160 + 5 + 1
    assert not post.lost


def test_an_acknowledgement_ends_the_resends() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    [envelope] = sent(bank.send("telco", numbered(1)))
    telco.receive(envelope)
    [acknowledgement] = sent(telco.timer(Acknowledgement("bank"))[1])
    assert not bank.idle
    _, effects = bank.receive(acknowledgement)
    assert CancelTimer(Resend("telco")) in effects
    assert bank.idle
    assert bank.timer(Resend("telco")) == (None, [])


def test_an_answer_acknowledges_as_well() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    [question] = sent(bank.send("telco", numbered(1)))
    telco.receive(question)
    effects = telco.send("bank", numbered(2))
    assert CancelTimer(Acknowledgement("bank")) in effects
    bank.receive(sent(effects)[0])
    assert bank.idle


def test_an_answer_to_a_part_starts_the_wait_for_the_rest_anew() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    first, *_ = (sent(bank.send("telco", numbered(n)))[0] for n in range(3))
    telco.receive(first)
    _, effects = bank.receive(sent(telco.timer(Acknowledgement("bank"))[1])[0])
    assert [effect.key for effect in effects if isinstance(effect, SetTimer)] == [
        Resend("telco"),
        Probing("telco"),
    ]
    assert sent(effects) == []


def test_after_a_resend_the_next_ones_follow_as_soon_as_the_first_are_acknowledged() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    for number in range(20):
        bank.send("telco", numbered(number))
    _, effects = bank.timer(Resend("telco"))
    again = [envelope.header.sequence for envelope in sent(effects)]
    assert again == list(range(1, 9))
    for envelope in sent(effects):
        telco.receive(envelope)
    _, effects = bank.receive(sent(telco.timer(Acknowledgement("bank"))[1])[0])
    assert [envelope.header.sequence for envelope in sent(effects)] == list(range(9, 17))


def test_resends_have_the_same_id_and_longer_and_longer_waits() -> None:
    bank = mailbox("bank", "telco", policy=RetryPolicy(resends=8, jitter=0))
    effects = bank.send("telco", numbered(1))
    [first] = sent(effects)
    waits = []
    for retry in range(1, POLICY.resends + 1):
        lost, effects = bank.timer(Resend("telco"))
        assert lost is None
        assert Waiting("telco", retry, POLICY.resends) in effects
        [again] = sent(effects)
        assert again == first
        waits += [effect.seconds for effect in effects if isinstance(effect, SetTimer)]
    assert waits == [4, 8, 16, 30, 30, 30, 30, 30]


def test_waits_are_spread_by_the_jitter_and_bounded_by_the_ceiling() -> None:
    random = np.random.default_rng(0)
    policy = RetryPolicy(first=1, factor=3, ceiling=10, jitter=0.5)
    waits = [[resend_wait(policy, retry, random) for _ in range(50)] for retry in range(4)]
    for wait, shortest in zip(waits, (1, 3, 9, 10), strict=True):
        assert shortest <= min(wait) < max(wait) <= 1.5 * shortest
        assert len(set(wait)) > 40


def test_the_last_of_a_days_resends_waits_no_longer_than_the_ceiling() -> None:
    policy = RetryPolicy(jitter=0)
    assert resend_wait(policy, policy.resends, np.random.default_rng(0)) == policy.ceiling


def test_a_peer_that_never_acknowledges_is_lost_after_the_resends_of_the_policy() -> None:
    bank = mailbox("bank", "telco", policy=RetryPolicy(resends=2))
    bank.send("telco", numbered(1))
    assert bank.timer(Resend("telco"))[0] is None
    assert bank.timer(Resend("telco"))[0] is None
    lost, effects = bank.timer(Resend("telco"))
    assert lost is not None
    assert lost.peer == "telco"
    assert "telco" in lost.reason
    assert sent(effects) == []
    assert bank.idle


def test_a_peer_that_answers_again_is_no_longer_waited_for() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    bank.send("telco", numbered(1))
    [again] = sent(bank.timer(Resend("telco"))[1])
    telco.receive(again)
    [acknowledgement] = sent(telco.timer(Acknowledgement("bank"))[1])
    _, effects = bank.receive(acknowledgement)
    assert Waiting("telco", 0, POLICY.resends) in effects


def test_silence_is_probed_and_the_probe_is_acknowledged_at_once_and_not_shown() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    effects = bank.receive(sent(telco.send("bank", numbered(1)))[0])[1]
    assert SetTimer(Probing("telco"), POLICY.probe) in effects
    [probe] = sent(bank.timer(Probing("telco"))[1])
    assert isinstance(probe.body, Probe)
    bodies, effects = telco.receive(probe)
    assert bodies == []
    [acknowledgement] = sent(effects)
    assert isinstance(acknowledgement.body, Acknowledge)
    assert not bank.idle
    bank.receive(acknowledgement)
    assert bank.idle


def test_nobody_is_probed_while_something_is_under_way_or_after_the_end() -> None:
    bank = mailbox("bank", "telco")
    bank.send("telco", numbered(1))
    assert bank.timer(Probing("telco")) == (None, [])
    assert bank.stop_probing() == [CancelTimer(Probing("telco"))]
    assert not any(
        isinstance(effect, SetTimer) and effect.name.startswith("probe")
        for effect in bank.send("telco", numbered(2))
    )


def test_what_follows_messages_that_were_given_up_arrives_although_they_were_lost() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    bank.send("telco", numbered(1))
    bank.send("telco", numbered(2))
    bank.stop_waiting()
    assert bank.idle
    effects = bank.send("telco", Abort(reason="enough"))
    [last] = sent(effects)
    assert telco.receive(last)[0] == []  # two are missing before it
    assert any(isinstance(effect, SetTimer) for effect in effects)
    _, again = bank.timer(Resend("telco"))
    taken = [telco.receive(envelope) for envelope in sent(again)]
    assert [body for bodies, _ in taken for body in bodies] == [Abort(reason="enough")]
    for _, answers in taken:
        for answer in sent(answers):
            bank.receive(answer)
    assert bank.idle


def test_an_abort_outside_the_order_is_delivered_and_nothing_else_is() -> None:
    bank = mailbox("bank", "telco")
    [envelope] = sent(mailbox("telco", "bank").send("bank", numbered(1)))

    def unsequenced(body: Body) -> Envelope:
        header = envelope.header.model_copy(update={"sequence": 0, "kind": body.kind})
        return Envelope(header, body)

    abort = Abort(reason="no such session here")
    assert bank.receive(unsequenced(abort))[0] == [abort]
    assert bank.receive(unsequenced(numbered(1)))[0] == []
    assert bank.receive(envelope)[0] == [numbered(1)]


def test_repetitions_are_dropped_and_acknowledged_again() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    [envelope] = sent(bank.send("telco", numbered(1)))
    assert telco.receive(envelope)[0] == [numbered(1)]
    bodies, effects = telco.receive(envelope)
    assert bodies == []
    assert [envelope.header.acknowledged for envelope in sent(effects)] == [1]


def test_what_comes_too_early_waits_for_the_gap_to_close() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    first, second, third = (sent(bank.send("telco", numbered(n)))[0] for n in range(3))
    assert telco.receive(third)[0] == []
    assert telco.receive(second)[0] == []
    assert telco.receive(first)[0] == [numbered(0), numbered(1), numbered(2)]


def piece(number: int, size: int) -> GradientBroadcast:
    rows = Array.of(np.zeros(1, np.uint32))
    payload = {"pairs": Array.of(np.full(size, number % 256, np.uint8))}
    return GradientBroadcast(tree=0, piece=number, rows=rows, payload=payload)


def test_a_broadcast_of_eighty_full_pieces_may_arrive_last_piece_first() -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    bodies = [piece(number, 1_000_000) for number in range(80)]
    envelopes = [sent(bank.send("telco", body))[0] for body in bodies]
    for envelope in reversed(envelopes[1:]):
        assert telco.receive(envelope)[0] == []
    assert telco.receive(envelopes[0])[0] == bodies


@examples(60)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    seed=st.integers(0, 2**32 - 1),
    most=st.integers(1, 20_000),
)
def test_a_peer_makes_a_mailbox_keep_no_more_than_its_limit(
    sizes: list[int], seed: int, most: int
) -> None:
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    bodies = [piece(number, size) for number, size in enumerate([0, *sizes])]
    first, *others = (sent(bank.send("telco", body))[0] for body in bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mailbox_module, "_EARLY_BYTES", most)
        for number in np.random.default_rng(seed).permutation(len(others)):
            assert telco.receive(others[number])[0] == []
        taken = telco.receive(first)[0]  # what was kept comes to light, up to the first gap
        assert sum(len(pack(envelope).body) for envelope in others[: len(taken) - 1]) <= most
        for _ in bodies:  # whatever was not kept is sent again, and the limit is free for it
            for envelope in others[len(taken) - 1 :]:
                taken += telco.receive(envelope)[0]
    assert taken == bodies


def test_a_flood_behind_a_gap_takes_no_more_memory_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox_module, "_EARLY_BYTES", 4_000_000)
    bank, telco = mailbox("bank", "telco"), mailbox("telco", "bank")
    bank.send("telco", numbered(0))
    tracemalloc.start()
    for number in range(100):
        [envelope] = sent(bank.send("telco", piece(number, 200_000)))
        bank.stop_resending("telco")  # the sender forgets it, so that only the other side holds it
        assert telco.receive(envelope)[0] == []
        del envelope
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 3_500_000 < held < 4_500_000


@pytest.mark.parametrize("most", [0, 60])
def test_messages_beyond_the_limit_arrive_all_the_same(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(mailbox_module, "_EARLY_BYTES", most)
    post = Post(seed=3, drop=0.2, repeat=0.2, delay=2)
    for number in range(100):
        post.send("bank", numbered(number))
    post.run(3000)
    assert post.taken["telco"] == [numbered(number) for number in range(100)]
    assert not post.lost


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sender": "stranger"}, "stranger takes no part"),
        ({"sender": "telco"}, "telco takes no part"),
        ({"sequence": 5000}, "does not fit the session's order"),
        ({"acknowledged": 1}, "does not fit the session's order"),
    ],
)
def test_what_cannot_come_from_a_peer_is_refused_and_changes_nothing(
    change: dict[str, Any], reason: str
) -> None:
    telco = mailbox("telco", "bank")
    [right] = sent(mailbox("bank", "telco").send("telco", numbered(1)))
    wrong = replace(right, header=right.header.model_copy(update=change))
    with pytest.raises(MessageError, match=reason):
        telco.receive(wrong)
    assert telco.receive(right)[0] == [numbered(1)]


def test_ids_of_messages_are_unique_and_name_session_attempt_and_parties() -> None:
    bank, telco = mailbox("bank", "telco", "shop"), mailbox("telco", "bank")
    envelopes = [
        *sent(bank.send("telco", numbered(1))),
        *sent(bank.send("telco", numbered(2))),
        *sent(bank.send("shop", numbered(1))),
    ]
    for envelope in (envelopes[0], envelopes[0], envelopes[1], envelopes[1]):
        envelopes += sent(telco.receive(envelope)[1])
    ids = [envelope.header.id for envelope in envelopes]
    assert ids[:3] == ["session/1/bank/telco/1", "session/1/bank/telco/2", "session/1/bank/shop/1"]
    assert len(ids) == len(set(ids)) == 5


@pytest.mark.parametrize("wrong", [{"first": 0}, {"factor": 0.5}, {"resends": -1}, {"retry": 1}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


def test_what_is_sent_again_says_so() -> None:
    bank = mailbox("bank", "telco")
    first = bank.send("telco", numbered(1))

    _, second = bank.timer(Resend("telco"))

    handed = [effect for effect in (*first, *second) if isinstance(effect, Transmit)]
    assert [effect.again for effect in handed] == [False, True]
