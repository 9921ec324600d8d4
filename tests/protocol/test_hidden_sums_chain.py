"""Several passive parties find winners whose sums nobody sees: each hands on to the next."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import OLDEST
from fedmq.errors import Aborted
from fedmq.messages import training
from fedmq.messages.array import Array, unpack_payload
from fedmq.messages.body import Abort, Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engines.lattice import Lattice
from fedmq.protocol.machine import Machine
from tests.how_often import each_seed, seldom
from tests.protocol.federation import ACTIVE, Federation, ran, shares, small
from tests.simulator import Link, Simulation

pytestmark = pytest.mark.usefixtures("short_exponents")

HIDDEN = Lattice(sums="hidden")


def plain(**params: Any) -> Federation:
    few = {"counts": (1, 2, 2), "num_boost_round": 1, "max_depth": 2}
    return small(**few | {"xgboost_arithmetic": OLDEST} | params)


def hidden(**params: Any) -> Federation:
    return plain(**params).having(engine=HIDDEN)


@cache
def shares_handed_on(_: int) -> tuple[Envelope, ...]:
    """What passive parties of four say to one another in one of several trainings."""
    said: list[Envelope] = []
    simulation = hidden(counts=(1, 1, 1, 1), max_bin=4).train(tap=said.append)
    assert not simulation.errors
    return tuple(envelope for envelope in said if isinstance(envelope.body, HANDED))


HANDED = training.BestSoFar


@pytest.mark.parametrize(
    "counts",
    [(0, 0, 1, 1), *seldom((2, 2, 1), (1, 2, 2, 2), (2, 0, 2), (2, 2, 0), (0, 2, 0, 2))],
    ids=str,
)
def test_whoever_holds_the_columns_the_model_is_the_plain_engines(counts: tuple[int, ...]) -> None:
    chained, alone = hidden(counts=counts, max_depth=3), plain(counts=counts, max_depth=3)
    assert shares(chained.train()) == shares(alone.train())


@pytest.mark.parametrize(
    "params",
    [
        *seldom(
            {"objective": "reg:squarederror", "max_leaves": 5},
            {"reg_lambda": 0.0, "min_child_weight": 0.0, "gamma": 0.3},
            {"max_depth": 4, "num_boost_round": 2},
            {"colsample_bytree": 0.6, "colsample_bynode": 0.6, "subsample": 0.8},
            {"active_only_trees": 1, "num_boost_round": 2, "gradient_bits": 6},
        ),
    ],
    ids=str,
)
def test_with_any_parameters(params: dict[str, Any]) -> None:
    assert shares(hidden(**params).train()) == shares(plain(**params).train())


@pytest.mark.long
def test_columns_that_are_the_same_are_split_by_the_first_party_that_has_them() -> None:
    dealt = plain(counts=(1, 2, 2, 2), max_depth=3)
    copied = {**dealt.columns, "shop": dealt.columns["telco"], "clinic": dealt.columns["telco"]}
    dealt = dealt.having(columns=copied)
    simulation = dealt.having(engine=HIDDEN).train()
    assert shares(simulation) == shares(dealt.train())
    [tree] = simulation.results[ACTIVE].trees
    assert set(tree.owner.tolist()) <= {-1, 0, 1}
    assert (tree.owner == 1).sum() > 1


@each_seed(2, often=1)
def test_over_a_bad_link(seed: int) -> None:
    link = Link(drop=0.1, repeat=0.2, delay=2.0)
    simulation = hidden(num_boost_round=2).train(seed=seed, link=link)
    assert shares(simulation) == shares(plain(num_boost_round=2).train())


def test_each_party_hands_on_to_the_next_and_nobody_hands_on_anything_else() -> None:
    ways = defaultdict(list)
    for envelope in shares_handed_on(0):
        ways[envelope.header.sender, envelope.header.recipient].append(envelope.body.node)
    assert ways == {("telco", "shop"): [1, 2], ("shop", "clinic"): [1, 2]}


def test_what_is_handed_on_is_as_long_as_it_says_and_random() -> None:
    """32 bits of a gain, and one or two that say whose it is, of one node and of two."""
    once, again = (
        [unpack_payload(envelope.body.payload)["bytes"] for envelope in shares_handed_on(training)]
        for training in (0, 1)
    )
    assert sorted(map(len, once)) == [5, 5, 9, 9]
    assert abs(np.unpackbits(np.concatenate([*once, *again])).mean() - 0.5) < 0.12
    assert not {share.tobytes() for share in once} & {share.tobytes() for share in again}


def told_otherwise(
    federation: Federation, sender: str, recipient: str, body: Body, after: type[Body]
) -> Simulation:
    """``sender`` says ``body`` as well, when it first sends an ``after``."""
    machines: dict[str, Machine] = federation.training()
    simulation: Simulation

    def tap(envelope: Envelope) -> None:
        if isinstance(envelope.body, after) and envelope.header.sender == sender and not done:
            done.append(envelope)
            simulation.send(sender, recipient, body)

    done: list[Envelope] = []
    simulation = Simulation(machines, tap=tap)
    simulation.run()
    assert done
    return simulation


@pytest.mark.parametrize(
    "body",
    [
        training.SplitDecision(tree=0, node=1, candidates=Array.of(np.zeros(1, np.uint32))),
        training.TreeFinished(tree=0),
        training.HistogramRequest(tree=0, round=0, nodes=(training.NodeQuery(node=1, pieces=1),)),
    ],
    ids=lambda body: body.kind,
)
def test_a_passive_party_takes_no_orders_from_another(body: Body) -> None:
    simulation = told_otherwise(hidden(), "telco", "shop", body, HANDED)
    reason = f"telco broke the protocol: {body.kind} from telco, which may not send it"
    assert reason in str(simulation.errors["shop"])
    assert isinstance(simulation.errors[ACTIVE], Aborted)


def test_the_active_party_hands_on_nothing() -> None:
    share = HANDED(tree=0, node=1, payload={})
    simulation = told_otherwise(hidden(), ACTIVE, "shop", share, training.CircuitPiece)
    assert "shares of node 1, out of place" in str(simulation.errors["shop"])


def test_that_another_passive_party_gives_up_is_heard_of_the_active_party() -> None:
    simulation = told_otherwise(hidden(), "telco", "shop", Abort(reason="tired"), HANDED)
    assert not simulation.errors


def test_shares_that_nobody_waits_for_lie_there_and_others_in_their_place_end_the_session() -> None:
    share = HANDED(tree=0, node=99, payload={})
    assert not told_otherwise(hidden(), "telco", "shop", share, HANDED).errors
    for wrong in (HANDED(tree=0, node=1, payload={}), HANDED(tree=7, node=1, payload={})):
        simulation = told_otherwise(hidden(), "telco", "shop", wrong, HANDED)
        assert set(simulation.errors) == {ACTIVE, "telco", "shop"}


def test_a_share_of_another_length_ends_the_session() -> None:
    def rewrite(envelope: Envelope) -> Body:
        if not isinstance(envelope.body, HANDED):
            return envelope.body
        return envelope.body.model_copy(update={"payload": {}})

    simulation = ran(hidden().training(), rewrite=rewrite)
    assert "a parcel" in str(simulation.errors["shop"])
    assert set(simulation.errors) == {ACTIVE, "telco", "shop"}


def test_a_chain_that_is_not_the_sessions_is_refused() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, training.CircuitPiece) and body.chain:
            return body.model_copy(update={"chain": body.chain[::-1]})
        return body

    simulation = ran(hidden().training(), rewrite=rewrite)
    assert "a chain of parties that differs from the session's" in str(simulation.errors[ACTIVE])


def test_a_party_that_was_not_told_who_takes_part_refuses() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, training.TrainingOpen):
            return body.model_copy(update={"chain": ("telco", "clinic")})
        return body

    simulation = ran(hidden().training(), rewrite=rewrite)
    assert "does not know the other parties" in str(simulation.errors[ACTIVE])
