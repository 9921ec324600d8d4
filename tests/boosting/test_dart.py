"""Trees that DART leaves out, and what each tree weighs: drawn as XGBoost draws them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.dart import Dart, StandardRandom
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from tests.boosting.tables import scattered

ROUNDS = 12


@pytest.mark.parametrize("seed", [0, 7, 2**33 + 5])
@pytest.mark.parametrize("normalize_type", ["tree", "forest"])
@pytest.mark.parametrize("sample_type", ["uniform", "weighted"])
@pytest.mark.parametrize(
    "more",
    [
        {"rate_drop": 0.5},
        {"rate_drop": 0.1, "one_drop": True},
        {"rate_drop": 0.3, "skip_drop": 0.4},
        {"rate_drop": 1.0, "num_parallel_tree": 2},
        {"rate_drop": 0.3, "objective": "multi:softprob", "num_class": 3, "one_drop": 1},
    ],
    ids=["half", "one", "skip", "all-parallel", "classes"],
)
def test_trees_weigh_what_xgboosts_do(
    seed: int, normalize_type: str, sample_type: str, more: dict[str, Any]
) -> None:
    xgb = pytest.importorskip("xgboost")
    given = {"seed": seed, "normalize_type": normalize_type, "sample_type": sample_type, **more}
    params = TrainParams(booster="dart", max_depth=1, **given)
    X, y = scattered(60, 2, seed=1)
    label = np.digitize(X[:, 0], [-0.5, 0.5]) if params.num_class else y
    booster = xgb.train(params.to_xgboost() | {"nthread": 1}, xgb.DMatrix(X, label), ROUNDS)
    document = json.loads(booster.save_raw("json"))
    boosted = document["learner"]["gradient_booster"]
    theirs = (boosted if "weight_drop" in boosted else boosted["model"])["weight_drop"]
    ours = Dart(params, ROUNDS).weights
    assert len(theirs) == ROUNDS * params.trees_per_round
    assert ours == np.array(theirs, np.float32).tolist()
    assert len(set(theirs)) > 1


def test_a_training_that_goes_on_leaves_out_the_same() -> None:
    params = TrainParams(booster="dart", rate_drop=0.4, skip_drop=0.1)
    straight = Dart(params)
    for rounds in range(1, 20):
        straight.end_round()
        again = Dart(params, rounds)
        assert (again.weights, again.dropped) == (straight.weights, straight.dropped)


def test_the_engine_is_the_standards() -> None:
    """C++ demands this of the 10,000th word of a default-constructed ``std::mt19937``."""
    random = StandardRandom(5489)
    assert [random.word() for _ in range(10_000)][-1] == 4123659995


def test_a_drawn_place_is_below_its_count() -> None:
    random = StandardRandom(1)
    for count in (1, 2, 3, 7, 2**31 + 1):
        assert all(0 <= random.below(count) < count for _ in range(50))
    # More than half of all words are refused for such a count, so that none is likelier.
    drawn = np.array([random.below(2**31 + 1) for _ in range(200)])
    assert 0.4 < (drawn < 2**30).mean() < 0.6


def test_one_weight_needs_no_draw() -> None:
    random, untouched = StandardRandom(3), StandardRandom(3)
    assert random.weighted([0.7]) == 0
    assert random.word() == untouched.word()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"rate_drop": 0.1}, "rate_drop: is a parameter of booster = 'dart'"),
        ({"booster": "gbtree", "one_drop": True}, "one_drop: is a parameter of booster = 'dart'"),
        ({"booster": "dart", "rate_drop": 1.5}, "rate_drop = 1.5: input should be less than"),
        ({"booster": "gblinear"}, "booster = 'gblinear': input should be 'gbtree' or 'dart'"),
        ({"booster": "dart", "early_stopping_rounds": 3}, "early_stopping_rounds: a later round"),
        (
            {
                "booster": "dart",
                "objective": "multi:softprob",
                "num_class": 3,
                "multi_strategy": "multi_output_tree",
            },
            "multi_strategy: fedmq has no vector leaves of dart",
        ),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "-".join(value),
)
def test_what_does_not_fit_dart_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TrainParams(**given)
    assert str(refused.value).startswith(line)


def test_parameters_of_other_models_are_read_again() -> None:
    params = TrainParams()
    assert TrainParams.model_validate_json(params.model_dump_json()) == params
