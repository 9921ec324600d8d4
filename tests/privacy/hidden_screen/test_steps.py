"""Circuits find the steps of the information value that a shown screen would find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import Strength
from fedmq.privacy.garbling.circuit import Circuit
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear
from fedmq.privacy.hidden_screen.steps import (
    DIFFERENCE_BITS,
    FRACTION_BITS,
    LEAST_PEOPLE,
    MOST_STEPS,
    SCALE,
    STEP,
    TERM_BITS,
    _logarithm,
    bin_schedule,
    column_schedule,
    error_in_steps,
    known_bits,
    share_bits,
)
from tests.how_often import examples

Table = tuple[list[int], list[int]]
"""Ones and zeros of each bin."""


def bits_of(numbers: Sequence[int], bits: int) -> NDArray[np.bool_]:
    return np.array([[number >> bit & 1 for number in numbers] for bit in range(bits)], np.bool_)


def numbers_of(bits: NDArray[np.bool_]) -> list[int]:
    return [sum(int(bit) << place for place, bit in enumerate(word)) for word in bits.T]


def terms_of(table: Table, draw: np.random.Generator) -> NDArray[np.bool_]:
    """The terms of a table's bins, of shares that are drawn."""
    ones, zeros = table
    all_ones, all_zeros = sum(ones), sum(zeros)
    rows = all_ones + all_zeros
    units = [round(SCALE * 2**34 / all_ones), round(SCALE * 2**34 / all_zeros)]
    sums = [4 * one + 1 for one in ones]
    moved = [
        (one * units[0] - zero * units[1]) >> 34 - FRACTION_BITS
        for one, zero in zip(ones, zeros, strict=True)
    ]
    of_ones, of_moved = (draw.integers(2**20, size=len(ones)).tolist() for _ in range(2))
    half, ratio = known_bits(all_ones, all_zeros)
    inputs = {
        "own ones": bits_of([-each for each in of_ones], share_bits(rows)),
        "other ones": bits_of(
            [each + mask for each, mask in zip(sums, of_ones, strict=True)], share_bits(rows)
        ),
        "own difference": bits_of([-each for each in of_moved], DIFFERENCE_BITS),
        "other difference": bits_of(
            [each + mask for each, mask in zip(moved, of_moved, strict=True)], DIFFERENCE_BITS
        ),
        "own people": bits_of(np.add(ones, zeros).tolist(), rows.bit_length()),
        "half": bits_of([half] * len(ones), DIFFERENCE_BITS),
        "ratio": bits_of([ratio] * len(ones), 22),
    }
    return in_the_clear(bin_schedule(rows), inputs)["term"]


def steps_of(terms: NDArray[np.bool_], least: int = 1) -> int:
    inputs = {"terms": terms.T.reshape(-1, 1)}
    return numbers_of(in_the_clear(column_schedule(terms.shape[1], least), inputs)["steps"])[0]


def information_value(table: Table) -> float:
    found = Strength.of(np.add(*table), np.array(table[0]))
    assert found is not None
    return found.iv


@st.composite
def tables(draw: Callable[[st.SearchStrategy[int]], int]) -> Table:
    """Up to 51 bins, some of them without people of one label, and as rare ones as may be."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bins, spread = draw(st.integers(1, 51)), draw(st.integers(0, 4))
    ones, zeros = (
        random.multinomial(
            draw(st.integers(LEAST_PEOPLE, 40_000)), random.dirichlet([4.0**-spread] * bins)
        )
        for _ in range(2)
    )
    held = ones + zeros > 0
    return ones[held].tolist(), zeros[held].tolist()


@examples(50)
@given(tables())
def test_a_column_has_the_steps_of_its_information_value(table: Table) -> None:
    terms, value = terms_of(table, np.random.default_rng(1)), information_value(table) / STEP
    error = error_in_steps(len(table[0]), sum(table[0]), sum(table[1]))
    # A border between two steps may be within the proven error of the value.
    allowed = {min(MOST_STEPS, max(0, int(np.floor(value + off)))) for off in (-error, 0, error)}
    assert steps_of(terms) in allowed


@examples(50)
@given(tables())
def test_the_sum_of_terms_is_the_information_value_within_the_proven_error(table: Table) -> None:
    words = numbers_of(terms_of(table, np.random.default_rng(2)))
    signed = [word - (word >> TERM_BITS - 1 << TERM_BITS) for word in words]
    found = sum(signed) / 2**FRACTION_BITS * (MOST_STEPS + 1)
    error = error_in_steps(len(table[0]), sum(table[0]), sum(table[1]))
    assert found == pytest.approx(information_value(table) / STEP, rel=0, abs=error)


def test_the_error_is_a_thirtieth_of_a_step_for_ten_bins_of_30_000_people() -> None:
    assert error_in_steps(10, 6_600, 23_400) < 1 / 30


def test_every_logarithm_of_a_word_is_within_2_to_the_minus_13() -> None:
    c = Circuit()
    c.output("found", _logarithm(c, c.input("word", 18)))
    words = np.arange(1, 1 << 18)
    bits = (words >> np.arange(18)[:, np.newaxis] & 1).astype(np.bool_)
    found = in_the_clear(Schedule.of(c), {"word": bits})["found"]
    read = (found * 2.0 ** np.arange(len(found))[:, np.newaxis]).sum(axis=0) / 2**16
    # All words are read with the same surplus, which a difference takes off again.
    errors = read - np.log2(words) - np.rint(read[0])
    assert np.abs(errors).max() < 2**-13


def test_what_is_below_the_least_steps_is_told_as_none() -> None:
    table = [40, 30, 30], [30, 30, 40]
    terms, steps = terms_of(table, np.random.default_rng(3)), int(information_value(table) / STEP)
    assert steps_of(terms) == steps_of(terms, steps) == steps > 1
    assert steps_of(terms, steps + 1) == 0


def test_a_value_beyond_all_steps_is_told_as_the_most() -> None:
    table = [1000, 0], [0, 1000]
    assert information_value(table) / STEP > MOST_STEPS
    assert steps_of(terms_of(table, np.random.default_rng(4))) == MOST_STEPS
