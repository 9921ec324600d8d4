from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmq.boosting.gradients import FixedPoint

reals = st.floats(-1e6, 1e6, width=32)
gradients = hnp.arrays(np.float32, st.tuples(st.integers(1, 50), st.just(2)), elements=reals).map(
    lambda pairs: np.stack((pairs[:, 0], np.abs(pairs[:, 1])), axis=1)
)


@given(gradients)
def test_resolution_is_2_to_the_minus_40_of_the_largest(pairs: np.ndarray) -> None:
    scale = FixedPoint.of(pairs)
    back = scale.to_float(scale.encode(pairs))
    largest = np.abs(pairs).max(axis=0)
    # half a unit of rounding, but a whole one for a hessian that would round to nothing
    assert (np.abs(back - pairs) <= np.ldexp(largest, -39)).all()


@given(gradients, st.randoms())
def test_sums_do_not_depend_on_the_order(pairs: np.ndarray, random) -> None:
    order = list(range(len(pairs)))
    random.shuffle(order)
    encoded = FixedPoint.of(pairs).encode(pairs)
    assert (np.cumsum(encoded[order], axis=0)[-1] == encoded.sum(axis=0)).all()


@pytest.mark.parametrize("rows", [1, 2**22, 2**22 + 1, 2**40])
def test_the_sum_over_all_rows_fits_in_62_bits(rows: int) -> None:
    one = np.array([[1.0, 0.25]], np.float32)
    everything = np.broadcast_to(one, (rows, 2)) if rows <= 2**22 + 1 else _Rows(rows)
    scale = FixedPoint.of(everything)
    assert rows * 2**scale.value_bits <= 2**62
    assert scale.value_bits == (40 if rows <= 2**22 else 62 - (rows - 1).bit_length())
    assert (scale.encode(one) <= 2**scale.value_bits).all()


class _Rows(np.ndarray):
    """A matrix that says it has more rows than memory holds."""

    def __new__(cls, rows: int):
        self = np.ones((1, 2), np.float32).view(cls)
        self.rows = rows
        return self

    def __len__(self) -> int:
        return self.rows


def test_a_positive_hessian_never_vanishes() -> None:
    pairs = np.array([[1, 0.25], [0, 1e-16], [0, 0]], np.float32)
    assert FixedPoint.of(pairs).encode(pairs)[:, 1].tolist()[1:] == [1, 0]


def test_gradients_of_nothing_but_zeros_have_a_scale() -> None:
    zeros = np.zeros((3, 2), np.float32)
    assert not FixedPoint.of(zeros).encode(zeros).any()


def test_sums_go_to_a_finer_grid_and_back_unchanged() -> None:
    coarse, fine = FixedPoint(30, 30, 40), FixedPoint(37, 30, 40)
    sums = np.array([[5, -7], [-(2**50), 2**60]])
    there = fine.rescaled(sums, coarse)
    np.testing.assert_array_equal(fine.to_float(there), coarse.to_float(sums))
    np.testing.assert_array_equal(coarse.rescaled(there, fine), sums)


def test_sums_that_leave_62_bits_on_a_finer_grid_are_cut_off() -> None:
    coarse, fine = FixedPoint(0, 0, 40), FixedPoint(20, 0, 40)
    cut = fine.rescaled(np.array([[2**60, 1], [-(2**60), 1]]), coarse)
    assert cut[:, 0].tolist() == [2**62, -(2**62)]
