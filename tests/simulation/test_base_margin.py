"""Rows that start elsewhere than at the base score, when they are scored: as XGBoost's margins."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

import fedmq
from fedmq.errors import DataError
from tests.boosting.tables import scattered

X, Y = scattered(200, 5, seed=3, missing=0.05)
PARTS = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
MARGIN = np.random.default_rng(1).normal(size=200)
CLASSES = {"objective": "multi:softprob", "num_class": 3}


def trained(label: Any = Y, **params: Any) -> fedmq.SimulatedModel:
    small = {"objective": "binary:logistic", "num_boost_round": 4, "max_depth": 3, **params}
    return fedmq.simulate(**PARTS, label=label, params=small, engine="plain")


def assert_as_xgboost(model: fedmq.SimulatedModel, margin: Any, **asked: Any) -> None:
    names = model.to_xgboost().feature_names
    rows = xgboost.DMatrix(X, base_margin=margin, feature_names=names)
    ours = model.predict(**PARTS, base_margin=margin, **asked)
    np.testing.assert_allclose(ours, model.to_xgboost().predict(rows, **asked), atol=2e-6)


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained()


@pytest.mark.parametrize("asked", [{}, {"output_margin": True}, {"pred_contribs": True}], ids=str)
def test_scores_are_those_of_xgboost(model: fedmq.SimulatedModel, asked: dict[str, bool]) -> None:
    assert_as_xgboost(model, MARGIN, **asked)


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_classes_have_a_margin_each(strategy: str) -> None:
    label = (X[:, 0] > 0).astype(int) + (np.nan_to_num(X[:, 3]) > 0)
    model = trained(label, **CLASSES, multi_strategy=strategy)
    assert_as_xgboost(model, np.stack((MARGIN, -MARGIN, MARGIN / 2), axis=1), output_margin=True)
    with pytest.raises(DataError, match=r"base_margin has shape \(200,\), \(200, 3\) is needed"):
        model.predict(**PARTS, base_margin=MARGIN)


def test_margins_of_the_training_give_the_metrics_of_the_training() -> None:
    """A model that learned beside offsets predicts its rows only with them."""
    params = {"objective": "count:poisson", "base_score": 1.0, "num_boost_round": 4}
    counts = np.round(np.exp(np.nan_to_num(X[:, 0]) / 3 + MARGIN / 4))
    model = fedmq.simulate(
        **PARTS, label=counts, params=params, engine="plain", base_margin=MARGIN / 4
    )
    predicted = model.predict(**PARTS, base_margin=MARGIN / 4)
    loss = predicted - counts * np.log(predicted)
    told = np.array(model.evals_result["train"]["poisson-nloglik"][-1])
    assert np.mean(loss + [lgamma(count + 1) for count in counts]) == pytest.approx(told, rel=1e-5)


def test_margins_are_matched_by_index(model: fedmq.SimulatedModel) -> None:
    people = pd.Index([f"p{row}" for row in range(200)])
    frames = {
        "active": pd.DataFrame(X[:, :2], people),
        "passive": {"telco": pd.DataFrame(X[:, 2:], people)},
    }
    renamed = fedmq.simulate(
        **frames, label=Y, params={"num_boost_round": 2, "max_depth": 2}, engine="plain"
    )
    turned = pd.Series(MARGIN, people).iloc[::-1]
    np.testing.assert_array_equal(
        renamed.predict(**frames, base_margin=turned),
        renamed.predict(**frames, base_margin=MARGIN),
    )


def test_a_report_is_of_the_rows_where_they_start(model: fedmq.SimulatedModel) -> None:
    plain = model.evaluate(**PARTS, label=Y, samples=0)
    moved = model.evaluate(**PARTS, label=Y, samples=0, base_margin=MARGIN * 3)
    assert moved.metrics["auc"].value < plain.metrics["auc"].value


@pytest.mark.parametrize(
    ("margin", "line"),
    [
        (MARGIN[:9], r"base_margin has shape \(9,\), \(200,\) is needed"),
        (["x"] * 200, "base_margin is no array of numbers"),
        (np.where(np.arange(200) == 3, np.nan, 0), "base_margin in row 4 is nan"),
    ],
    ids=["short", "text", "missing"],
)
def test_margins_that_do_not_fit_are_one_line(
    model: fedmq.SimulatedModel, margin: Any, line: str
) -> None:
    with pytest.raises(DataError, match=line):
        model.predict(**PARTS, base_margin=margin)
