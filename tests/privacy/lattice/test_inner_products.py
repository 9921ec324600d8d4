"""Columns that a party cannot read are multiplied by its own: exactly, and under noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    DEGREE,
    MODULUS_BITS,
    ColumnKey,
    Products,
    ProductsLayout,
    answer_products,
    encrypt_column,
    even_noise,
    read_products,
)

PUBLIC = b"p" * 32
SUM_BITS = 50


def layout(rows: int, weight_bits: int = 10) -> ProductsLayout:
    return ProductsLayout(rows, SUM_BITS, 1 << (MODULUS_BITS - SUM_BITS + 45), weight_bits)


def products(
    columns: NDArray[np.int64], weights: NDArray[np.int64]
) -> tuple[NDArray[np.float64], Products]:
    """The inner products, in which noise is 2^45 wide."""
    of = layout(len(columns))
    keys = [ColumnKey(PUBLIC, bytes([number]) * 32) for number in range(columns.shape[1])]
    encrypted = [encrypt_column(key, columns[:, at], of) for at, key in enumerate(keys)]
    noise = [
        even_noise(bytes([answer]) * 32, len(keys), of.width) for answer in range(weights.shape[1])
    ]
    seeds = [bytes([answer]) * 32 for answer in range(weights.shape[1])]
    found = answer_products(PUBLIC, encrypted, weights, of, seeds, noise)
    half = 1 << (MODULUS_BITS - 1)
    read = [
        [((number - of.width // 2 + half) % (2 * half) - half) / 2**of.offset for number in each]
        for each in read_products(keys, found, of)
    ]
    return np.array(read), found


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 300))
def test_inner_products_of_several_columns_at_once(seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    columns = random.integers(-(2**30), 2**30, (rows, 3))
    weights = random.integers(-(2**10), 2**10, (rows, 2))
    found, _ = products(columns, weights)
    assert np.abs(found - weights.T @ columns).max() < 2**44 * 1.001


def test_rows_of_several_ring_elements() -> None:
    random = np.random.default_rng(4)
    columns = random.integers(-(2**30), 2**30, (2 * DEGREE + 5, 1))
    weights = random.integers(-(2**10), 2**10, (2 * DEGREE + 5, 1))
    found, _ = products(columns, weights)
    assert np.abs(found - weights.T @ columns).max() < 2**44 * 1.001


def test_a_hint_looks_random_whatever_the_weights_are() -> None:
    _, found = products(np.ones((50, 1), np.int64), np.zeros((50, 1), np.int64))
    words = found.hints.view("<u2").astype(np.float64) / 2**16
    assert abs(words.mean() - 0.5) < 0.02
    assert abs(words.std() - 12**-0.5) < 0.02


def test_the_parameters_of_all_sizes_are_checked() -> None:
    for rows in (1, 100, 100_000):
        layout(rows)
    with pytest.raises(AssertionError):
        ProductsLayout(1000, SUM_BITS, 2**20, 10)  # noise drowns no error


def test_answers_of_other_lengths_are_refused() -> None:
    key = ColumnKey(PUBLIC, bytes(32))
    _, found = products(np.ones((5, 1), np.int64), np.ones((5, 1), np.int64))
    with pytest.raises(MessageError, match="not a ring element"):
        read_products([key], Products(found.hints[:, :-4], found.numbers), layout(5))
    with pytest.raises(MessageError, match="a number for each column"):
        read_products([key, key], found, layout(5))
