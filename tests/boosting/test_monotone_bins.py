"""Pools are the levels of scikit-learn's isotonic regression, and their weights are monotone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from fedmq.boosting.monotone_bins import monotone_pools
from fedmq.boosting.screened_columns import Strength


def strength(
    counts: NDArray[np.int64], ones: NDArray[np.int64], pools: NDArray[np.intp]
) -> Strength:
    summed = [np.bincount(pools, each).astype(np.int64) for each in (counts, ones)]
    found = Strength.of(*summed)
    assert found is not None
    return found


def isotonic(
    counts: NDArray[np.int64], ones: NDArray[np.int64], increasing: bool
) -> NDArray[np.intp]:
    model = IsotonicRegression(increasing=increasing)
    fitted = model.fit_transform(np.arange(len(counts)), ones / counts, sample_weight=counts)
    steps = np.abs(np.diff(fitted)) > 1e-9
    return np.concatenate(([0], np.cumsum(steps)))


@pytest.mark.parametrize("seed", range(20))
def test_pools_are_those_of_isotonic_regression(seed: int) -> None:
    draw = np.random.default_rng(seed)
    counts = draw.integers(20, 60, size=20)
    trend = np.linspace(0.3, 0.7, 20)[:: draw.choice([-1, 1])]
    ones = np.clip(draw.binomial(counts, trend), 1, counts - 1)  # both labels in each bin
    both = [isotonic(counts, ones, rising) for rising in (True, False)]
    expected = max(both, key=lambda pools: strength(counts, ones, pools).iv)
    np.testing.assert_array_equal(monotone_pools(counts, ones), expected)
    assert len(np.unique(expected)) > 3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_weights_are_strictly_monotone_and_pools_have_both_labels(
    bins: list[tuple[int, int]],
) -> None:
    ones, zeros = np.array(bins, np.int64).T
    pools = monotone_pools(ones + zeros, ones)
    assert (np.diff(pools) >= 0).all() and set(np.diff(pools)) <= {0, 1}
    held, lacking = (np.bincount(pools, each) for each in (ones, zeros))
    if len(held) > 1:
        assert held.all() and lacking.all()
        steps = np.diff(strength(ones + zeros, ones, pools).woe)
        assert (steps > 0).all() or (steps < 0).all()


def test_labels_that_are_all_alike_leave_one_pool() -> None:
    counts = np.array([4, 5, 6])
    assert monotone_pools(counts, counts).tolist() == [0, 0, 0]
    assert monotone_pools(counts, np.zeros(3, int)).tolist() == [0, 0, 0]
