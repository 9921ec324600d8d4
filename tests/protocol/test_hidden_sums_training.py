"""A training whose sums nobody sees, message by message: the plain model, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import NEWEST, OLDEST
from fedmq.boosting.splits import CategorySet
from fedmq.errors import ConfigError
from fedmq.messages import training
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.protocol.training.active_growth import check_decoys
from tests.how_often import seldom, seldom_several
from tests.protocol.dealt_shares_engine import DealtShares
from tests.protocol.federation import ACTIVE, Federation, joined, shares, small
from tests.simulator import Link, Simulation

pytestmark = pytest.mark.usefixtures("short_exponents")

HIDDEN = Lattice(sums="hidden")
OU = OkamotoUchiyama(key_bits=576, allow_weak_keys=True, sums="hidden")
PAILLIER = Paillier(key_bits=512, allow_weak_keys=True, sums="hidden")


def dealt(**params: Any) -> Federation:
    """A federation whose gains take the smallest circuits, unless it says otherwise."""
    return small(**{"xgboost_arithmetic": OLDEST, **params})


BANK, TELCO = ("bank_secret_name_{}".format, "telco.telco_secret_name_{}".format)
UNNUMBERED = {"record": None}

MONOTONE = {"monotone_constraints": {BANK(0): 1, TELCO(0): -1, TELCO(1): 1}}
TOGETHER = {"interaction_constraints": [[BANK(0), TELCO(0)], [BANK(1), TELCO(0), TELCO(1)]]}
ALL_RULES = MONOTONE | TOGETHER | {"reg_alpha": 0.1, "max_delta_step": 0.9}


@pytest.mark.parametrize(
    "params",
    [
        {"reg_lambda": 0.0, "min_child_weight": 0.0, "gamma": 0.3},
        *seldom(
            {"gradient_bits": 6, "active_only_trees": 1, "num_boost_round": 3},
            {"subsample": 0.7, "colsample_bytree": 0.6},
            {"objective": "reg:squarederror", "max_leaves": 5},
            {"max_depth": 5, "num_boost_round": 1},
            {"reg_lambda": 0.3, "min_child_weight": 3.0},
            {"colsample_bylevel": 0.6, "colsample_bynode": 0.7},
            {"goss": True, "num_boost_round": 4},
            {"early_stopping_rounds": 1, "num_boost_round": 6, "eta": 1.0},
            {"num_parallel_tree": 2, "booster": "dart", "rate_drop": 0.5},
        ),
    ],
    ids=str,
)
def test_the_model_is_the_plain_engines(params: dict[str, Any]) -> None:
    federation = dealt(counts=(2, 2), **params)
    assert shares(federation.having(engine=HIDDEN).train()) == shares(federation.train())


@pytest.mark.parametrize(("counts", "covert"), [((1, 2), 2), *seldom_several(((1, 2, 2), 3))])
def test_copies_of_circuits_grow_the_same_model(counts: tuple[int, ...], covert: int) -> None:
    federation = dealt(counts=counts, num_boost_round=1, max_depth=2)
    engine = Lattice(sums="hidden", covert=covert)
    assert shares(federation.having(engine=engine).train()) == shares(federation.train())


@pytest.mark.parametrize("arithmetic", [NEWEST, *seldom(OLDEST)])
@pytest.mark.parametrize(
    "params",
    [
        {**ALL_RULES, "max_depth": 2},
        *seldom(
            {},
            ALL_RULES,
            {"reg_alpha": 0.3, "max_delta_step": 0.6},
            {"reg_alpha": 2.0, "reg_lambda": 0.0},
            {"max_delta_step": 0.2},
            MONOTONE,
            TOGETHER,
            MONOTONE | TOGETHER,
            {"interaction_constraints": [[BANK(0)], [TELCO(1)]], "max_depth": 4},
            {"reg_lambda": 1e-20, "min_child_weight": 0.3},
            {"reg_lambda": 3e9},
            {"objective": "reg:squarederror", "max_delta_step": 0.5, **MONOTONE},
            {"colsample_bynode": 0.7, **MONOTONE, **TOGETHER},
            {**ALL_RULES, "min_child_weight": 0.0, "num_boost_round": 2},
        ),
    ],
    ids=str,
)
def test_the_model_is_the_plain_engines_by_every_rule(
    params: dict[str, Any], arithmetic: str
) -> None:
    chosen = {"num_boost_round": 1, "xgboost_arithmetic": arithmetic, **params}
    federation = dealt(counts=(2, 2), **chosen)
    assert shares(federation.having(engine=DealtShares()).train()) == shares(federation.train())


@pytest.mark.long
def test_gains_of_xgboost_3_4_go_through_the_filter() -> None:
    federation = dealt(counts=(1, 4), num_boost_round=1, max_depth=1, xgboost_arithmetic=NEWEST)
    assert shares(federation.having(engine=DealtShares()).train()) == shares(federation.train())


@pytest.mark.parametrize("engine", seldom(HIDDEN, OU, PAILLIER), ids=lambda engine: engine.name)
@pytest.mark.parametrize("arithmetic", [OLDEST, NEWEST])
def test_every_rule_with_every_engine(engine: Engine, arithmetic: str) -> None:
    federation = dealt(counts=(2, 2, 1), xgboost_arithmetic=arithmetic, **ALL_RULES)
    assert shares(federation.having(engine=engine).train()) == shares(federation.train())


@pytest.mark.parametrize(
    "params", [{"num_boost_round": 1}, *seldom({}, {"max_depth": 2, "gamma": 0.5})], ids=str
)
def test_a_tree_that_grows_by_gains_is_the_plain_engines(params: dict[str, Any]) -> None:
    """Its splits are numbered otherwise: in which order gains would have them is not known."""
    federation = dealt(counts=(2, 2), grow_policy="lossguide", **params)
    trained = [federation.having(engine=DealtShares()).train(), federation.train()]
    hidden, plain = (
        [replace(tree, tree=tree.tree.model_copy(update=UNNUMBERED)) for tree in trees]
        for trees in (joined(federation, simulation) for simulation in trained)
    )
    assert list(map(repr, hidden)) == list(map(repr, plain))


@pytest.mark.long
def test_a_column_of_a_chain_keeps_its_constraint() -> None:
    named = {"telco.telco_secret_name_0": 1, "shop.shop_secret_name_0": -1}
    federation = dealt(counts=(1, 2, 2), num_boost_round=1, monotone_constraints=named)
    assert shares(federation.having(engine=DealtShares()).train()) == shares(federation.train())


@pytest.mark.parametrize("counts", [(1, 3), *seldom((1, 2, 2))], ids=str)
def test_nodes_of_wide_tables_are_compared_a_few_at_a_time(
    counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups are under way at most: of one node each, as none fits with another one."""
    monkeypatch.setattr("fedmq.protocol.training.comparisons._MOST_INSTANCES", 20)
    federation = dealt(counts=counts, num_boost_round=1, max_depth=4)
    said: list[Envelope] = []
    trained = federation.having(engine=DealtShares()).train(tap=said.append)
    pieces = [each.body for each in said if isinstance(each.body, training.CircuitPiece)]
    groups = {piece.level for piece in pieces if piece.level}
    assert len(groups) > 8
    assert {len(group) for group in groups} == {1}
    assert shares(trained) == shares(federation.train())


def test_a_level_of_many_candidates_is_compared_in_two_halves_that_talk_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.protocol.training.comparisons._WORTH_HALVING", 20)
    federation = dealt(counts=(1, 3), num_boost_round=1, max_depth=3)
    said: list[tuple[float, Body]] = []
    simulation = Simulation(
        federation.having(engine=DealtShares()).training(),
        tap=lambda envelope: said.append((simulation.now, envelope.body)),
    )
    simulation.run()
    pieces = [body for _, body in said if isinstance(body, training.CircuitPiece)]
    sizes = [len(piece.level) for piece in pieces if piece.level]
    assert sizes == [1, 1, 1, 2, 2]
    assert shares(simulation) == shares(federation.train())

    # A message takes a millisecond here, and a computation none: a level takes eight ways there
    # and back, halved or not.
    began, ended = (
        next(when for when, body in said if isinstance(body, kind))
        for kind in (training.TreeStarted, training.TreeFinished)
    )
    assert (ended - began) / 0.002 == pytest.approx(8 * federation.params.max_depth, abs=1)


@pytest.mark.parametrize(
    "counts",
    seldom((0, 3), (3, 0), (1, 1), (2, 2, 1), (1, 2, 2, 2), (2, 0, 2), (2, 2, 0), (0, 0, 1, 1)),
    ids=str,
)
def test_whoever_holds_the_columns(counts: tuple[int, ...]) -> None:
    federation = dealt(counts=counts)
    assert shares(federation.having(engine=HIDDEN).train()) == shares(federation.train())


@pytest.mark.parametrize(
    "engine", [OU, *seldom(DealtShares(), PAILLIER)], ids=lambda engine: engine.name
)
@pytest.mark.parametrize("counts", [(2, 2), *seldom((0, 3), (1, 2, 1), (1, 2, 2, 2))], ids=str)
def test_whatever_the_shares_come_from(engine: Engine, counts: tuple[int, ...]) -> None:
    federation = dealt(counts=counts)
    assert shares(federation.having(engine=engine).train()) == shares(federation.train())


@pytest.mark.parametrize(
    ("engine", "params"),
    [
        *seldom_several(
            (OU, {"objective": "reg:squarederror", "subsample": 0.7, "colsample_bynode": 0.6}),
            (PAILLIER, {"gradient_bits": 4, "num_boost_round": 2}),
            (OU, {"reg_lambda": 0.0, "min_child_weight": 0.0, "gamma": 0.3}),
            (PAILLIER, {"max_leaves": 5, "colsample_bytree": 0.6}),
        ),
    ],
    ids=lambda case: str(case) if isinstance(case, dict) else case.name,
)
def test_the_model_of_hidden_ciphers_is_the_plain_engines(
    engine: Engine, params: dict[str, Any]
) -> None:
    federation = dealt(counts=(2, 2), **params)
    assert shares(federation.having(engine=engine).train()) == shares(federation.train())


def test_candidates_that_tie_are_taken_in_the_order_of_columns() -> None:
    federation = dealt(rows=40, counts=(1, 6), max_depth=2, gradient_bits=2, num_boost_round=2)
    columns = federation.columns["telco"]
    alike = federation.having(columns={**federation.columns, "telco": columns[:, [0] * 6]})
    assert shares(alike.having(engine=OU).train()) == shares(alike.train())


@pytest.mark.long
def test_a_table_of_500_columns() -> None:
    federation = dealt(rows=40, counts=(1, 500), max_bin=3, max_depth=2, num_boost_round=1)
    assert shares(federation.having(engine=OU).train()) == shares(federation.train())


def test_with_weights_and_merged_cells() -> None:
    federation = dealt(counts=(2, 2))
    weight = np.random.default_rng(3).uniform(0, 3, len(federation.label)).astype(np.float32)
    federation = federation.having(weight=weight, smallest_cell={"telco": 12})
    shown = federation.having(engine=Lattice()).train()
    assert shares(federation.having(engine=HIDDEN).train()) == shares(shown)


@pytest.mark.long
def test_over_a_bad_link() -> None:
    federation = dealt(counts=(1, 3))
    link = Link(drop=0.1, repeat=0.2, delay=1.0)
    hidden = federation.having(engine=HIDDEN).train(seed=5, link=link)
    assert shares(hidden) == shares(federation.train())


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (
            {"grow_policy": "lossguide", "max_leaves": 4},
            "grow_policy = lossguide with max_leaves: which node is split next",
        ),
        ({"multi_strategy": "multi_output_tree", "num_class": 3}, "multi_strategy"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_what_the_circuits_do_not_compute_is_refused_by_name(
    params: dict[str, Any], why: str
) -> None:
    if "num_class" in params:
        params = {**params, "objective": "multi:softprob", "base_score": None}
    with pytest.raises(ConfigError, match=f"engine lattice: {why}"):
        dealt(counts=(2, 2), **params).having(engine=HIDDEN).training()


@pytest.mark.parametrize("engine", [OU, PAILLIER], ids=lambda engine: engine.name)
def test_engines_of_ciphers_refuse_the_same(engine: Engine) -> None:
    vectors = {"multi_strategy": "multi_output_tree", "num_class": 3}
    params = {**vectors, "objective": "multi:softprob", "base_score": None}
    why = f"engine {engine.name}: multi_strategy = multi_output_tree: .* 1.5 MB a candidate"
    with pytest.raises(ConfigError, match=why):
        dealt(counts=(2, 2), **params).having(engine=engine).training()


def test_there_are_no_decoys_of_decisions_that_circuits_prove() -> None:
    with pytest.raises(ConfigError, match="decoys: engine 'ou' hides sums"):
        check_decoys(OU)


@pytest.mark.parametrize("directions", ["oblivious", *seldom("all")])
def test_no_message_but_the_first_tells_of_sums_being_shown(directions: Any) -> None:
    said: list[Envelope] = []
    engine = Lattice(sums="hidden", directions=directions)
    dealt(counts=(2, 2), num_boost_round=1).having(engine=engine).train(tap=said.append)
    [opening] = [
        envelope.body for envelope in said if isinstance(envelope.body, training.TrainingOpen)
    ]
    assert opening.sums == "hidden"
    begun = [
        envelope.body.level
        for envelope in said
        if isinstance(envelope.body, training.CircuitPiece) and envelope.body.level
    ]
    assert begun[:2] == [(1,), (2, 3)]


def named(body: training.SplitDecision) -> Body:
    return body.model_copy(update={"candidates": Array.of(np.zeros(1, np.uint32))})


def compared_twice(body: training.CircuitPiece) -> Body:
    return body.model_copy(update={"level": (*body.level, *body.level)}) if body.level else body


def compared_unasked(body: training.CircuitPiece) -> Body:
    return body.model_copy(update={"level": (*body.level, 7)}) if body.level else body


def by_another_rule(body: training.CircuitPiece) -> Body:
    told = {"bytes": Array.of(np.frombuffer(b"3.4 dual", np.uint8))}
    return body.model_copy(update={"payload": told}) if body.level else body


def signed(body: training.SplitOutcome) -> Body:
    return body.model_copy(update={"sign": 1})


def too_long(body: training.CircuitPiece) -> Body:
    filled = {"bytes": Array.of(np.zeros(900_000, np.uint8))}
    return body.model_copy(update={"payload": filled}) if body.parcel else body


@pytest.mark.parametrize(
    ("kind", "sender", "change", "why"),
    [
        (training.SplitDecision, ACTIVE, named, "which this party has not won"),
        (training.CircuitPiece, ACTIVE, compared_twice, "comparison of node 1, which is not due"),
        (training.CircuitPiece, ACTIVE, compared_unasked, "comparison of node 7, which is not due"),
        (training.CircuitPiece, ACTIVE, by_another_rule, "by rules that this party does not know"),
        (training.SplitOutcome, "telco", signed, "constraints on the column of node 1, out of"),
        (training.CircuitPiece, ACTIVE, too_long, "bytes or more about node 1; they take"),
        (training.CircuitPiece, "telco", too_long, "no rows of the node have these sums"),
    ],
    ids=[
        "named",
        "compared twice",
        "compared unasked",
        "another rule",
        "a sign",
        "too long",
        "too long an answer",
    ],
)
def test_who_breaks_the_protocol_of_comparisons_ends_the_session(
    kind: type[Body], sender: str, change: Callable[[Any], Body], why: str
) -> None:
    def rewrite(envelope: Envelope) -> Body:
        ours = isinstance(envelope.body, kind) and envelope.header.sender == sender
        return change(envelope.body) if ours else envelope.body

    federation = dealt(counts=(0, 2), num_boost_round=1).having(engine=HIDDEN)
    simulation = federation.train(rewrite=rewrite)
    [other] = {ACTIVE, "telco"} - {sender}
    assert why in str(simulation.errors[other])


@pytest.mark.parametrize(
    ("announced", "places", "why"),
    [
        (False, (0, 1), "categories of the candidates of node 1, out of place"),
        (True, (1, 0), "categories of node 1 in another order than its candidates"),
        (True, (0, 1), "telco gave up: bank broke the protocol: circuits of node 1: circuits that"),
    ],
)
def test_categories_of_a_column_that_are_none_end_the_session(
    announced: bool, places: tuple[int, ...], why: str
) -> None:
    def telling(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, training.SessionAccept):
            return body.model_copy(update={"by_sets": announced})
        if isinstance(body, training.HistogramReply):
            both = (Array.of(np.array(places, np.uint32)),)
            return body.model_copy(update={"categories": both})
        return body

    made = dealt(counts=(1, 2), num_boost_round=1, max_cat_to_onehot=4).having(engine=OU)
    simulation = made.train(rewrite=telling)
    assert why in str(simulation.errors[ACTIVE])


def test_circuits_that_tell_a_set_of_no_categories_end_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def a_set(_: LevelGarbler, __: Any) -> list[CategorySet]:
        return [CategorySet(np.array([0], np.uint32), default_left=True)]

    monkeypatch.setattr(LevelGarbler, "named", a_set)
    simulation = dealt(counts=(0, 2), num_boost_round=1).having(engine=HIDDEN).train()
    why = "a split of node 1 by an invalid set of categories"
    assert why in str(simulation.errors["telco"])


def test_circuits_that_name_a_candidate_beyond_the_last_end_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = LevelGarbler.winners

    def beyond(garbler: LevelGarbler, parcel: Any) -> Any:
        won, index = honest(garbler, parcel)
        return won, np.where(won, 2**20, index)

    monkeypatch.setattr(LevelGarbler, "winners", beyond)
    simulation = dealt(counts=(0, 2), num_boost_round=1).having(engine=HIDDEN).train()
    assert "a split of node 1 by a candidate that it lacks" in str(simulation.errors["telco"])
