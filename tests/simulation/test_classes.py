"""Several classes: a tree for each in every round, as XGBoost grows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_digits

import fedmq
from fedmq.errors import ConfigError, DataError

X, Y = load_digits(return_X_y=True)
X = X[:600].astype(np.float32)
Y = Y[:600]
HELD_OUT = np.arange(len(Y)) % 4 == 0
SETTINGS = {"num_class": 10, "num_boost_round": 6, "max_depth": 3, "max_bin": 16, "eta": 1.0}


def trained(objective: str = "multi:softprob", **more: Any) -> fedmq.SimulatedModel:
    params = fedmq.TrainParams(objective=objective, **{**SETTINGS, **more})
    return fedmq.simulate(
        active=X[:, :32],
        label=Y,
        passive={"telco": X[:, 32:]},
        params=params,
        engine="plain",
        evaluation=HELD_OUT,
    )


def scores(model: fedmq.SimulatedModel, **more: bool) -> Any:
    return model.predict(active=X[:, :32], passive={"telco": X[:, 32:]}, **more)


def test_probabilities_have_a_column_for_each_class_and_softmax_names_the_likeliest() -> None:
    probabilities = scores(trained(num_boost_round=2))
    assert probabilities.shape == (600, 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classes = scores(trained("multi:softmax", num_boost_round=2))
    np.testing.assert_array_equal(classes, probabilities.argmax(axis=1))


def test_early_stopping_counts_rounds_and_ends_where_xgboosts_does() -> None:
    settings = {"early_stopping_rounds": 2, "num_boost_round": 30, "eval_metric": "merror"}
    settings |= {"max_bin": 64}  # every value is a bin, for XGBoost too
    model = trained(**settings)
    matrices = [xgboost.DMatrix(X[rows], label=Y[rows]) for rows in (~HELD_OUT, HELD_OUT)]
    reference = xgboost.train(
        {**model.share.params.to_xgboost(), "base_score": None, "nthread": 1},
        matrices[0],
        30,
        evals=[(matrices[1], "eval")],
        early_stopping_rounds=2,
        verbose_eval=False,
    )
    assert model.best_iteration == reference.best_iteration
    assert len(model.share.trees) == 10 * len(model.evals_result["eval"]["merror"]) < 300
    assert len(model.joined_trees()) == 10 * (reference.best_iteration + 1)
    wrong = scores(model)[HELD_OUT].argmax(axis=1) != Y[HELD_OUT]
    assert model.share.metrics["eval-merror"] == pytest.approx(wrong.mean())


@pytest.mark.parametrize("metric", ["mlogloss", "merror", "auc", "aucpr"])
def test_metrics_of_classes_are_xgboosts(metric: str) -> None:
    model = trained(num_boost_round=2, eval_metric=metric)
    booster = model.to_xgboost()
    booster.set_param({"eval_metric": metric, "nthread": 1})
    data = xgboost.DMatrix(X[HELD_OUT], label=Y[HELD_OUT], feature_names=booster.feature_names)
    theirs = float(booster.eval(data).split(":")[-1])
    assert model.evals_result["eval"][metric][-1] == pytest.approx(theirs, rel=1e-5)


def test_a_class_beyond_the_last_is_refused_by_row() -> None:
    with pytest.raises(DataError, match=r"label in row 10 is 9; classes are numbered from 0"):
        trained(num_class=9)


def test_the_first_round_of_all_classes_may_be_the_active_partys_alone() -> None:
    model = trained(num_boost_round=2, active_only_trees=1)
    owners = [set(tree.owner.tolist()) - {-1, 0} for tree in model.share.trees]
    assert not any(owners[:10])
    assert any(owners[10:])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"objective": "multi:softprob"}, "num_class is missing: how many classes has"),
        ({"num_class": 3}, "num_class: binary:logistic has no classes"),
        (
            {"objective": "multi:softmax", "num_class": 3, "base_score": [0.5]},
            "base_score has 1 numbers; one per class is needed",
        ),
    ],
)
def test_classes_and_objective_go_together(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        fedmq.TrainParams(**settings)
