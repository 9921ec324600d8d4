"""Objectives and metrics that callers bring, as ``xgboost.train`` takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost.parity import compare
from fedmq.errors import ConfigError, DataError
from tests.boosting.tables import scattered

X, Y = scattered(300, 4, seed=2, missing=0.1)
WEIGHT = np.round(np.random.default_rng(0).exponential(size=300) + 0.1, 1).astype(np.float32)
SETTINGS = {"num_boost_round": 3, "max_depth": 3, "max_bin": 16}


def focal(margins: Any, rows: Any) -> tuple[Any, Any]:
    """Log loss that minds false negatives twice, weighted by the function itself."""
    p = 1 / (1 + np.exp(-np.asarray(margins, np.float64)))
    y = rows.get_label()
    scale = np.where(y == 1, 2.0, 1.0) * (rows.get_weight() if len(rows.get_weight()) else 1.0)
    return (p - y) * scale, p * (1 - p) * scale


def bias(predictions: Any, rows: Any) -> tuple[str, float]:
    return "bias", float(np.mean(predictions - rows.get_label()))


def trained(**more: Any) -> fedmq.SimulatedModel:
    given = {"obj": focal, "params": SETTINGS, "engine": "plain", **more}
    return fedmq.simulate(active=X[:, :2], label=Y, passive={"telco": X[:, 2:]}, **given)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weighted"])
def test_every_node_is_xgboosts(weight: Any) -> None:
    params = fedmq.TrainParams(**SETTINGS)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    codes = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    data = xgboost.DMatrix(codes, label=Y, weight=weight)
    reference = xgboost.train(params.to_xgboost() | {"nthread": 1}, data, 3, obj=focal)
    model = trained(weight=weight)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 15
    assert model.share.base_score == 0.5


def test_a_custom_metric_stands_beside_the_others() -> None:
    seen = {}
    model = trained(obj=None, custom_metric=bias, evaluation=np.arange(60))
    scores = model.predict(active=X[:, :2], passive={"telco": X[:, 2:]})
    seen["train"], seen["eval"] = scores[60:] - Y[60:], scores[:60] - Y[:60]
    for rows, difference in seen.items():
        assert model.evals_result[rows]["bias"][-1] == pytest.approx(difference.mean(), abs=1e-6)
        assert set(model.evals_result[rows]) == {"bias", "logloss"}


def test_functions_reach_worker_processes() -> None:
    weak = {"key_bits": 512, "allow_weak_keys": True}
    encrypted = trained(engine="ou", engine_options=weak, workers=1)
    assert encrypted.share.trees[0].weight.tolist() == trained().share.trees[0].weight.tolist()


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda margins, _: (margins[:3], margins[:3]), "3 values of g and 3 of h; 300 of each"),
        (lambda margins, _: (margins, margins - 1), "an h lies below 0"),
        (lambda margins, _: (margins * np.nan, margins), "g or h is not finite"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(function: Any, line: str) -> None:
    with pytest.raises(DataError, match=line):
        trained(obj=function)


def test_noise_for_gradients_of_a_known_size_takes_no_function() -> None:
    with pytest.raises(ConfigError, match="engine ldp: obj may give larger gradients"):
        trained(engine="ldp")
