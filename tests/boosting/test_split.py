from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import best, is_worthwhile, leaf_weights, split_gains


def gain_of(left: tuple[float, float], right: tuple[float, float], **params: float) -> float:
    sides = np.array([[left], [right]], float)
    gains = split_gains(*sides, sides.sum(axis=0)[0], TrainParams(**params))
    assert gains.dtype == np.float32
    return float(gains[0])


def test_gain_is_the_papers_equation_7_without_its_half() -> None:
    expected = 6.0**2 / 5 + 2.0**2 / 9 - 4.0**2 / 13
    assert gain_of((6, 4), (-2, 8), reg_lambda=1) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("lightest", [(0.5, True), (2.0, True), (2.5, False)])
def test_a_side_lighter_than_min_child_weight_is_no_candidate(lightest) -> None:
    weight, valid = lightest
    assert np.isfinite(gain_of((6, 4), (-2, 2), min_child_weight=weight)) == valid


def test_alpha_brings_each_sum_nearer_to_zero_but_not_beyond() -> None:
    expected = 5.0**2 / 5 + 1.0**2 / 9 - 3.0**2 / 13
    assert gain_of((6, 4), (-2, 8), reg_lambda=1, reg_alpha=1) == pytest.approx(expected, rel=1e-6)
    expected = 3.0**2 / 5 - 1.0**2 / 13
    assert gain_of((6, 4), (-2, 8), reg_lambda=1, reg_alpha=3) == pytest.approx(expected, rel=1e-6)


def test_a_side_whose_weight_is_bounded_is_worth_what_that_weight_gains() -> None:
    left = -(2 * 6 * -0.5 + 5 * 0.5**2)  # the best weight is -1.2
    right, total = 2.0**2 / 9, 4.0**2 / 13
    expected = left + right - total
    gain = gain_of((6, 4), (-2, 8), reg_lambda=1, max_delta_step=0.5)
    assert gain == pytest.approx(expected, rel=1e-6)


def test_an_empty_side_is_no_candidate() -> None:
    assert gain_of((6, 4), (0, 0), min_child_weight=0, reg_lambda=0) == -np.inf


def test_a_gain_beyond_float32_is_no_candidate() -> None:
    assert gain_of((1e30, 4), (1, 4)) == -np.inf


def test_gains_of_several_nodes_come_at_once() -> None:
    random = np.random.default_rng(0)
    left, right = random.random((2, 3, 5, 2)) + 1
    total = left[:, 0] + right[:, 0]
    gains = split_gains(left, right, total, TrainParams())
    one_by_one = [split_gains(left[i], right[i], total[i], TrainParams()) for i in range(3)]
    np.testing.assert_array_equal(gains, one_by_one)


def test_the_best_is_the_first_of_all_that_tie() -> None:
    gain, winners = best(np.array([1, 3, 2, 3, -np.inf], np.float32))
    assert (gain, winners.tolist()) == (3, [1, 3])


@pytest.mark.parametrize("gains", [[], [-np.inf, -np.inf]])
def test_without_a_valid_candidate_nothing_wins(gains: list[float]) -> None:
    gain, winners = best(np.array(gains, np.float32))
    assert gain == -np.inf
    assert len(winners) == 0
    assert not is_worthwhile(gain, TrainParams())


def test_a_split_must_gain_more_than_noise_and_no_less_than_gamma() -> None:
    assert not is_worthwhile(np.float32(1e-6), TrainParams())
    assert is_worthwhile(np.float32(2e-6), TrainParams())
    assert is_worthwhile(np.float32(0.1), TrainParams(gamma=0.1))
    assert not is_worthwhile(np.float32(0.0999), TrainParams(gamma=0.1))


@pytest.mark.parametrize(("version", "light"), [("3.2", 0.0), ("3.4", -2.0)])
def test_a_leafs_weight_is_the_papers_equation_5_times_eta(version, light) -> None:
    """A leaf that is lighter than min_child_weight weighs nothing in XGBoost 3.2 alone."""
    params = TrainParams(eta=0.5, xgboost_arithmetic=version)
    weights = leaf_weights(np.array([[6.0, 2.0], [6.0, 0.5], [0.0, 0.0]]), params)
    assert weights.dtype == np.float32
    assert weights.tolist() == [-1.0, light, 0.0]


def test_without_lambda_an_empty_leaf_weighs_nothing() -> None:
    params = TrainParams(reg_lambda=0, min_child_weight=0)
    assert leaf_weights(np.zeros((1, 2)), params).tolist() == [0.0]


def test_a_leaf_adds_no_more_than_max_delta_step_times_eta() -> None:
    params = TrainParams(eta=0.5, max_delta_step=0.7)
    sums = np.array([[6.0, 2.0], [-6.0, 2.0], [0.6, 2.0]])
    np.testing.assert_allclose(leaf_weights(sums, params), [-0.35, 0.35, -0.1], rtol=1e-6)


def test_a_leaf_whose_gradient_is_within_alpha_adds_nothing() -> None:
    params = TrainParams(eta=1, reg_alpha=2)
    sums = np.array([[6.0, 2.0], [1.5, 2.0]])
    np.testing.assert_allclose(leaf_weights(sums, params), [-4 / 3, 0], rtol=1e-6)
