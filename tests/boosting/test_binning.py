from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError

from fedmq.boosting.binning import BinMatrix, Cuts

tables = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.one_of(st.integers(-9, 9), st.floats(-1e6, 1e6, width=32), st.just(float("nan"))),
)


@given(tables, st.integers(2, 300))
def test_cuts_are_the_inverted_cdf_quantiles(X: np.ndarray, max_bin: int) -> None:
    for column, cuts in zip(X.T, Cuts.of(X, max_bin).thresholds, strict=True):
        x = column[~np.isnan(column)]
        orders = np.arange(1, max_bin) / max_bin
        expected = np.quantile(x, orders, method="inverted_cdf") if len(x) else x
        expected = np.unique(expected).astype(np.float32)
        if len(x):
            expected = expected[expected < x.max()]
        np.testing.assert_array_equal(cuts, expected)


@given(tables, st.integers(2, 300))
def test_each_value_lies_in_its_bin(X: np.ndarray, max_bin: int) -> None:
    cuts = Cuts.of(X, max_bin)
    bins = BinMatrix.of(X, cuts)
    assert (cuts.n_bins <= max_bin).all()
    for feature, thresholds in enumerate(cuts.thresholds):
        bounds = np.concatenate(([-np.inf], thresholds, [np.inf]))
        for value, code in zip(X[:, feature], bins.codes[:, feature].tolist(), strict=True):
            if np.isnan(value):
                assert code == cuts.n_bins[feature]
            else:
                assert bounds[code] < value <= bounds[code + 1]


@given(tables)
def test_missing_values_are_noted_per_feature(X: np.ndarray) -> None:
    cuts = Cuts.of(X, 8)
    np.testing.assert_array_equal(cuts.has_missing, np.isnan(X).any(axis=0))
    np.testing.assert_array_equal(BinMatrix.of(X, cuts).is_missing, np.isnan(X))


def test_a_feature_without_values_has_no_cuts() -> None:
    X = np.full((4, 1), np.nan, np.float32)
    assert Cuts.of(X, 8).n_bins.tolist() == [1]


@pytest.mark.parametrize(
    ("present", "missing", "dtype"),
    [(256, 0, np.uint8), (255, 1, np.uint8), (256, 1, np.uint16), (257, 0, np.uint16)],
)
def test_codes_are_bytes_where_they_fit(present: int, missing: int, dtype: type) -> None:
    x = np.array([*range(present), *[np.nan] * missing], np.float32)[:, None]
    assert BinMatrix.of(x, Cuts.of(x, 1000)).codes.dtype == dtype


def test_cells_are_bins_and_one_missing_cell_per_feature() -> None:
    X = np.array([[1, 5], [2, 5], [3, np.nan]], np.float32)
    cuts = Cuts.of(X, 8)
    assert cuts.n_bins.tolist() == [3, 1]
    assert cuts.first_cell.tolist() == [0, 4, 6]
    assert cuts.n_cells == 6


def test_cuts_return_through_json() -> None:
    X = np.array([[0.1, np.nan], [0.7, 2.0]], np.float32)
    cuts = Cuts.of(X, 4)
    after = Cuts.model_validate_json(cuts.model_dump_json())
    for one, other in zip(cuts.thresholds, after.thresholds, strict=True):
        np.testing.assert_array_equal(one, other)
    assert after.has_missing.tolist() == [False, True]


def test_cuts_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValidationError, match="not ascending"):
        Cuts.model_validate({"thresholds": [[1.0, 1.0]], "has_missing": [False]})
