"""What somebody types who knows XGBoost: it works, or one line says what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.errors import DataError
from tests.boosting.tables import scattered

pytestmark = pytest.mark.usefixtures("threads")

X, Y = scattered(200, 4, seed=3)
WORDS = np.where(Y > 0, "ja", "nein")
TABLES = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}
PARAMS = {"num_boost_round": 2, "max_depth": 2, "max_bin": 8}


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return fedmq.simulate(**TABLES, label=Y, params=PARAMS, engine="plain", evaluation=[0, 1, 2])


@pytest.mark.parametrize(
    "function", [fedmq.simulate, fedmq.cv, fedmq.screen], ids=lambda function: function.__name__
)
def test_arguments_by_place_are_answered_by_their_names(function: Callable[..., Any]) -> None:
    usage = rf"{function.__name__}\(active=\.\.\., label=\.\.\., passive=\.\.\., \.\.\.\)"
    with pytest.raises(TypeError, match=f"^{function.__name__}: every argument has .*: {usage}$"):
        function(PARAMS, X)


@pytest.mark.parametrize(
    ("function", "name", "line"),
    [
        (fedmq.simulate, "num_boost_round", "it belongs into params"),
        (fedmq.simulate, "early_stopping_rounds", "it belongs into params"),
        (fedmq.cv, "num_boost_round", "it belongs into params"),
        (fedmq.cv, "dtrain", "active, label and passive are its parts"),
        (fedmq.cv, "feval", "it is called custom_metric"),
    ],
)
def test_other_names_are_answered(function: Callable[..., Any], name: str, line: str) -> None:
    with pytest.raises(TypeError, match=f"^{function.__name__}: {name}: {line}$"):
        function(params=PARAMS, **{name: 3})


def test_a_name_that_cv_has_too_is_its_own() -> None:
    found = fedmq.cv(**TABLES, label=Y, params=PARAMS, early_stopping_rounds=1, as_pandas=False)
    assert len(found["test-logloss-mean"]) == 2


@pytest.mark.parametrize(
    "train", [fedmq.simulate, fedmq.cv], ids=lambda function: function.__name__
)
def test_categories_need_not_be_enabled(train: Callable[..., Any]) -> None:
    def trained(params: dict[str, Any]) -> Any:
        return train(**TABLES, label=Y, params=params, engine="plain")

    assert str(trained(PARAMS | {"enable_categorical": True})) == str(trained(PARAMS))


@pytest.mark.parametrize("dtype", [object, str])
def test_a_label_of_words_is_answered_by_how_numbers_are_made(dtype: type) -> None:
    for train in (fedmq.simulate, fedmq.cv):
        with pytest.raises(
            DataError,
            match=r"the label holds .*, numbers are needed: write 1 where it is '\w+', say,",
        ):
            train(**TABLES, label=WORDS.astype(dtype), params=PARAMS)


def test_evaluation_answers_a_label_of_words_alike(model: fedmq.SimulatedModel) -> None:
    with pytest.raises(DataError, match=r"the label holds .*: write 1 where it is"):
        model.evaluate(**TABLES, label=WORDS)


def test_rows_by_place_are_answered(model: fedmq.SimulatedModel) -> None:
    with pytest.raises(TypeError, match=r"^predict: every .*: predict\(active=\.\.\., passive="):
        model.predict(X)


def test_metrics_are_called_as_in_xgboost(model: fedmq.SimulatedModel) -> None:
    assert model.evals_result() is not None
    assert model.evals_result() == model.evals_result
    assert len(model.evals_result()["eval"]["logloss"]) == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("get_booster", r"it is to_xgboost\(\)"),
        ("best_score", "metrics has it"),
        ("feature_names", "columns has them"),
        ("dump_model", "to_xgboost"),
        ("inplace_predict", "predict"),
        ("save_config", r"share\.params"),
        ("load_model", r"it is called fedmq\.SimulatedModel\.load$"),
    ],
)
def test_names_of_a_booster_are_answered_by_model_and_class(
    model: fedmq.SimulatedModel, name: str, line: str
) -> None:
    for asked in (model, fedmq.SimulatedModel):
        with pytest.raises(AttributeError, match=f"^SimulatedModel has no {name}: {line}"):
            getattr(asked, name)
    with pytest.raises(AttributeError, match=r"^SimulatedModel has no magic$"):
        _ = fedmq.SimulatedModel.magic  # type: ignore[attr-defined]
