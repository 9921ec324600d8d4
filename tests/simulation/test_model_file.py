"""A simulated model as a file, a pickle, and a line of text."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.errors import DataError
from tests.boosting.tables import scattered

X, Y = scattered(300, 4, seed=2, missing=0.05)
GIVEN: dict[str, Any] = {"active": X[:, :2], "passive": {"telco": X[:, 2:]}}


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return fedmq.simulate(
        **GIVEN,
        label=Y,
        params={"num_boost_round": 6, "max_depth": 3, "max_bin": 16, "early_stopping_rounds": 2},
        engine="plain",
        evaluation=np.arange(300) % 3 == 0,
    )


def saved(model: fedmq.SimulatedModel, folder: Path) -> fedmq.SimulatedModel:
    model.save(folder / "model.json")
    return fedmq.SimulatedModel.load(folder / "model.json")


def pickled(model: fedmq.SimulatedModel, _: Path) -> fedmq.SimulatedModel:
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  (our own bytes)
    assert isinstance(again, fedmq.SimulatedModel)
    return again


def copied(model: fedmq.SimulatedModel, _: Path) -> fedmq.SimulatedModel:
    return copy.deepcopy(model)


@pytest.mark.parametrize("way", [saved, pickled, copied], ids=lambda way: way.__name__)
def test_a_model_comes_back_as_it_was(
    way: Any, model: fedmq.SimulatedModel, tmp_path: Path
) -> None:
    again = way(model, tmp_path)
    assert again.share.dumps() == model.share.dumps()
    assert list(again.passive_shares) == list(model.passive_shares)
    np.testing.assert_array_equal(again.predict(**GIVEN), model.predict(**GIVEN))
    assert again.traffic == model.traffic
    assert again.bytes_sent == model.bytes_sent > 0
    assert again.evals_result == model.evals_result
    assert again.best_iteration == model.best_iteration is not None
    assert repr(again) == repr(model)


def test_what_a_private_training_spent_comes_back(tmp_path: Path) -> None:
    model = fedmq.simulate(
        **GIVEN, label=Y, params={"num_boost_round": 1}, engine="ldp", engine_options={"epsilon": 2}
    )
    assert saved(model, tmp_path).epsilon_spent == model.epsilon_spent == pytest.approx(4)


def test_its_text_says_what_was_learned_with_whom(model: fedmq.SimulatedModel) -> None:
    text = repr(model)
    assert text.startswith("<SimulatedModel binary:logistic, ")
    assert " rounds, active: 2 columns, telco: 2 columns, best_iteration=" in text
    assert f"eval-logloss={model.share.metrics['eval-logloss']:.6g}" in text


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"version": 2}, "not a model: version: .*version 2 is unknown"),
        ({"format": "fedmq.active-share"}, "not a model: format: "),
        ({"passive_shares": [{}]}, r"not a model: passive_shares\.0\.model_id: Field required"),
    ],
    ids=["version", "format", "shares"],
)
def test_a_file_that_is_no_model_is_refused_in_one_line(
    change: dict[str, Any], line: str, model: fedmq.SimulatedModel, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    model.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=f"^{path}: {line}") as caught:
        fedmq.SimulatedModel.load(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json: cannot be read: No such file"):
        fedmq.SimulatedModel.load(tmp_path / "none.json")


def test_a_folder_is_no_place_for_a_model(model: fedmq.SimulatedModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{tmp_path}: cannot be written: "):
        model.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
