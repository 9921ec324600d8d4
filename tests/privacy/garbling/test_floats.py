"""Parts compute, bit for bit, what NumPy computes with float32."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.garbling.circuit import float_bits, floats_of
from tests.privacy.garbling.float_parts import BIAS, PARTS, operands


@pytest.mark.parametrize("part", PARTS, ids=lambda name: name.replace(" ", "-"))
def test_a_part_computes_as_numpy_does(part: str) -> None:
    assert PARTS[part](np.random.default_rng(1), 250_000) == 0


def test_numbers_enter_and_leave_a_circuit() -> None:
    numbers, _ = operands(np.random.default_rng(0), 20_000)
    numbers[:5] = 0, 1, 2.0**-149, 2.0**100, np.nextafter(np.float32(1), np.float32(2))
    np.testing.assert_array_equal(floats_of(float_bits(numbers, BIAS), BIAS), numbers)


def test_words_are_ordered_as_numbers_are() -> None:
    numbers = np.sort(operands(np.random.default_rng(0), 20_000)[0])
    bits = float_bits(numbers, BIAS)
    words = (bits.astype(np.int64) << np.arange(32)[:, np.newaxis]).sum(axis=0)
    assert (np.diff(words) >= 0).all()
    np.testing.assert_array_equal(np.diff(words) > 0, np.diff(numbers) > 0)


@pytest.mark.parametrize("number", [2.0**-149, 2.0**110, np.inf, np.nan], ids=str)
def test_a_number_that_does_not_fit_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="exponents do not fit 8 bits"):
        float_bits(np.array([1, number], np.float32), BIAS - 1 if number < 1 else BIAS)
