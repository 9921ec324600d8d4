"""Functions in place of names, offsets, and models to continue: as XGBoost's estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.metrics import log_loss, mean_absolute_error

import fedmq
from fedmq.errors import ConfigError
from tests.boosting.tables import scattered

VALUES, Y = scattered(240, 5, seed=2, missing=0.05)
X = np.round(VALUES, 1)  # every value is a bin, for XGBoost too
PARTIES = {"telco": [2, 3], "shop": [4]}
SMALL: dict[str, Any] = {"n_estimators": 4, "max_depth": 3}
MARGIN = np.random.default_rng(1).normal(size=240)


def logistic(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    p = 1 / (1 + np.exp(-y_pred))
    weight = 1 if sample_weight is None else sample_weight
    return (p - y_true) * weight, p * (1 - p) * weight


def unweighted(y_true: Any, y_pred: Any) -> Any:
    return y_pred - y_true, np.ones_like(y_pred)


def bias(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    return float(np.average(y_pred - y_true, weights=sample_weight))


def both(kind: str, **settings: Any) -> tuple[Any, Any]:
    """fedmq's estimator and XGBoost's."""
    ours = {"C": fedmq.FederatedClassifier, "R": fedmq.FederatedRegressor}[kind]
    theirs = {"C": xgboost.XGBClassifier, "R": xgboost.XGBRegressor}[kind]
    return ours(parties=PARTIES, **SMALL, **settings), theirs(n_jobs=1, **SMALL, **settings)


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2, 240)], ids=["alike", "weighted"])
def test_an_objective_may_be_a_function(weight: Any) -> None:
    ours, theirs = both("C", objective=logistic)
    ours.fit(X, Y, weight)
    theirs.fit(X, Y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_a_regressor_takes_one_too_but_no_weights_that_it_does_not() -> None:
    ours, theirs = both("R", objective=unweighted)
    np.testing.assert_allclose(ours.fit(X, Y).predict(X), theirs.fit(X, Y).predict(X), atol=1e-5)
    with pytest.raises(ConfigError, match="objective: it has no parameter sample_weight"):
        ours.fit(X, Y, np.ones(240))


@pytest.mark.parametrize(
    "metric",
    [log_loss, ["auc", log_loss], bias],
    ids=["of scikit-learn", "beside a name", "own"],
)
def test_a_metric_may_be_a_function(metric: Any) -> None:
    ours, theirs = both("C", eval_metric=metric)
    weights = np.linspace(0.5, 2, 240)
    sets = {"eval_set": [(X, Y)], "sample_weight_eval_set": [weights]}
    ours.fit(X, Y, weights, **sets)
    theirs.fit(X, Y, sample_weight=weights, **sets, verbose=False)
    found, expected = ours.model_.evals_result["validation_0"], theirs.evals_result()
    assert list(found) == list(expected["validation_0"])
    for name, curve in expected["validation_0"].items():
        np.testing.assert_allclose(found[name], curve, atol=2e-5)


def test_early_stopping_watches_the_function() -> None:
    settings = {"eval_metric": mean_absolute_error, "early_stopping_rounds": 2, "eta": 1.0}
    ours = fedmq.FederatedRegressor(
        parties=PARTIES, n_estimators=30, learning_rate=settings.pop("eta"), **settings
    )
    ours.fit(X[:160], Y[:160], eval_set=[(X[160:], Y[160:])])
    curve = ours.model_.evals_result["validation_0"]["mean_absolute_error"]
    assert ours.model_.best_iteration == int(np.argmin(curve)) == len(curve) - 3


def test_two_functions_are_one_too_many() -> None:
    ours, _ = both("C", eval_metric=[log_loss, bias])
    with pytest.raises(ConfigError, match="takes several functions"):
        ours.fit(X, Y)


def test_rows_start_at_their_margins_in_predictions() -> None:
    ours, theirs = both("C")
    ours.fit(X, Y, base_margin=MARGIN)
    theirs.fit(X, Y, base_margin=MARGIN)
    expected = theirs.predict_proba(X, base_margin=MARGIN)
    np.testing.assert_allclose(ours.predict_proba(X, base_margin=MARGIN), expected, atol=1e-5)
    chosen = theirs.predict(X, base_margin=MARGIN)
    np.testing.assert_array_equal(ours.predict(X, base_margin=MARGIN), chosen)
    ours, theirs = both("R")
    expected = theirs.fit(X, Y).predict(X, base_margin=MARGIN)
    found = ours.fit(X, Y).predict(X, base_margin=MARGIN)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_trees_follow_those_of_an_earlier_model(tmp_path: Path) -> None:
    first, theirs = both("C")
    first.fit(X, Y)
    theirs.fit(X, Y)
    _, more = both("C")
    expected = more.fit(X, Y, xgb_model=theirs.get_booster()).predict_proba(X)
    first.model_.save(tmp_path / "first.json")
    for earlier in (first, first.model_, tmp_path / "first.json"):
        ours, _ = both("C")
        ours.fit(X, Y, xgb_model=earlier)
        assert len(ours.model_.share.trees) == 8
        np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-5)
    with pytest.raises(ConfigError, match="xgb_model: Booster is no model of fedmq"):
        first.fit(X, Y, xgb_model=theirs.get_booster())


def test_a_regressor_learns_several_targets_as_xgboosts_does() -> None:
    ours, theirs = both("R")
    several = np.stack((Y, np.nan_to_num(X[:, 0]) - Y), axis=1)
    expected = theirs.fit(X, several).predict(X)
    np.testing.assert_allclose(ours.fit(X, several).predict(X), expected, atol=1e-4)


def test_a_classifier_of_several_labels_is_refused_with_what_to_do() -> None:
    ours, _ = both("C")
    with pytest.raises(ConfigError, match=r"y: a classifier learns one label; .*of a regressor"):
        ours.fit(X, np.stack((Y, Y), axis=1))
