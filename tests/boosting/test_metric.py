from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.callbacks import EarlyStopping
from fedmq.boosting.metrics import auc, logloss, metric_of
from fedmq.boosting.params import TrainParams
from tests.boosting.tables import scattered


@pytest.mark.parametrize(
    ("objective", "metric"),
    [
        ("binary:logistic", "logloss"),
        ("binary:logistic", "auc"),
        ("binary:logistic", "rmse"),
        ("binary:hinge", "error"),
        ("reg:squarederror", "rmse"),
        ("survival:cox", "cox-nloglik"),
    ],
)
def test_metrics_are_those_of_xgboost(objective: str, metric: str) -> None:
    xgb = pytest.importorskip("xgboost")
    X, y = scattered(500, 3, seed=3)  # few distinct predictions, hence ties
    data = xgb.DMatrix(X, label=y)
    history: dict[str, dict[str, list[float]]] = {}
    params = {"objective": objective, "eval_metric": metric, "max_depth": 2, "nthread": 1}
    booster = xgb.train(
        params, data, 3, evals=[(data, "train")], evals_result=history, verbose_eval=False
    )
    ours = metric_of(metric, TrainParams()).of(y, booster.predict(data), None)
    # Early stopping compares them: rmse is equal to the last bit, a logarithm may be rounded apart.
    apart = {"logloss": 1e-9, "cox-nloglik": 1e-9, "auc": 1e-6}.get(metric, 0)
    assert ours == pytest.approx(history["train"][metric][-1], abs=apart, rel=0)


def test_certain_and_wrong_costs_a_finite_logloss() -> None:
    certain = np.ones(1, np.float32)
    assert logloss(np.zeros(1, np.float32), certain) == pytest.approx(-np.log(1e-16))
    assert logloss(np.ones(1, np.float32), certain) == 0


def test_auc_of_ties_is_a_half_and_of_one_class_undefined() -> None:
    y = np.array([0, 1, 0, 1], np.float32)
    assert auc(y, np.full(4, 0.3, np.float32)) == 0.5
    assert auc(y, y) == 1
    assert np.isnan(auc(np.ones(4, np.float32), y))


@pytest.mark.parametrize("metric", ["auc", "logloss"])
def test_early_stopping_ends_where_xgboost_ends(metric: str) -> None:
    xgb = pytest.importorskip("xgboost")
    X, y = scattered(300, 3, seed=5)
    train, test = (xgb.DMatrix(X[part], label=y[part]) for part in (slice(200), slice(200, 300)))
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgb.train(
        {"objective": "binary:logistic", "eval_metric": metric, "eta": 1.0},
        train,
        100,
        evals=[(test, "test")],
        evals_result=history,
        early_stopping_rounds=4,
        verbose_eval=False,
    )
    state = EarlyStopping(rounds=4, maximize=metric_of(metric, TrainParams()).maximize)
    scores = history["test"][metric]
    due = []
    for iteration, score in enumerate(scores):
        state = EarlyStopping.model_validate_json(state.after(iteration, score).model_dump_json())
        due.append(state.is_due)
    assert len(scores) < 100
    assert due == [False] * (len(scores) - 1) + [True]
    assert state.best_iteration == booster.best_iteration
