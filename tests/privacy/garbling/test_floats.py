"""Parts compute, bit for bit, what NumPy computes with float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.how_often import seldom
from tests.privacy.garbling import float64_parts
from tests.privacy.garbling.float64_parts import OPERATIONS, PAIRS
from tests.privacy.garbling.float_parts import BIAS, PARTS, float_bits, operands


@pytest.mark.parametrize("part", PARTS, ids=lambda name: name.replace(" ", "-"))
def test_a_part_computes_as_numpy_does(part: str) -> None:
    assert PARTS[part](np.random.default_rng(1), 250_000) == 0


@pytest.mark.parametrize("name", [*OPERATIONS, "at least"], ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("pair", [*PAIRS[:2], *seldom(*PAIRS[2:])], ids=str)
def test_an_operation_rounds_as_numpy_does(name: str, pair: tuple[int, int]) -> None:
    assert float64_parts.different(name, *pair, 10_000, seed=1) == 0


@pytest.mark.parametrize("bits", [24, 53, 54, 62, *seldom(40, 55, 60)])
def test_integers_become_the_nearest_numbers(bits: int) -> None:
    for to_single in (False, True):
        assert float64_parts.different_wholes(bits, 50_000, to_single=to_single) == 0
    assert float64_parts.different_sums(bits, 50_000) == 0


def test_numbers_enter_a_circuit() -> None:
    numbers, _ = operands(np.random.default_rng(0), 20_000)
    numbers[:5] = 0, 1, 2.0**-149, 2.0**100, np.nextafter(np.float32(1), np.float32(2))
    words = (float_bits(numbers, BIAS) << np.arange(32)[:, np.newaxis]).sum(axis=0)
    mantissas, exponents = words & 0xFFFFFF, words >> 24
    found = np.ldexp(mantissas.astype(np.float64), exponents - (BIAS + 23))
    np.testing.assert_array_equal(found, numbers)


def test_words_are_ordered_as_numbers_are() -> None:
    numbers = np.sort(operands(np.random.default_rng(0), 20_000)[0])
    bits = float_bits(numbers, BIAS)
    words = (bits.astype(np.int64) << np.arange(32)[:, np.newaxis]).sum(axis=0)
    assert (np.diff(words) >= 0).all()
    np.testing.assert_array_equal(np.diff(words) > 0, np.diff(numbers) > 0)


@pytest.mark.parametrize("number", [2.0**-149, 2.0**110, np.inf, np.nan], ids=str)
def test_a_number_that_does_not_fit_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="do not fit Format"):
        float_bits(np.array([1, number], np.float32), BIAS - 1 if number < 1 else BIAS)
