"""Models of every objective as XGBoost's own: the same predictions, and JSON that is JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedmq
from tests.boosting.installed import installed_objectives
from tests.boosting.tables import scattered

xgboost = pytest.importorskip("xgboost")

X, _ = scattered(300, 4, seed=5, missing=0.1)
X[:, 3] = np.where(np.arange(300) % 3 == 0, np.nan, 7)  # who is known here at all tells most
Y = ((np.arange(300) % 3 == 0) ^ (X[:, 0] > 1)).astype(np.float32)
LABELS = {
    "reg:gamma": Y + 0.5,
    "rank:ndcg": np.stack((Y, np.arange(300) // 10), axis=1),
    "rank:pairwise": np.stack((Y, np.arange(300) // 10), axis=1),
    "rank:map": np.stack((Y, np.arange(300) // 10), axis=1),
    "survival:cox": np.where(Y > 0, 1, -2),
    "survival:aft": np.stack((Y + 0.5, np.where(Y > 0, np.inf, Y + 1)), axis=1),
    "multi:softmax": Y + (X[:, 2] > 0.5),
    "multi:softprob": Y + (X[:, 2] > 0.5),
}
OWN: dict[str, dict[str, Any]] = {
    "multi:softmax": {"num_class": 3},
    "multi:softprob": {"num_class": 3},
    "reg:quantileerror": {"quantile_alpha": 0.4},
    "reg:expectileerror": {"expectile_alpha": 0.4},
    "reg:pseudohubererror": {"huber_slope": 0.8},
    "reg:tweedie": {"tweedie_variance_power": 1.3},
    "survival:aft": {"aft_loss_distribution": "logistic"},
}


def refused(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("objective", installed_objectives())
def test_a_model_of_any_objective_is_xgboosts(objective: str) -> None:
    params = {
        "objective": objective,
        "num_boost_round": 3,
        "max_depth": 3,
        **OWN.get(objective, {}),
    }
    model = fedmq.simulate(
        active=X[:, :2],
        label=LABELS.get(objective, Y),
        passive={"telco": X[:, 2:]},
        params=params,
        engine="plain",
    )
    assert any(not np.isfinite(tree.threshold).all() for tree in model.joined_trees())
    booster = model.to_xgboost()
    for text in (booster.save_raw("json"), *booster.get_dump(dump_format="json", with_stats=True)):
        json.loads(text, parse_constant=refused)
    rows = xgboost.DMatrix(X, feature_names=booster.feature_names)
    for output_margin in (False, True):
        np.testing.assert_array_equal(
            model.predict(
                active=X[:, :2], passive={"telco": X[:, 2:]}, output_margin=output_margin
            ),
            booster.predict(rows, output_margin=output_margin),
        )
    assert set(booster.trees_to_dataframe()["Feature"]) <= {"Leaf", *booster.feature_names}
