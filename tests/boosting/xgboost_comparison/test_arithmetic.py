"""Two arithmetics of XGBoost: which is meant where, and in what they differ."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedmq.boosting import params
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.dart import Dart
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import Arithmetic, TrainParams, arithmetic_of, default_arithmetic
from fedmq.boosting.splits import leaf_weights, split_gains, vector_leaf_weights
from fedmq.boosting.xgboost_comparison.parity import installed_arithmetic, train_reference
from fedmq.errors import ConfigError
from fedmq.party.configuration.job import TrainingJob
from tests.boosting.model.test_tree import small_tree
from tests.boosting.tables import scattered

LEFT, RIGHT = np.array([[3.0, 2.0]]), np.array([[-1.0, 4.0]])
TOTAL = LEFT[0] + RIGHT[0]


def of(version: Arithmetic, **given: Any) -> TrainParams:
    return TrainParams.model_validate({"xgboost_arithmetic": version, **given})


@pytest.mark.parametrize(
    ("version", "expected"),
    [("3.2.0", "3.2"), ("3.3.0", "3.2"), ("3.4.0", "3.4"), ("3.4.1", "3.4"), ("4.0.0-dev", "3.4")],
)
def test_a_release_computes_as_one_of_both(version: str, expected: str) -> None:
    assert arithmetic_of(version) == expected


def test_left_out_it_is_that_of_the_installed_xgboost() -> None:
    pytest.importorskip("xgboost")
    assert TrainParams().xgboost_arithmetic == installed_arithmetic()


def test_without_xgboost_it_is_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "_PACKAGES", ("no-such-package",))
    assert default_arithmetic.__wrapped__() == params.NEWEST


def test_a_share_without_one_is_of_the_oldest() -> None:
    share = ActiveShare(
        model_id="m1",
        parties=("bank", "shop"),
        params=of("3.4", base_score=0.5),
        trees=(small_tree(),),
        lookup_table=LookupTable.empty(("age",)).appended(0, 30.0, False),
    )
    document = json.loads(share.dumps())
    assert ActiveShare.loads(json.dumps(document), "share").params.xgboost_arithmetic == "3.4"
    del document["params"]["xgboost_arithmetic"]
    assert ActiveShare.loads(json.dumps(document), "share").params.xgboost_arithmetic == "3.2"


def test_a_job_begun_by_an_earlier_fedmq_goes_on_as_it_was() -> None:
    document = TrainingJob(params=of("3.4")).model_dump(mode="json")
    assert TrainingJob.of_stored(json.dumps(document)).params.xgboost_arithmetic == "3.4"
    del document["params"]["xgboost_arithmetic"]
    assert TrainingJob.of_stored(json.dumps(document)).params.xgboost_arithmetic == "3.2"


def test_another_arithmetic_than_that_of_the_installed_xgboost_is_refused() -> None:
    pytest.importorskip("xgboost")
    other: Arithmetic = "3.2" if installed_arithmetic() == "3.4" else "3.4"
    X, y = scattered(20, 2, seed=1)
    with pytest.raises(ConfigError, match=f"xgboost_arithmetic = '{other}': the installed"):
        train_reference(BinMatrix.of(X, Cuts.of(X, 4)), y.astype(np.float32), of(other))


def test_dart_is_not_compared_with_the_release_between(monkeypatch: pytest.MonkeyPatch) -> None:
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost, "__version__", "3.3.0")
    X, y = scattered(20, 2, seed=1)
    bins = BinMatrix.of(X, Cuts.of(X, 4))
    with pytest.raises(ConfigError, match="draws trees neither as"):
        train_reference(bins, y.astype(np.float32), of("3.2", booster="dart", rate_drop=0.5))


def test_bounded_weights_gain_less_by_alpha_in_the_newest() -> None:
    """L1 leaves 2.5 of 3 and -0.5 of -1, so weights are -0.5, which is the bound, and 0.1."""
    given = {"max_delta_step": 0.5, "reg_alpha": 0.5}
    sides = 2 * 3 * 0.5 - 3 * 0.25, 2 * 0.1 - 5 * 0.01
    before = 2 * 2 * 1.5 / 7 - 7 * (1.5 / 7) ** 2
    old = split_gains(LEFT, RIGHT, TOTAL, of("3.2", **given))
    np.testing.assert_allclose(old, [sum(sides) - before], rtol=1e-6)
    penalties = 2 * 0.5 * (0.5 + 0.1 - 1.5 / 7)
    new = split_gains(LEFT, RIGHT, TOTAL, of("3.4", **given))
    np.testing.assert_allclose(new, [sum(sides) - before - penalties], rtol=1e-6)


def test_a_light_leaf_has_a_weight_in_the_newest() -> None:
    sums = np.array([3.0, 2.0])
    assert leaf_weights(sums, of("3.2", min_child_weight=5.0)) == 0
    assert leaf_weights(sums, of("3.4", min_child_weight=5.0, eta=1.0)) == -1


def test_sides_of_vector_leaves_weigh_their_mean_in_the_newest() -> None:
    """Hessians 2 and 4 of two outputs are 3 in the mean, though one is lighter."""
    left, right = np.array([[3.0, 2.0, 1.0, 4.0]]), np.array([[-3.0, 9.0, 2.0, 9.0]])
    for least, possible in ((3.0, True), (3.1, False)):
        gains = split_gains(left, right, (left + right)[0], of("3.4", min_child_weight=least))
        assert np.isfinite(gains[0]) == possible
    weights = vector_leaf_weights(left[0], of("3.4", min_child_weight=3.0, eta=1.0), root=False)
    np.testing.assert_array_equal(weights, np.array([-1, -0.2], np.float32))
    weights = vector_leaf_weights(left[0], of("3.2", min_child_weight=3.0, eta=1.0), root=False)
    np.testing.assert_array_equal(weights, np.array([0, -0.2], np.float32))


def test_parallel_trees_of_dart_weigh_by_the_whole_eta_in_the_newest() -> None:
    given: dict[str, Any] = {
        "booster": "dart",
        "one_drop": True,
        "num_parallel_tree": 2,
        "eta": 0.5,
    }
    rates: dict[Arithmetic, float] = {"3.2": 0.25, "3.4": 0.5}
    for version, rate in rates.items():
        weights = Dart(of(version, **given), 2).weights
        assert weights[2] == np.float32(1 / (1 + rate))


def test_the_absolute_error_is_smooth_in_the_newest() -> None:
    """Residuals 1 and -9 with roots 1 and 3, whose mean squared is 4: h is 4 / hypot(4, r)."""
    objective = objective_of(of("3.4", objective="reg:absoluteerror"))
    h = np.array([4 / np.sqrt(17), 4 / np.sqrt(97)])
    found = objective.gradients(np.array([1, 0], np.float32), np.array([0, 9], np.float32))
    np.testing.assert_allclose(found, np.stack(([1, -9] * h, h), axis=1), rtol=1e-6)
    assert objective.leaf_quantile is None


def test_the_quantile_error_is_smooth_in_the_newest() -> None:
    """The same residuals: far from 0 g is 4 (1 - alpha) or -4 alpha, and h at its least."""
    params = of("3.4", objective="reg:quantileerror", quantile_alpha=0.2)
    objective = objective_of(params)
    margins, labels = np.array([1, 0, 0], np.float32), np.array([0, 9, 0], np.float32)
    weight = np.array([1, 1, 0], np.float32)
    found = objective.gradients(margins, labels, weight)
    np.testing.assert_allclose(found[:, 0], [3.2, -0.8, 0], rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], [2, 0.16 / 0.72, 0], rtol=1e-5)
    nothing = objective.gradients(labels, labels, weight)
    np.testing.assert_array_equal(nothing, np.zeros((3, 2), np.float32))
