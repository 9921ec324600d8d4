from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.objectives.regression import BinaryLogistic, SquaredError
from fedmq.errors import DataError

logistic = BinaryLogistic()
squared = SquaredError()


def test_logistic_gradients_are_the_derivatives_of_the_log_loss() -> None:
    margins = np.array([-3, 0, 0.25, 2], np.float32)
    labels = np.array([0, 1, 0, 1], np.float32)
    p = 1 / (1 + np.exp(-margins.astype(np.float64)))
    gradients = logistic.gradients(margins, labels)
    assert gradients.dtype == np.float32
    np.testing.assert_allclose(gradients, np.stack((p - labels, p * (1 - p)), axis=1), rtol=1e-5)


@pytest.mark.parametrize("margin", [-1000.0, -90.0, 90.0, 1000.0])
def test_extreme_margins_stay_finite_and_keep_a_hessian(margin: float) -> None:
    g, h = logistic.gradients(np.array([margin], np.float32), np.zeros(1, np.float32))[0]
    assert 0 <= g <= 1
    assert h == np.float32(1e-16)


def test_predictions_are_those_of_xgboost_within_one_ulp() -> None:
    xgb = pytest.importorskip("xgboost")
    margins = np.linspace(-30, 30, 5001, dtype=np.float32)
    nothing = xgb.DMatrix(np.zeros((len(margins), 1)), base_margin=margins)
    booster = xgb.Booster({"objective": "binary:logistic", "base_score": 0.5}, cache=[nothing])
    np.testing.assert_array_max_ulp(logistic.predictions(margins), booster.predict(nothing), 1)


def test_squared_error_has_hessian_one() -> None:
    gradients = squared.gradients(np.array([1.5], np.float32), np.array([1], np.float32))
    assert gradients.tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize("score", [0.1, 0.5, 0.77])
def test_the_base_margin_predicts_the_base_score(score: float) -> None:
    assert logistic.predictions(np.array([logistic.base_margin(score)]))[0] == pytest.approx(score)
    assert squared.base_margin(score) == np.float32(score)


def test_the_base_margin_is_bounded() -> None:
    assert np.isfinite(logistic.base_margin(1e-30))
    assert logistic.base_margin(1e-30) == logistic.base_margin(1e-7)


@pytest.mark.parametrize(
    ("objective", "wrong", "shown"),
    [(logistic, 2.0, "2"), (logistic, np.nan, "nan"), (squared, np.inf, "inf")],
)
def test_a_label_that_does_not_fit_is_refused_by_row(objective, wrong, shown) -> None:
    with pytest.raises(
        DataError, match=rf"^bank\.csv: label in row 3 is {shown}; {objective.wanted}"
    ):
        objective.labels([0, 1, wrong, wrong], "bank.csv")


def test_labels_become_float32() -> None:
    assert logistic.labels([True, False], "bank.csv").dtype == np.float32
