"""Limbs are numbers modulo 2^192, as Python counts them."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.lattice.parameters import add_power, add_shifted, carried, signed_field
from tests.privacy.lattice.computed import integers

Q = 2**192


def test_sums_of_limbs_are_carried() -> None:
    sums = np.random.default_rng(0).integers(-(2**61), 2**61, (6, 50))
    assert integers(carried(sums)) == integers(sums)


def test_carrying_does_several_arrays_at_once() -> None:
    sums = np.random.default_rng(0).integers(-(2**61), 2**61, (3, 6, 5))
    assert [integers(part) for part in carried(sums)] == [integers(part) for part in sums]


@pytest.mark.parametrize("offset", [0, 1, 31, 32, 68, 78, 107, 130, 160, 191])
def test_values_are_added_at_any_bit(offset: int) -> None:
    random = np.random.default_rng(offset)
    values = random.integers(-(2**61), 2**61, 40)
    sums = random.integers(0, 2**32, (6, 40))
    wanted = [
        (before + (value << offset)) % Q
        for before, value in zip(integers(sums), values.tolist(), strict=True)
    ]
    add_shifted(sums, values, offset)
    assert integers(carried(sums)) == wanted


@pytest.mark.parametrize("bit", [0, 31, 32, 79, 191])
@pytest.mark.parametrize("sign", [1, -1])
def test_powers_of_two_are_added(bit: int, sign: int) -> None:
    sums = np.zeros((6, 3), np.int64)
    add_power(sums, bit, sign)
    assert integers(carried(sums)) == [sign * 2**bit % Q] * 3


@pytest.mark.parametrize("offset", [0, 17, 64, 78, 96, 128, 135])
@pytest.mark.parametrize("bits", [42, 57, 64])
def test_signed_fields_are_cut_out(offset: int, bits: int) -> None:
    limbs = np.random.default_rng(bits).integers(0, 2**32, (6, 60)).astype(np.uint32)
    width = min(bits, 192 - offset)
    fields = [(value >> offset) & (2**bits - 1) for value in integers(limbs)]
    wanted = [field - 2**bits if field >> (bits - 1) else field for field in fields]
    assert width <= bits
    assert signed_field(limbs, offset, bits).tolist() == wanted
