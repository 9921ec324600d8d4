"""Objectives and metrics that callers bring, as ``xgboost.train`` takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare
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


def spread(predictions: Any, rows: Any) -> list[tuple[str, float]]:
    """Two at once, as XGBoost takes them; the last is watched."""
    off = np.abs(np.asarray(predictions, np.float64) - rows.get_label())
    return [("largest", float(off.max())), ("beyond", float((off > 0.6).mean()))]


def right(predictions: Any, rows: Any) -> tuple[str, float]:
    return "aucs_name_says_more_is_better", float(((predictions > 0.5) == rows.get_label()).mean())


@pytest.mark.parametrize(
    ("metric", "maximize"),
    [(bias, None), (bias, True), (spread, None), (right, None), (right, False)],
    ids=["bias", "more-bias", "two", "by-name", "against-its-name"],
)
@pytest.mark.parametrize("obj", [None, focal], ids=["logistic", "own"])
def test_early_stopping_on_a_custom_metric_ends_where_xgboosts_does(
    metric: Any, maximize: bool | None, obj: Any
) -> None:
    held_out = np.arange(300) % 3 == 0
    params = fedmq.TrainParams(**SETTINGS | {"num_boost_round": 40, "early_stopping_rounds": 4})
    model = trained(
        obj=obj, params=params, custom_metric=metric, maximize=maximize, evaluation=held_out
    )
    bins = BinMatrix.of(X, Cuts.of(X[~held_out], 16))
    codes = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    train, test = (xgboost.DMatrix(codes[rows], label=Y[rows]) for rows in (~held_out, held_out))
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        params.to_xgboost() | {"nthread": 1},
        train,
        40,
        evals=[(train, "train"), (test, "eval")],
        obj=obj,
        custom_metric=metric,
        maximize=maximize,
        early_stopping_rounds=4,
        evals_result=history,
        verbose_eval=False,
    )
    assert model.best_iteration == booster.best_iteration
    watched = list(history["eval"])[-1]
    grown = history["eval"][watched]
    assert len(grown) < 40
    assert model.evals_result["eval"].keys() == history["eval"].keys()
    np.testing.assert_allclose(model.evals_result["eval"][watched], grown, atol=2e-6)
    # Of the kept model, which is not the last that grew.
    assert model.best_iteration < len(grown) - 1
    kept = {
        f"{rows}-{name}": values[booster.best_iteration]
        for rows, metrics in history.items()
        for name, values in metrics.items()
    }
    assert model.metrics == pytest.approx(kept, abs=2e-6)


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ({"custom_metric": lambda *_: 0.5}, "custom_metric: it gives no pair of a name and a num"),
        ({"custom_metric": lambda *_: ("loss", "low")}, "custom_metric: it gives no pair"),
        ({"obj": lambda margins, _: margins}, "obj: it gives no pair of g and h"),
        ({"obj": lambda *_: None}, "obj: it gives no pair of g and h"),
    ],
    ids=["number", "word", "gradient", "nothing"],
)
def test_what_functions_give_is_checked(functions: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=line):
        trained(**{"obj": None, **functions})
