"""Expectiles are those of XGBoost 3.4.1, whose numbers stand here: the tests run an older one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

import fedmq
from fedmq.boosting.xgboost_comparison import export
from fedmq.errors import ConfigError
from tests.how_often import seldom_several

pytestmark = pytest.mark.usefixtures("threads")

NUMBERS = np.arange(60)
X = np.stack((NUMBERS * 7 % 10, NUMBERS * 3 % 8, NUMBERS * 5 % 6), axis=1).astype(np.float32)
Y = (X[:, 0] + X[:, 1] * (NUMBERS % 3) - X[:, 2]).astype(np.float32)
ROWS = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
EXPECTILES = {"objective": "reg:expectileerror", "expectile_alpha": [0.2, 0.5, 0.9]}


def trained(**more: Any) -> fedmq.SimulatedModel:
    settings = {"max_depth": 3, "num_boost_round": 3, "xgboost_arithmetic": "3.4", **EXPECTILES}
    weight = (NUMBERS % 4 + 1).astype(np.float32)
    return fedmq.simulate(
        **ROWS, label=Y, weight=weight, engine="plain", params={**settings, **more}
    )


TREES = [
    [1.53110993, 1.95173955, 2.31984353],
    [5.19404411, 8.07110023, 10.65519428],
    [4.16831875, 6.00607777, 7.70523262],
]
VECTORS = [
    [1.28817236, 1.76367211, 2.50797415],
    [5.33403158, 9.26984406, 13.07760906],
    [3.61449456, 5.90701008, 7.89564323],
]


@pytest.mark.parametrize(
    ("params", "base_score", "predictions", "loss"),
    [
        ({}, (3.264, 5.68, 8.901333), TREES, 2.4293776),
        *seldom_several(
            (
                {"multi_strategy": "multi_output_tree"},
                (3.264, 5.68, 8.901333),
                VECTORS,
                2.41133107,
            ),
            ({"expectile_alpha": 0.8}, 8.096, [3.8324852, 8.60435867, 7.7540946], 3.55917551),
        ),
    ],
    ids=["trees", "vectors", "one"],
)
def test_predictions_are_xgboosts(
    params: Any, base_score: Any, predictions: Any, loss: float
) -> None:
    model = trained(**params)
    assert model.share.base_score == pytest.approx(base_score, rel=1e-6)
    np.testing.assert_allclose(model.predict(**ROWS)[[0, 7, 31]], predictions, rtol=1e-6)
    assert model.evals_result["train"]["expectile"][-1] == pytest.approx(loss, rel=1e-6)


def test_expectiles_of_a_row_do_not_cross() -> None:
    assert (np.diff(trained(num_boost_round=20, eta=1.0).predict(**ROWS), axis=1) > 0).all()


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"objective": "reg:expectileerror"}, "expectile_alpha is missing: which expectile, from"),
        ({**EXPECTILES, "expectile_alpha": [0.9, 0.1]}, "XGBoost takes expectiles in ascending"),
        ({**EXPECTILES, "eval_metric": "mae"}, "'mae': of several expectiles there is expectile"),
        ({**EXPECTILES, "num_target": 2}, "num_target = 2: reg:expectileerror learns one label"),
    ],
)
def test_parameters_that_do_not_fit_are_one_line(params: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        fedmq.TrainParams(**params)


def test_an_xgboost_that_lacks_them_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xgboost, "__version__", "3.2.0")
    line = "reg:expectileerror: the installed XGBoost, 3.2.0, does not have it; install"
    with pytest.raises(ConfigError, match=line):
        export.to_booster([], fedmq.TrainParams(**EXPECTILES), [])
    with pytest.raises(ConfigError, match=line):
        fedmq.compare_with_xgboost(**ROWS, label=Y, params=EXPECTILES)
