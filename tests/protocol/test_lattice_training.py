"""A training with the lattice engine, message by message: the plain model, and hidden rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.splits import depth
from fedmq.errors import FedmqError
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.lattice.parameters import Layout
from tests.how_often import seldom
from tests.protocol.federation import ACTIVE, Federation, shares, small
from tests.simulator import Link

OBLIVIOUS, ALL = Lattice(), Lattice(directions="all")


@pytest.mark.parametrize("counts", [(2, 2, 1), *seldom((2, 3), (0, 3), (1, 1, 1, 2))], ids=str)
@pytest.mark.parametrize(
    "params",
    [
        {"subsample": 0.7, "colsample_bytree": 0.6},
        *seldom({}, {"max_depth": 1}, {"active_only_trees": 1}),
    ],
    ids=str,
)
def test_the_model_is_the_plain_engines_over_a_bad_link(
    counts: tuple[int, ...], params: dict[str, Any]
) -> None:
    federation = small(counts=counts, **params)
    plain = shares(federation.train())
    for seed, engine in enumerate((ALL, OBLIVIOUS)):
        link = Link(drop=0.1, repeat=0.2, delay=1.0 * seed)
        simulation = federation.having(engine=engine).train(seed=seed, link=link)
        assert shares(simulation) == plain


def said_in(federation: Federation) -> list[Envelope]:
    said: list[Envelope] = []
    federation.train(tap=said.append)
    return said


def bodies(said: list[Envelope], kind: type[Body]) -> list[Any]:
    return [envelope.body for envelope in said if isinstance(envelope.body, kind)]


@pytest.mark.parametrize("engine", [OBLIVIOUS, ALL], ids=lambda engine: engine.directions)
def test_no_passive_party_learns_who_stands_in_a_node(engine: Lattice) -> None:
    federation = small(counts=(2, 2, 1)).having(engine=engine)
    said = said_in(federation)
    sent = {type(envelope.body) for envelope in said if envelope.header.sender == ACTIVE}
    assert not sent & {training.NodeAssignment, training.GradientBroadcast}
    queries = bodies(said, training.QueryPiece)
    # What is sent about a node is as long whoever stands in it.
    lengths = {
        tuple(sum(len(array.data) for array in body.payload.values()) for body in pieces)
        for pieces in by_node(queries).values()
    }
    assert len(lengths) == 1
    outcomes = bodies(said, training.SplitOutcome)
    assert {body.left.count for body in outcomes} == {len(federation.label)}
    asked = {(body.tree, body.node) for body in bodies(said, training.DirectionsQuery)}
    split = {(body.tree, body.node) for body in outcomes if body.node > 1}  # all rows are in 1
    assert asked == (split if engine.directions == "oblivious" else set())


def by_node(queries: list[Any]) -> dict[tuple[int, int], list[Any]]:
    pieces: dict[tuple[int, int], list[Any]] = {}
    for body in queries:
        held = pieces.setdefault((body.tree, body.node), [])
        if body.piece == len(held):
            held.append(body)
    return pieces


def test_one_of_two_siblings_is_asked_about_and_all_parties_the_same() -> None:
    said = said_in(small(counts=(1, 2, 2), num_boost_round=1).having(engine=ALL))
    asked: dict[str, dict[int, bytes]] = {}
    for envelope in said:
        body = envelope.body
        if isinstance(body, training.QueryPiece) and body.piece == 0:
            data = body.payload["limbs"].data  # type: ignore[union-attr]
            asked.setdefault(envelope.header.recipient, {})[body.node] = data
    assert asked["telco"] == asked["shop"]
    assert all(node == 1 or node % 2 == 0 for node in asked["telco"])
    assert {depth(node) for node in asked["telco"]} == {0, 1, 2}


def test_gradients_of_few_bits_let_nodes_share_a_question() -> None:
    federation = small(counts=(1, 3), num_boost_round=1, max_depth=4, gradient_bits=4)
    asked = [
        [query.node for query in body.nodes]
        for body in bodies(said_in(federation.having(engine=ALL)), training.HistogramRequest)
    ]
    nodes = {node for level in asked for node in level}
    assert nodes < {1, 2, 4, 6, 8, 10, 12, 14}
    assert len(nodes) <= 5
    assert shares(federation.having(engine=ALL).train()) == shares(federation.train())


def test_only_rows_that_are_learned_from_travel() -> None:
    federation = small().having(engine=ALL)
    learned = int(np.count_nonzero(~federation.evaluation))
    queries = bodies(said_in(federation), training.QueryPiece)
    layout = Layout(learned)
    shapes = {body.payload["limbs"].shape for body in queries}
    assert shapes == {(layout.sent_limbs - layout.sends_half, learned + layout.degree)}
    assert learned < len(federation.label)


def test_in_oblivious_mode_directions_of_other_rows_are_noise() -> None:
    """What is recorded at the active party, beside what the owner's column says."""
    federation = small(rows=2000, counts=(0, 1), num_boost_round=1, max_depth=2)
    shown, hidden = (
        {body.node: body.left.numpy() for body in bodies(said_in(said), training.SplitOutcome)}
        for said in (federation.having(engine=engine) for engine in (ALL, OBLIVIOUS))
    )
    assert shown.keys() == hidden.keys() > {1}
    assert (hidden.pop(1) == shown[1]).all()  # where all rows stand
    for node, left in hidden.items():
        assert abs((left == shown[node]).mean() - 0.5) < 0.06


@pytest.mark.parametrize(
    "change",
    [
        lambda body: replace_in(body, tree=body.tree + 1),
        lambda body: replace_in(body, piece=body.piece + 1),
        lambda body: replace_in(body, payload={}),
    ],
    ids=["another tree", "another piece", "nothing"],
)
def test_a_malformed_question_about_directions_ends_the_session(change: Any) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        return change(body) if isinstance(body, training.DirectionsQuery) else body

    simulation = small(counts=(0, 3)).having(engine=OBLIVIOUS).train(rewrite=rewrite)
    assert set(simulation.errors) >= {"telco"}
    assert all(isinstance(error, FedmqError) for error in simulation.errors.values())
    assert not simulation.results


def replace_in(body: Body, **changes: Any) -> Body:
    return body.model_copy(update=changes)


@pytest.mark.parametrize("kind", [training.QueryPiece, training.HistogramReply])
@pytest.mark.parametrize("cut", ["limbs", "sums", "numbers"])
def test_a_truncated_query_or_answer_ends_the_session(kind: type[Body], cut: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, kind) or cut not in body.payload:  # type: ignore[attr-defined]
            return body
        payload = dict(body.payload)  # type: ignore[attr-defined]
        array = payload[cut].numpy()[..., :-1].copy()
        payload[cut] = type(payload[cut]).of(array)
        return replace_in(body, payload=payload)

    federation = small(counts=(0, 3)).having(engine=ALL)
    fits = (cut == "limbs") == (kind is training.QueryPiece)
    simulation = federation.train(rewrite=rewrite)
    assert bool(simulation.errors) == fits
