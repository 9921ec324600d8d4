"""Vectors that vanish under a matrix: orthonormal, random, and honest about how many there are."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.masking import (
    FewColumnsSpan,
    OneHotSpan,
    is_orthonormal,
    leverages,
    null_vectors,
)


def drawn(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rows", [40, 5000])
def test_they_are_orthonormal_and_vanish(rows: int) -> None:
    columns = drawn().normal(size=(rows, 2)) * [1, 1e12]
    vectors = null_vectors(FewColumnsSpan(columns), 8, drawn(1))
    assert vectors.shape == (rows, 8)
    assert is_orthonormal(vectors)
    assert np.abs(vectors.T @ columns / np.linalg.norm(columns, axis=0)).max() < 1e-15


@pytest.mark.parametrize(
    ("columns", "rank"),
    [
        (np.zeros((10, 2)), 0),
        (np.ones((10, 2)), 1),
        (np.outer(np.arange(10.0), [1, -3]), 1),
        (np.column_stack((np.ones(10), 1 + 1e-9 * np.arange(10))), 2),
        (np.eye(10)[:, :2], 2),
    ],
)
def test_columns_that_depend_on_each_other_count_once(columns: np.ndarray, rank: int) -> None:
    span = FewColumnsSpan(columns)
    assert span.rank == rank
    vectors = null_vectors(span, 99, drawn())
    assert vectors.shape == (10, 10 - rank)
    assert is_orthonormal(vectors)
    assert np.abs(vectors.T @ columns).max() < 1e-14


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_two_rows_leave_no_room(rows: int) -> None:
    span = FewColumnsSpan(drawn().normal(size=(rows, 2)))
    assert null_vectors(span, 4, drawn()).shape == (rows, 0)


def test_a_one_hot_span_holds_every_sum_of_bins_and_the_dense_columns() -> None:
    codes = drawn().integers(0, 6, (500, 4)).astype(np.uint8)
    codes[:, 3] = codes[:, 2]  # a repeated feature adds nothing to the rank
    dense = drawn(1).normal(size=(500, 3))
    span = OneHotSpan(codes, dense)
    span.factorise()
    indicators = np.concatenate([codes == code for code in range(6)], axis=1).astype(float)
    assert span.rank == np.linalg.matrix_rank(np.concatenate((indicators, dense), axis=1))
    assert span.rank <= span.largest_rank
    vectors = null_vectors(span, 10, drawn(2))
    assert is_orthonormal(vectors)
    assert np.abs(indicators.T @ vectors).max() < 1e-13
    assert np.abs(dense.T @ vectors).max() < 1e-12


def test_a_row_alone_in_its_bin_has_no_part_in_the_null_space() -> None:
    codes = np.zeros((100, 1), dtype=np.uint8)
    codes[7] = 1
    span = OneHotSpan(codes, np.empty((100, 0)))
    span.factorise()
    taken = leverages(null_vectors(span, 20, drawn()))
    assert taken[7] < 1e-25
    assert np.delete(taken, 7).min() > 0.01
