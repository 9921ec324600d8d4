"""Rows of weight 0: XGBoost's model comes out, and they do not count among the rows of a sum."""

from __future__ import annotations

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from tests.boosting.tables import scattered

WEAK = {"key_bits": 512, "allow_weak_keys": True}


@pytest.mark.parametrize("seed", range(5))
def test_every_node_is_xgboosts(seed: int) -> None:
    random = np.random.default_rng(seed)
    X, y = scattered(400, 6, seed=seed, missing=0.1)
    X = X.round()  # so that each bin has rows that count: XGBoost makes no cuts for the others
    weight = random.integers(0, 3, 400).astype(np.float32)
    params = fedmq.TrainParams(num_boost_round=3, max_depth=5, min_child_weight=0.0, max_bin=4)
    model = fedmq.simulate(
        active=X[:, :2],
        label=y,
        passive={"telco": X[:, 2:4], "shop": X[:, 4:]},
        params=params,
        engine="plain",
        weight=weight,
    )
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    reference = train_reference(bins, y, params, weight)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 30


def test_rows_of_weight_0_carry_no_gradient() -> None:
    weight = np.array([0, 2, 0, 0.5], np.float32)
    labels = np.array([0, 1, 1, 0], np.float32)
    training = np.array([True, True, True, False])
    gradients = Gradients.of(
        np.zeros(4, np.float32), labels, training, fedmq.TrainParams(), 0, weight
    )
    assert gradients.carried.tolist() == [False, True, False, False]
    assert gradients.scale.to_float(gradients.pairs).tolist() == [[0, 0], [-1, 0.5], [0, 0], [0, 0]]


@pytest.mark.parametrize(("engine", "options"), [("plain", {}), ("ou", WEAK)])
@pytest.mark.parametrize(("counted", "splits"), [(12, False), (40, True)])
def test_sums_of_a_few_people_among_others_of_weight_0_are_not_shown(
    engine: str, options: dict[str, object], counted: int, splits: bool
) -> None:
    """Else each cut's sum would say on which side of it those few stand."""
    values = np.arange(300.0) % 2
    weight = (np.arange(300) < counted).astype(np.float32)
    model = fedmq.simulate(
        active=np.empty((300, 0)),
        label=values,
        passive={"telco": values[:, np.newaxis]},
        params={"num_boost_round": 1, "max_depth": 1, "min_child_weight": 0.0},
        engine=engine,
        engine_options=options,
        workers=1,
        smallest_cell=10,
        weight=weight,
    )
    assert (1 in model.share.trees[0].owner) == splits
