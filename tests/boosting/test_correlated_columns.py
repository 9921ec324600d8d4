"""Correlations are pandas' own, and variance inflation those of regressions."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from numpy.typing import NDArray

from fedmq.boosting.correlated_columns import MOST_COLUMNS, CorrelatedColumns

RANDOM = np.random.default_rng(2)
ROWS = 400


def table(*columns: NDArray[np.floating]) -> tuple[NDArray[np.float32], list[str]]:
    values = np.stack(columns, axis=1).astype(np.float32)
    return values, [f"x{place}" for place in range(len(columns))]


def of(*columns: NDArray[np.floating]) -> CorrelatedColumns:
    return CorrelatedColumns.of(*table(*columns))


def with_holes(column: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.where(RANDOM.random(ROWS) < 0.3, np.nan, column)


A, B = RANDOM.normal(size=ROWS), RANDOM.normal(3e4, 2.0, ROWS)
C = 2 * A - (B - 3e4) + RANDOM.normal(size=ROWS) * 0.3


def test_coefficients_are_those_of_the_rows_in_which_both_have_a_value() -> None:
    columns = [with_holes(A), with_holes(B), with_holes(C)]
    values, names = table(*columns)
    wanted = pandas.DataFrame(values.astype(np.float64), columns=names).corr().to_numpy()
    np.testing.assert_allclose(of(*columns).coefficients, wanted, atol=1e-9)


def test_inflation_is_that_of_a_regression_on_the_others() -> None:
    found = of(A, B, C)
    values = table(A, B, C)[0].astype(np.float64)
    for place in range(3):
        others = np.column_stack([np.delete(values, place, axis=1), np.ones(ROWS)])
        own = values[:, place]
        left = own - others @ np.linalg.lstsq(others, own, rcond=None)[0]
        wanted = own.var() / left.var()
        assert found.inflation[place] == pytest.approx(wanted, rel=1e-4)


def test_a_column_that_others_tell_has_infinite_inflation_and_a_bystander_none() -> None:
    found = of(A, np.rint(10 * A), 3 * np.rint(10 * A) + 1, RANDOM.normal(size=ROWS))
    assert np.isinf(found.inflation[1]) and np.isinf(found.inflation[2])
    assert np.isfinite(found.inflation[[0, 3]]).all()
    assert found.coefficients[1, 2] == pytest.approx(1)


def test_a_column_that_does_not_vary_is_like_nothing() -> None:
    found = of(A, np.full(ROWS, 7.0), np.full(ROWS, np.nan))
    assert np.isnan(found.coefficients[1:]).all()
    assert np.isnan(found.inflation).all()  # no row has all values
    assert np.isnan(of(A, np.full(ROWS, 7.0)).inflation[1])


def test_of_very_many_columns_the_first_are_compared() -> None:
    wide = RANDOM.normal(size=(50, MOST_COLUMNS + 3)).astype(np.float32)
    found = CorrelatedColumns.of(wide, [f"x{place}" for place in range(MOST_COLUMNS + 3)])
    assert found.coefficients.shape == (MOST_COLUMNS, MOST_COLUMNS)
    assert np.isnan(found.inflation).all()  # fewer rows than columns
