"""Random forests: several trees a round from the same gradients, as XGBoost grows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from tests.boosting.tables import scattered
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("threads")

xgboost = pytest.importorskip("xgboost")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
X, Y = scattered(300, 6, seed=8, missing=0.1)
CLASSES = (np.digitize(np.nan_to_num(X[:, 0]), [-0.4, 0.6])).astype(np.float32)


def trained(engine: str = "plain", label: Any = Y, **params: Any) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine == "ou" else {}
    values = {"num_boost_round": 3, "num_parallel_tree": 3, "max_depth": 4, "max_bin": 16}
    return fedmq.simulate(
        active=X[:, :3],
        label=label,
        passive={"telco": X[:, 3:]},
        params=fedmq.TrainParams(**values | params),
        engine=engine,
        **more,
    )


@pytest.mark.parametrize(
    ("label", "params"),
    [
        (Y, {"objective": "binary:logistic"}),
        (X[:, 1], {"objective": "reg:absoluteerror"}),
        (CLASSES, {"objective": "multi:softprob", "num_class": 3}),
        (Y, {"grow_policy": "lossguide", "max_leaves": 5, "eta": 1.0}),
    ],
    ids=["binary", "leaves of quantiles", "classes", "lossguide"],
)
def test_every_node_is_xgboosts(label: Any, params: dict[str, Any]) -> None:
    label = np.nan_to_num(label)
    model = trained(label=label, **params)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    reference = train_reference(bins, label, model.share.params)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 40
    exported = model.to_xgboost()
    assert exported.num_boosted_rounds() == reference.num_boosted_rounds() == 3
    rows = xgboost.DMatrix(X, feature_names=exported.feature_names)
    scores = model.predict(active=X[:, :3], passive={"telco": X[:, 3:]})
    np.testing.assert_allclose(exported.predict(rows), scores, rtol=1e-6)
    last = {"iteration_range": (2, 3), "output_margin": True}
    sliced = exported[2:3].predict(rows, output_margin=True)
    np.testing.assert_allclose(sliced, exported.predict(rows, **last), rtol=1e-6)


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1")])
def test_exact_engines_grow_the_same_forests(engine: str) -> None:
    drawn = {"subsample": 0.8, "colsample_bynode": 0.5, "num_boost_round": 1}
    expected, model = trained(**drawn), trained(engine, **drawn)
    assert model.share.dumps() == expected.share.dumps()


@pytest.mark.parametrize("engine", ["smm2", "ldp"])
def test_the_other_engines_carry_them_too(engine: str) -> None:
    model = trained(engine, num_boost_round=2, reg_lambda=1.0)
    assert len(model.share.trees) == 6


def test_trees_of_a_round_are_equal_unless_they_draw() -> None:
    first, *others = trained(num_boost_round=1).share.trees
    assert all(np.array_equal(first.weight, tree.weight) for tree in others)
    first, *others = trained(num_boost_round=1, subsample=0.5).share.trees
    assert not any(np.array_equal(first.weight, tree.weight) for tree in others)


def test_early_stopping_counts_rounds() -> None:
    held_out = np.arange(len(Y)) % 3 == 0
    params = {"eta": 1.0, "num_parallel_tree": 2, "max_depth": 3, "num_boost_round": 30}
    model = fedmq.simulate(
        active=X[:, :3],
        label=np.random.default_rng(0).permutation(Y),
        passive={"telco": X[:, 3:]},
        params={**params, "early_stopping_rounds": 2},
        engine="plain",
        evaluation=held_out,
    )
    rounds = len(model.evals_result["eval"]["logloss"])
    assert model.best_iteration == rounds - 3
    assert len(model.share.trees) == 2 * rounds
    assert len(model.share.used_trees) == 2 * (rounds - 2)
    assert model.to_xgboost().num_boosted_rounds() == rounds - 2
