"""Reports of predicted quantiles: pinball loss and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from fedmq.evaluation.evaluate import ScoredRows, evaluate, kind_of
from fedmq.evaluation.page import html_of
from fedmq.evaluation.quantiles import pinball_loss, quantile_metrics

DRAW = np.random.default_rng(2)
X = DRAW.normal(size=(600, 3)).astype(np.float32)
LABEL = (X[:, 0] + X[:, 2] + DRAW.normal(size=600)).astype(np.float32)
PARAMS: dict[str, Any] = {
    "objective": "reg:quantileerror",
    "num_boost_round": 12,
    "max_depth": 3,
    "max_bin": 32,
}


def trained(alphas: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[:, :2],
        label=LABEL,
        passive={"telco": X[:, 2:]},
        params={**PARAMS, "quantile_alpha": alphas},
        engine="plain",
    )


def test_a_report_has_loss_and_coverage_of_each_quantile() -> None:
    model = trained([0.1, 0.5, 0.9])
    given: dict[str, Any] = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
    report = model.evaluate(**given, label=LABEL, samples=20)
    score = model.predict(**given)
    found = report.metrics
    assert found["pinball loss"].value == pytest.approx(
        model.evals_result["train"]["quantile"][-1], rel=1e-5
    )
    for place, alpha in enumerate((0.1, 0.5, 0.9)):
        expected = mean_pinball_loss(LABEL, score[:, place], alpha=alpha)
        figure = found[f"pinball loss at {alpha:g}"]
        assert figure.value == pytest.approx(expected, rel=1e-6)
        assert figure.low is not None and figure.high is not None
        assert figure.low <= figure.value <= figure.high
        coverage = found[f"coverage at {alpha:g}"].value
        assert coverage == pytest.approx((score[:, place] >= LABEL).mean())
        assert coverage == pytest.approx(alpha, abs=0.08)
    inside = (score[:, 0] <= LABEL) & (score[:, 2] >= LABEL)
    assert found["labels from quantile 0.1 to 0.9"].value == pytest.approx(inside.mean())
    page = html_of(report)
    assert "coverage at 0.9" in page and "Coverage by prediction" in page
    table = next(one for one in report.tables if one.name == "Predicted quantiles")
    assert [row[0] for row in table.rows] == [0.1, 0.5, 0.9]
    assert all(row[2] < row[3] for row in table.rows)  # better than one quantile for all


def test_one_quantile_has_the_figures_of_any_regression_beside() -> None:
    model = trained(0.8)
    report = model.evaluate(active=X[:, :2], passive={"telco": X[:, 2:]}, label=LABEL, samples=0)
    assert {"pinball loss", "coverage at 0.8", "rmse", "r2"} <= report.metrics.keys()
    assert {chart.name for chart in report.charts} >= {"Coverage by prediction", "Residuals"}


def test_quantiles_that_cross_are_counted_in_any_order() -> None:
    label = np.array([1.0, 2.0, 3.0, 4.0])
    score = np.array([[5.0, 0.0], [1.0, 1.5], [9.0, 3.0], [4.0, 4.0]])
    found = quantile_metrics((0.9, 0.1))(label, score)
    assert found["rows with crossed quantiles"] == 0.25  # the second
    assert found["labels from quantile 0.1 to 0.9"] == 0.75
    assert found["coverage at 0.9"] == 0.75 and found["coverage at 0.1"] == 0.5
    assert found["mean width"] == pytest.approx((5 - 0.5 + 6 + 0) / 4)
    assert pinball_loss(label, score[:, 0], (0.9,)) == pytest.approx(
        mean_pinball_loss(label, score[:, 0], alpha=0.9)
    )


def test_kinds_of_quantiles_and_of_expectiles() -> None:
    several = TrainParams(objective="reg:quantileerror", quantile_alpha=(0.1, 0.9))
    assert kind_of(several) == "quantiles"
    expectiles = TrainParams(objective="reg:expectileerror", expectile_alpha=(0.1, 0.9))
    with pytest.raises(DataError, match="a report of several expectiles is not known"):
        kind_of(expectiles)
    with pytest.raises(DataError, match="no row has both label and score"):
        evaluate("m", "quantiles", ScoredRows((), (), np.empty(0), np.empty((0, 2))), {})
