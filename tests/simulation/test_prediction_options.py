"""A model answers as its XGBoost twin does: leaves, interactions, some rounds, strict shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.errors import ConfigError
from tests.boosting.tables import scattered

xgboost = pytest.importorskip("xgboost")

X, Y = scattered(120, 4, seed=8, missing=0.1)
TABLES: dict[str, Any] = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
OPTIONS = [
    {},
    {"output_margin": True},
    {"pred_leaf": True},
    {"pred_contribs": True},
    {"pred_interactions": True},
]


@pytest.fixture(scope="module", params=["two classes", "three classes", "dart"])
def model(request: pytest.FixtureRequest) -> fedmq.SimulatedModel:
    own: dict[str, Any] = {
        "two classes": {},
        "three classes": {"objective": "multi:softprob", "num_class": 3},
        "dart": {"booster": "dart", "rate_drop": 0.5},
    }[request.param]
    label = Y + (X[:, 1] > 1) if "num_class" in own else Y
    params = {"num_boost_round": 4, "max_depth": 3, **own}
    return fedmq.simulate(**TABLES, label=label, params=params, engine="plain")


@pytest.mark.parametrize("rounds", [(0, 0), (0, 2), (1, 3)])
def test_answers_are_those_of_the_joined_model(
    model: fedmq.SimulatedModel, rounds: tuple[int, int]
) -> None:
    booster = model.to_xgboost()
    rows = xgboost.DMatrix(model.joined_values(**TABLES), feature_names=booster.feature_names)
    for options in OPTIONS[:2] if rounds[0] else OPTIONS:
        asked = {**options, "iteration_range": rounds, "strict_shape": rounds != (0, 0)}
        theirs, ours = booster.predict(rows, **asked), model.predict(**TABLES, **asked)
        assert ours.shape == theirs.shape, options
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6, err_msg=str(options))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"iteration_range": (0, 5)}, r"the model has the rounds from 0 to before 4"),
        ({"iteration_range": (2, 2)}, r"iteration_range = \(2, 2\): the model has the rounds"),
        ({"pred_leaf": True, "iteration_range": (1, 2)}, "it begins with round 0"),
        ({"pred_leaf": True, "pred_contribs": True}, "pred_leaf: take one"),
    ],
)
def test_what_no_model_answers_is_refused(
    model: fedmq.SimulatedModel, options: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        model.predict(**TABLES, **options)
