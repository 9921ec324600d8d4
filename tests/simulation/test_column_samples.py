"""Columns drawn by tree, level and node: XGBoost restricted to the drawn columns splits alike."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.tree import LEAF
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.protocol.training.candidates import OwnColumns
from tests.boosting.tables import scattered

pytestmark = pytest.mark.usefixtures("threads")

HANDS = (4, 3, 5)
SHARES = [
    {"colsample_bylevel": 0.5},
    {"colsample_bynode": 0.4},
    {"colsample_bytree": 0.9, "colsample_bylevel": 0.8, "colsample_bynode": 0.7},
]
WEAK = {"key_bits": 512, "allow_weak_keys": True}


def parts_of(X: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return np.split(X, np.cumsum(HANDS)[:-1], axis=1)


def trained(
    params: fedmq.TrainParams, rows: int, engine: str = "plain", **more: Any
) -> fedmq.SimulatedModel:
    X, y = scattered(rows, sum(HANDS), seed=3, missing=0.2)
    first, *others = parts_of(X)
    passive = {f"passive{number}": part for number, part in enumerate(others)}
    return fedmq.simulate(
        active=first, label=y, passive=passive, params=params, engine=engine, **more
    )


def columns_of(
    X: NDArray[np.float32], params: fedmq.TrainParams, node: int
) -> NDArray[np.integer[Any]]:
    """The joined columns that the parties draw for a node of the first tree."""
    drawn, before = [], 0
    for part in parts_of(X):
        bins = BinMatrix.of(part, Cuts.of(part, params.max_bin))
        drawn.append(before + np.unique(OwnColumns(bins, params).of_tree(0).of_node(node).feature))
        before += part.shape[1]
    return np.concatenate(drawn)


def split_of_xgboost(
    bins: BinMatrix, gradients: NDArray[np.float32], rows: NDArray[np.intp], columns: Any
) -> tuple[int, int, bool] | None:
    """Feature, bin and default direction of a stump that sees these rows and columns alone."""
    codes = np.where(bins.is_missing, np.nan, bins.codes.astype(np.float32))[np.ix_(rows, columns)]
    booster = xgboost.train(
        {"max_depth": 1, "tree_method": "hist", "max_bin": 256, "base_score": 0, "nthread": 1},
        xgboost.DMatrix(codes, label=np.zeros(len(rows))),
        1,
        obj=lambda *_: tuple(gradients[rows].T),
    )
    learner = json.loads(booster.save_raw("json"))["learner"]
    (tree,) = learner["gradient_booster"]["model"]["trees"]
    if tree["left_children"][0] == -1:
        return None
    threshold = int(np.ceil(tree["split_conditions"][0])) - 1
    return int(columns[tree["split_indices"][0]]), threshold, bool(tree["default_left"][0])


def went_left(
    bins: BinMatrix, rows: NDArray[np.intp], feature: int, threshold: int, default_left: bool
) -> NDArray[np.bool_]:
    missing = bins.is_missing[rows, feature]
    return np.where(missing, default_left, bins.codes[rows, feature] <= threshold)


@pytest.mark.parametrize("shares", SHARES)
def test_every_node_is_split_as_xgboost_splits_it_by_the_drawn_columns(
    shares: dict[str, float],
) -> None:
    params = fedmq.TrainParams(num_boost_round=1, max_depth=4, max_bin=16, base_score=0.5, **shares)
    X, y = scattered(1200, sum(HANDS), seed=3, missing=0.2)
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    gradients = np.stack((0.5 - y, np.full(len(y), 0.25)), axis=1).astype(np.float32)
    (joined,) = trained(params, len(y)).joined_trees()
    standing = {0: (1, np.arange(len(y)))}
    splits = 0
    for place in range(len(joined.tree)):
        node, rows = standing[place]
        if joined.tree.owner[place] == LEAF:
            continue
        feature, default = int(joined.feature[place]), bool(joined.default_left[place])
        cuts = np.concatenate((bins.cuts.thresholds[feature], [np.inf]))
        threshold = int(np.searchsorted(cuts, joined.threshold[place]))
        columns = columns_of(X, params, node)
        assert feature in columns
        left = went_left(bins, rows, feature, threshold, default)
        expected = split_of_xgboost(bins, gradients, rows, columns)
        assert expected is not None
        assert feature == expected[0]
        # Its cuts are those of the node's rows, so that its bin may be another.
        np.testing.assert_array_equal(left, went_left(bins, rows, *expected))
        children = int(joined.tree.left[place]), int(joined.tree.right[place])
        sides = (2 * node, rows[left]), (2 * node + 1, rows[~left])
        standing |= dict(zip(children, sides, strict=True))
        splits += 1
    assert splits > 8


@pytest.mark.parametrize("engine", ["paillier", "ou", "lattice", "smm1", "smm2"])
def test_every_exact_engine_grows_the_same_trees(engine: str) -> None:
    params = fedmq.TrainParams(num_boost_round=1, max_depth=3, max_bin=8, **SHARES[2])
    more = {"engine_options": WEAK, "workers": 1} if engine in ("paillier", "ou") else {}
    expected, model = trained(params, 120), trained(params, 120, engine, **more)
    assert structure(model.joined_trees()) == structure(expected.joined_trees())
    assert (
        model.share.lookup_table.model_dump_json() == expected.share.lookup_table.model_dump_json()
    )


def structure(trees: list[PooledTree]) -> list[list[Any]]:
    return [
        [
            tree.feature.tolist(),
            tree.threshold.tolist(),
            tree.tree.owner.tolist(),
            tree.tree.weight.tolist(),
        ]
        for tree in trees
    ]
