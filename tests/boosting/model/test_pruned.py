"""A model without the other parties' splits: each of them is a leaf with the mean below it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

import fedmq
from fedmq.boosting.model.pruned import pruned_to_own
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, Tree
from fedmq.simulation.model import scored

X, Y = load_breast_cancer(return_X_y=True)
X = X.astype(np.float32)
HELD = np.arange(len(Y)) % 4 == 0
PARAMS: dict[str, Any] = {"num_boost_round": 8, "max_depth": 3, "max_bin": 32}


def trained(passive: dict[str, np.ndarray], **params: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[~HELD, :10],
        label=Y[~HELD],
        passive={party: columns[~HELD] for party, columns in passive.items()},
        params=PARAMS | params,
        engine="plain",
    )


def expected(tree: Tree, node: int, row: np.ndarray, share: ActiveShare) -> Any:
    """What TreeSHAP expects of a ``row`` of which the active party's columns alone are known."""
    if tree.owner[node] == LEAF:
        return np.float64(tree.weight[node])
    left, right = int(tree.left[node]), int(tree.right[node])
    if tree.owner[node] == ACTIVE_PARTY:
        record = tree.record[node]
        table = share.lookup_table
        goes_left = row[table.feature[record]] <= table.threshold[record]
        return expected(tree, left if goes_left else right, row, share)

    def mean(at: int) -> Any:
        if tree.owner[at] == LEAF:
            return np.float64(tree.weight[at])
        below = [int(tree.left[at]), int(tree.right[at])]
        return np.average([mean(one) for one in below], weights=tree.cover[below])

    return mean(node)


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained({"telco": X[:, 10:20], "shop": X[:, 20:]})


def test_every_score_is_the_expectation_of_what_the_active_party_knows(
    model: fedmq.SimulatedModel,
) -> None:
    alone = pruned_to_own(model.share, "credit-alone")
    assert alone.parties == ("active",) and alone.asked == ()
    assert len(alone.lookup_table) < len(model.share.lookup_table)
    own = X[:40, :10]
    margins = scored(alone, {}, {"active": own}).margins
    first = np.log(alone.base_score / (1 - alone.base_score))
    for row, margin in zip(own, margins.tolist(), strict=True):
        sums = [expected(tree, 0, row, model.share) for tree in model.share.trees]
        assert margin == pytest.approx(first + sum(sums), abs=1e-5)


def test_it_says_what_it_is_and_reads_back(model: fedmq.SimulatedModel) -> None:
    alone = pruned_to_own(model.share, "credit-alone")
    assert alone.is_fallback_of(model.share)
    assert alone.departures == ("the splits of telco and shop were pruned to leaves",)
    assert alone.metrics == {}
    again = ActiveShare.loads(alone.dumps(), "share")
    assert again.dumps() == alone.dumps()


def test_a_model_that_is_trained_without_the_party_is_the_better_one() -> None:
    both = trained({"telco": X[:, 10:]})
    retrained = trained({})
    pruned = pruned_to_own(both.share, "pruned")

    def loss(share: ActiveShare, passive: Any, values: dict[str, np.ndarray]) -> float:
        return float(log_loss(Y[HELD], scored(share, passive, values).predictions))

    own, others = {"active": X[HELD, :10]}, {"telco": X[HELD, 10:]}
    with_all = loss(both.share, both.passive_shares, own | others)
    without = loss(retrained.share, {}, own)
    assert with_all < without < loss(pruned, {}, own) < log_loss(Y[HELD], np.full(HELD.sum(), 0.63))


@pytest.mark.parametrize(
    "params",
    [
        {"booster": "dart", "rate_drop": 0.3},
        {"objective": "multi:softprob", "num_class": 2, "multi_strategy": "multi_output_tree"},
    ],
    ids=["dart", "vector leaves"],
)
def test_trees_of_other_kinds_are_pruned_alike(params: dict[str, Any]) -> None:
    alone = pruned_to_own(trained({"telco": X[:, 10:]}, **params).share, "alone")
    found = scored(alone, {}, {"active": X[HELD, :10]}).predictions
    right = (found.argmax(axis=1) if found.ndim > 1 else found > 0.5) == Y[HELD]
    assert right.mean() > 0.8
