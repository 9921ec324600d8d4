"""Sealed scores are those of mode hop but for the last digits, and no message tells a way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.errors import ProtocolError, Refused
from fedmq.messages.array import Array
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import (
    HopReply,
    InferenceHop,
    InferenceOpen,
    InferenceRows,
    SealedAnswer,
    SealedLink,
    SealedQuery,
)
from fedmq.protocol.events import Received, Send
from fedmq.protocol.inference import sealed_active
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.machine import run_inline
from tests.how_often import seldom_several
from tests.protocol.federation import ACTIVE, Federation, ran, small
from tests.protocol.inspection import Bits, leaks
from tests.simulator import Link, Simulation

ALIKE = 2**-20


def margins(simulation: Simulation) -> np.ndarray:
    assert not simulation.errors
    return np.asarray(simulation.results[ACTIVE].margins)


def check_alike(federation: Federation, **schedule: Any) -> None:
    shares = federation.train().results
    walked = ran(federation.scoring(shares)).results[ACTIVE]
    sealed = ran(federation.sealed_scoring(shares), **schedule)
    scale = np.abs(walked.margins).max()
    assert len(np.unique(walked.margins)) > 3
    assert np.abs(margins(sealed) - walked.margins).max() <= ALIKE * scale
    np.testing.assert_allclose(sealed.results[ACTIVE].predictions, walked.predictions, rtol=1e-5)


@pytest.mark.parametrize(
    ("counts", "params"),
    [
        ((2, 2), {}),
        ((2, 2, 1), {"booster": "dart", "rate_drop": 0.5}),
        ((2, 2, 1, 3), {"num_parallel_tree": 2}),
        *seldom_several(
            ((0, 2, 2), {}),
            ((1, 4), {"max_depth": 6, "num_boost_round": 8}),
            ((2, 2, 1), {"early_stopping_rounds": 1, "num_boost_round": 8}),
            ((2, 2, 1), {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0}),
        ),
    ],
    ids=str,
)
def test_scores_are_those_of_mode_hop(counts: Sequence[int], params: dict[str, Any]) -> None:
    check_alike(small(counts=counts, **{"num_boost_round": 3, **params}))


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_scores_of_several_classes_are_those_of_mode_hop(strategy: str) -> None:
    made = small(counts=(2, 2, 1))
    label = (np.arange(len(made.label)) % 3).astype(np.float32)
    label += np.nan_to_num(made.columns["telco"][:, 0]) > 0
    params = {
        "objective": "multi:softprob",
        "num_class": 3,
        "multi_strategy": strategy,
        "eval_metric": "mlogloss",
    }
    check_alike(made.having(label=np.minimum(label, 2), base_score=None, **params))


def test_parties_lose_and_repeat_messages_and_scores_stay() -> None:
    check_alike(small(num_boost_round=3), link=Link(drop=0.2, repeat=0.3, delay=2.0), seed=4)


@pytest.mark.parametrize("seed", range(4))
def test_workers_finish_questions_in_any_order_and_scores_stay(seed: int) -> None:
    check_alike(small(rows=600, num_boost_round=3), link=Link(delay=5.0), seed=seed)


def test_a_model_of_the_active_party_alone_asks_nobody() -> None:
    federation = small(counts=(3, 0))
    check_alike(federation)


def test_base_margins_begin_where_they_do_in_mode_hop() -> None:
    federation = small()
    shares = federation.train().results
    first = np.linspace(-3, 3, 80, dtype=np.float32)
    machines = federation.scoring(shares)
    values = federation.columns[ACTIVE]
    machines[ACTIVE] = ActiveInference(shares[ACTIVE], values, base_margin=first)
    sealed = ran(federation.sealed_scoring(shares, base_margin=first))
    np.testing.assert_allclose(margins(sealed), margins(ran(machines)), rtol=ALIKE, atol=1e-6)


def test_people_whom_a_party_does_not_know_have_no_score_or_that_of_default_directions() -> None:
    federation = small()
    shares = federation.train().results
    listed = [f"customer {row}" for row in range(80)]
    asked = ["stranger", *listed[1:]]
    for need_not_know in ((), ("telco", "shop")):
        settings: dict[str, Any] = {"partial": True, "need_not_know": need_not_know}
        walking, sealing = (
            federation.scoring(shares, listed),
            federation.sealed_scoring(shares, listed),
        )
        values = federation.columns[ACTIVE]
        walking[ACTIVE] = ActiveInference(shares[ACTIVE], values, asked, **settings)
        sealing[ACTIVE] = ActiveInference(
            shares[ACTIVE], values, asked, sealed=b"a" * 32, **settings
        )
        for peer in ("telco", "shop"):  # both hold the rows in one order
            walking[peer] = federation.scoring(shares, listed[::-1])[peer]
        walked, sealed = ran(walking), ran(sealing)
        assert np.isnan(margins(sealed)[0]) == (not need_not_know)
        assert sealed.results[ACTIVE].unknown["telco"].tolist() == [True] + [False] * 79
        assert np.isnan(walked.results[ACTIVE].margins[0]) == np.isnan(margins(sealed)[0])


# What is seen


def recorded(federation: Federation, shares: Any) -> list[Envelope]:
    envelopes: list[Envelope] = []
    ran(federation.sealed_scoring(shares), tap=envelopes.append)
    return envelopes


def test_no_message_tells_a_direction_or_a_leaf() -> None:
    federation = small(rows=200)
    shares = federation.train().results
    envelopes = recorded(federation, shares)
    kinds = {type(envelope.body) for envelope in envelopes}
    assert kinds >= {SealedQuery, SealedAnswer, SealedLink}
    assert not kinds & {InferenceHop, InferenceRows, HopReply}
    rows = np.arange(200)
    directions = [
        Bits(f"a direction of {peer}", [peer], rows, table.directions(values, rows, at))
        for peer, values in federation.columns.items()
        for table in [shares[peer].lookup_table]
        for record in range(len(table))
        for at in [np.full(200, record)]
    ]
    assert directions
    assert leaks(envelopes, directions) == set()


def test_the_seed_of_masks_between_passive_parties_does_not_come_to_the_active_party() -> None:
    federation = small(counts=(1, 2, 2, 2))
    envelopes = recorded(federation, federation.train().results)
    links = [envelope.header for envelope in envelopes if isinstance(envelope.body, SealedLink)]
    assert [(link.sender, link.recipient) for link in links] == [
        ("telco", "shop"),
        ("shop", "clinic"),
    ]


def test_few_questions_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_active, "_QUESTIONS_AT_ONCE", 1)
    monkeypatch.setattr(sealed_active, "_COMPUTATIONS_AHEAD", 2)
    federation = small(rows=900)
    shares = federation.train().results
    open_now: list[int] = []
    numbers: set[int] = set()

    def watch(envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, SealedQuery) and envelope.header.recipient == "telco":
            numbers.add(body.number)
        if isinstance(body, SealedAnswer) and envelope.header.sender == "shop":
            numbers.discard(body.number)
        open_now.append(len(numbers))

    ran(federation.sealed_scoring(shares), tap=watch)
    assert max(open_now) <= 2


# Parties that lie


def refusal_of(federation: Federation, shares: Any, terms: dict[str, Any]) -> str:
    """Why telco refuses to score on these terms."""
    changed: list[Envelope] = []
    machines = federation.sealed_scoring(shares)
    active = machines[ACTIVE]
    original = active._send

    def lie(recipient: str, body: Any) -> None:
        if isinstance(body, InferenceOpen) and recipient == "telco":
            assert body.sealed is not None
            body = body.model_copy(update={"sealed": body.sealed.model_copy(update=terms)})
        original(recipient, body)

    active._send = lie  # type: ignore[method-assign]
    simulation = ran(machines, tap=changed.append)
    error = simulation.errors["telco"]
    assert isinstance(error, Refused)
    return str(error)


def test_terms_that_do_not_fit_a_share_are_refused() -> None:
    federation = small(num_boost_round=3)
    shares = federation.train().results
    slots = LeafSlots.of(shares[ACTIVE])
    held = slots.ranges[shares[ACTIVE].parties.index("telco")]
    count = len(slots.roots)

    def packed(numbers: Any) -> Array:
        return Array.of(np.asarray(numbers, np.uint32))

    isolated = {
        "starts": packed(2 * np.arange(len(held.record))),
        "middles": packed(2 * np.arange(len(held.record)) + 1),
        "ends": packed(2 * np.arange(len(held.record)) + 2),
        "slots": (2 * len(held.record),),
    }
    for terms, reason in (
        ({"slots": (1,)}, "leave the 1 slots"),
        ({"slots": ()}, "0 leaves; mode 'sealed' takes 1 to"),
        ({"records": packed(held.record + 1000)}, "name a record twice, or none of the"),
        ({"records": packed(held.record * 0)}, "name a record twice, or none of the"),
        ({"records": packed([])}, "differ in number"),
        ({"middles": packed(held.start)}, "are empty, or leave"),
        ({"key": b"short"}, "a key of sealed scores that has another size"),
        ({"chain": ("shop",)}, "lacks this one"),
        ({"chain": ("telco", "stranger")}, "names one that is not known here"),
        ({"chain": ("telco", "telco")}, "names one twice"),
        ({"starts": packed(held.start * 0), "ends": packed(held.end * 0 + count)}, "slots of"),
        (isolated, "beside those of the split above it"),
    ):
        assert reason in refusal_of(federation, shares, terms)


def queries(federation: Federation, shares: Any) -> tuple[Any, list[Received]]:
    """telco's machine, ready to answer, and the first questions that come to it."""
    envelopes = recorded(federation, shares)
    machine = federation.sealed_scoring(shares)["telco"]
    received = [
        Received(envelope.header.sender, envelope.body)
        for envelope in envelopes
        if envelope.header.recipient == "telco"
        and isinstance(envelope.body, InferenceOpen | SealedQuery)
    ]
    simulation = machine.handle(received[0])
    for effect in simulation:
        if not isinstance(effect, Send):
            machine.handle(run_inline(effect))
    return machine, received[1:]


def test_a_question_that_is_asked_again_or_about_a_row_again_is_refused() -> None:
    federation = small(counts=(2, 3))
    shares = federation.train().results
    machine, pieces = queries(federation, shares)
    first = pieces[0]
    for piece in pieces:
        assert piece.body.number == 0
        machine.handle(piece)
    with pytest.raises(ProtocolError, match="out of place, or asked again"):
        machine.handle(first)
    later = Received(ACTIVE, first.body.model_copy(update={"number": 1}))
    with pytest.raises(ProtocolError, match="asks about a row again"):
        machine.handle(later)
    hop = InferenceHop(
        hop=0, records=Array.of(np.zeros(1, np.uint32)), counts=Array.of(np.ones(1, np.uint32)),
        rows=Array.of(np.zeros(1, np.uint32)),
    )  # fmt: skip
    with pytest.raises(ProtocolError, match="asks for directions, and scores are sealed"):
        machine.handle(Received(ACTIVE, hop))


def test_malformed_questions_and_links_out_of_place_are_refused() -> None:
    federation = small(counts=(2, 3))
    machine, [first, *_] = queries(federation, federation.train().results)
    body = first.body
    for changes, reason in (
        ({"rows": Array.of(np.array([80], np.uint32))}, "rows that do not exist"),
        ({"rows": Array.of(np.array([0, 0], np.uint32))}, "asks about a row again"),
        ({"rows": Array.of(np.empty(0, np.uint32))}, "rows that do not exist"),
        ({"piece": 1}, "out of place"),
        ({"words": Array.of(np.zeros((2, 5), np.uint64))}, "another size"),
    ):
        with pytest.raises(ProtocolError, match=reason):
            machine.handle(Received(ACTIVE, body.model_copy(update=changes)))
    with pytest.raises(ProtocolError, match="a link of sealed scores, out of place"):
        machine.handle(Received(ACTIVE, SealedLink(seed=b"s" * 32)))


# Ranges of slots


def test_ranges_allow_each_row_one_slot_of_a_tree() -> None:
    federation = small(num_boost_round=3, max_depth=5)
    shares = federation.train().results
    slots = LeafSlots.of(shares[ACTIVE])
    every = np.ones((80, len(slots.roots)), np.bool_)
    for owner, ranges in slots.ranges.items():
        party = shares[ACTIVE].parties[owner]
        table, values = shares[party].lookup_table, federation.columns[party]
        shape = 80, len(ranges.record)
        rows, records = np.repeat(np.arange(80), shape[1]), np.tile(ranges.record, 80)
        left = table.directions(values, rows, records).reshape(shape)
        allowed = ranges.allowed(left, len(slots.roots))
        assert not allowed.all()
        every &= allowed
    trees = np.searchsorted(slots.forest.roots, slots.roots, side="right")
    for tree in np.unique(trees):
        assert (every[:, trees == tree].sum(axis=1) == 1).all()
