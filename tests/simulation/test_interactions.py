"""Interaction constraints: an owner keeps its columns, the active party learns what holds them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.tree import LEAF
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.computation import Given
from fedmq.errors import ConfigError, FedmqError, Inconsistent, Refused
from fedmq.messages.array import Bitmap
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import HistogramReply, TrainingOpen
from fedmq.protocol.training.claims import CandidateConstraints, shown_constraints
from fedmq.protocol.training.terms import PassiveTable
from tests.boosting.tables import scattered
from tests.how_often import seldom
from tests.protocol.federation import ACTIVE, Federation, names, shares, small

pytestmark = pytest.mark.usefixtures("threads")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
X, Y = scattered(400, 6, seed=5, missing=0.1)


def trained(engine: str = "plain", **params: Any) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine == "ou" else {}
    values = {"num_boost_round": 3, "max_depth": 5, "max_bin": 16, **params}
    return fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        params=fedmq.TrainParams(**values),
        engine=engine,
        **more,
    )


CASES: dict[str, tuple[Any, list[list[int]]]] = {
    "across parties": ([["f0", "f1", "telco.f0"], ["f2", "telco.f2"]], [[0, 1, 3], [2, 5]]),
    "each party alone": ([["*"], ["telco.*"]], [[0, 1, 2], [3, 4, 5]]),
    "overlapping": ([[0, "telco.f1"], ["telco.f1", "telco.f0"]], [[0, 4], [4, 3]]),
    "most columns in none": ([["f0"]], [[0]]),
    "as text": ('[[0, 1], ["telco.f0"]]', [[0, 1], [3]]),
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("growth", [{}, {"grow_policy": "lossguide", "max_leaves": 9}], ids=str)
def test_every_node_is_xgboosts(case: str, growth: dict[str, Any]) -> None:
    asked, together = CASES[case]
    model = trained(interaction_constraints=asked, **growth)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    constraints = {"interaction_constraints": json.dumps(together)}
    reference = train_reference(bins, Y, model.share.params, constraints=constraints)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 30
    free = train_reference(bins, Y, model.share.params)
    assert compare(free, model.joined_trees(), bins).first_difference is not None


def paths(pooled: PooledTree, node: int = 0, above: frozenset[int] = frozenset()) -> Any:
    """The columns on the way to each leaf."""
    tree = pooled.tree
    if tree.left[node] == LEAF:
        yield above
        return
    held = above | {int(pooled.feature[node])}
    yield from paths(pooled, int(tree.left[node]), held)
    yield from paths(pooled, int(tree.right[node]), held)


@pytest.mark.parametrize("case", list(CASES))
def test_only_columns_that_one_constraint_holds_stand_on_a_path(case: str) -> None:
    asked, together = CASES[case]
    grouped = {column for columns in together for column in columns}
    allowed = [*map(set, together), *({column} for column in range(6) if column not in grouped)]
    found: Iterable[frozenset[int]] = [
        path
        for tree in trained(interaction_constraints=asked).joined_trees()
        for path in paths(tree)
    ]
    assert all(any(path <= columns for columns in allowed) for path in found)


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1")])
@pytest.mark.parametrize("case", ["overlapping", *seldom("most columns in none")])
def test_exact_engines_keep_them_alike(engine: str, case: str) -> None:
    asked, _ = CASES[case]
    both = {"interaction_constraints": asked, "monotone_constraints": {"f0": 1, "telco.f1": -1}}
    assert trained(engine, **both).share.dumps() == trained(**both).share.dumps()


@pytest.mark.parametrize("engine", ["smm2", "ldp"])
def test_engines_that_hide_sums_from_the_active_party_refuse_them(engine: str) -> None:
    with pytest.raises(ConfigError, match=f"engine {engine}: interaction_constraints: "):
        trained(engine, interaction_constraints=[["f0"]])


def test_anybody_compares_with_xgboost_under_constraints() -> None:
    params = {
        "interaction_constraints": [["f0", "telco.*"], ["f1"]],
        "monotone_constraints": {"telco.f0": 1},
        "num_boost_round": 3,
        "max_bin": 16,
    }
    found = fedmq.compare_with_xgboost(
        active=X[:, :3], label=Y, passive={"telco": X[:, 3:]}, params=params
    )
    assert found.identical == found.nodes > 30


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "f9",
            ConfigError,
            "active has no column 'f9'; write another party's column as party.column",
        ),
        (3, ConfigError, "active has 3 columns, and no number 3"),
        ("shop.*", ConfigError, r"active has no column 'shop\.\*'"),
        ("telco.f9", Refused, "telco trains with no column 'f9'"),
    ],
)
def test_a_name_that_no_party_has_is_refused(name: Any, error: type[FedmqError], text: str) -> None:
    with pytest.raises(error, match=text):
        trained(interaction_constraints=[["f0", name]])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([[]], "at least 1 item"),
        ([["f0"]] * 64, "at most 63 items"),
        ("f0", "valid tuple"),
        (["f0"], "valid tuple"),
        ([[0.5]], "valid string"),
    ],
    ids=["empty", "too many", "no JSON", "not nested", "no name"],
)
def test_other_forms_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"interaction_constraints = .*{text}"):
        fedmq.TrainParams(interaction_constraints=given)


def grouped(federation: Federation, groups: dict[str, list[str]]) -> Federation:
    """The same, with groups of columns in the file of telco."""
    values = federation.columns["telco"]
    table = PassiveTable(
        values, names("telco", values.shape[1]), "the same ids", column_groups=groups
    )
    return replace(federation, loads={"telco": Given(table)})


SECRET = "telco_secret_name_1"


def test_a_group_of_an_owners_file_stands_for_its_columns() -> None:
    federation = small(rows=200, counts=(2, 2, 1))
    by_name = [["bank_secret_name_0", f"telco.{SECRET}"], ["shop.*"]]
    by_group = [["bank_secret_name_0", "telco.usage"], ["shop.*"]]
    named = federation.having(interaction_constraints=by_name).train()
    held = grouped(federation, {"usage": [SECRET]}).having(interaction_constraints=by_group)
    trees = [
        [tree.model_dump_json() for tree in simulation.results[ACTIVE].trees]
        for simulation in (named, held.train(), federation.train())
    ]
    assert trees[0] == trees[1] != trees[2]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"usage": ["nothing"]}, "column_groups: telco trains with no column 'nothing'"),
        ({SECRET: ["x"], "usage": []}, f"column_groups: telco has a column '{SECRET}', too"),
        ({}, "interaction_constraints: telco trains with no column 'usage'"),
    ],
    ids=["no such column", "a column's name", "no such group"],
)
def test_groups_that_fit_no_columns_are_refused(groups: dict[str, list[str]], text: str) -> None:
    asked = [[f"telco.{SECRET}", "telco.usage"]]
    federation = grouped(small(), groups).having(interaction_constraints=asked)
    assert text in str(federation.train().errors[ACTIVE])


def test_a_column_of_categories_is_named_as_one() -> None:
    columns = ("colour=red", "colour=blue", "size")
    federation = small(counts=(2, 3))
    table = PassiveTable(federation.columns["telco"], columns, "the same ids")
    held = replace(federation, loads={"telco": Given(table)})
    asked = [["telco.colour", "bank_secret_name_0"]]
    apart = [["telco.colour=red", "telco.colour=blue", "bank_secret_name_0"]]
    trees = [
        held.having(interaction_constraints=constraints).train().results[ACTIVE].trees
        for constraints in (asked, apart)
    ]
    first, second = ([tree.model_dump_json() for tree in grown] for grown in trees)
    assert first == second


def test_only_the_owner_reads_a_name_and_only_the_active_party_which_constraints_hold() -> None:
    heard: list[Envelope] = []
    asked = [[f"telco.{SECRET}", "bank_secret_name_0"], ["bank_secret_name_1"]]
    federation = small(rows=120, counts=(2, 2, 1)).having(interaction_constraints=asked)
    shares(federation.train(tap=heard.append))
    for envelope in heard:
        body, recipient = envelope.body, envelope.header.recipient
        if isinstance(body, TrainingOpen):
            assert body.together == (((SECRET,), ()) if recipient == "telco" else ((), ()))
        elif isinstance(body, HistogramReply):
            assert len(body.constraints) == (3 if body.piece == 0 else 0)
            if envelope.header.sender == "shop" and body.constraints:
                assert not any(held.numpy().any() for held in body.constraints[:2])
            if body.node == 1 and body.constraints:
                assert not body.constraints[2].numpy().any()
        else:
            assert SECRET not in repr(body)


def reply(constraints: tuple[Bitmap, ...], node: int = 1) -> HistogramReply:
    return HistogramReply(
        tree=0, node=node, round=0, piece=0, pieces=1, payload={}, constraints=constraints
    )


BITS = tuple(Bitmap.of(np.array(bits, np.bool_)) for bits in ([1, 0, 1], [0, 0, 1], [0, 0, 0]))


@pytest.mark.parametrize(
    ("count", "constraints"),
    [(2, ()), (0, BITS), (3, BITS), (1, BITS), (2, (*BITS[:2], Bitmap.of(np.zeros(2, np.bool_))))],
    ids=["none", "not due", "too few", "too many", "of other lengths"],
)
def test_constraints_that_are_not_due_or_make_no_sense_are_illegal(
    count: int, constraints: tuple[Bitmap, ...]
) -> None:
    with pytest.raises(FedmqError, match="out of place"):
        CandidateConstraints(count).take("telco", reply(constraints), 3)


def test_more_than_candidates_are_refused_before_they_take_memory() -> None:
    with pytest.raises(Inconsistent, match="3 candidates in a node; the party announced at most 2"):
        CandidateConstraints(2).take("telco", reply(BITS), 2)


def test_they_are_as_many_as_candidates() -> None:
    held = CandidateConstraints(2)
    held.take("telco", reply(BITS), 3)
    shown = held.of("telco", 1, 3)
    assert shown.tolist() == [1, 0, 3]
    assert shown_constraints(shown, 2) == BITS
    with pytest.raises(FedmqError, match="constraints of 3 candidates of node 1, which has 4"):
        held.of("telco", 1, 4)
    assert CandidateConstraints(0).of("shop", 1, 2).tolist() == [0, 0]
