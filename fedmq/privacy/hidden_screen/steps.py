"""Which gates does an information value need? Two logarithms and a product of each bin, and a sum.

With ``a`` ones and ``z`` zeros in a bin, of all ``N1`` ones and ``N0`` zeros, the circuit of a bin
computes, in fixed point,

    ``d · w``   where ``d = κ (a'/N1 - z'/N0)`` and ``w = log2(a'/z') - log2(N1/N0)``

with ``a' = a`` and ``z' = z``, or half a person more of each where one of both is 0 (as
`fedmq.boosting.screened_columns.Strength` has it). With ``κ = ln 2 / (64 · 0.02)`` the sum over the
bins of a column is its information value in units of 64 steps of 0.02.

The sum ``d`` without half persons is linear in the label, so it comes in shares. What half a person
moves it by, and log2(N1/N0), are known to the active party, which puts them in.

**The bound** (:func:`error_in_steps`). A logarithm is read from 64 chords: log2 bends by 1/ln 2 at
most, so a chord of width 2^-6 lies less than 4.5e-5 below it. Eight bits go along the chord; those
after them are cut, which takes less than 2^-14 / ln 2 < 8.9e-5. Slopes are rounded to 2^-8: at
most 2^-9 · 2^-6 < 3.1e-5. The product is cut to 2^-16, less than 1.6e-5, and a chord's beginning
is rounded, 2^-17 < 0.8e-5. All that is cut lies on one side, within 15e-5, so half of it is added
to each chord: a logarithm is off by less than 7.5e-5 + 3.1e-5 + 0.8e-5 < 2^-13. Then ``w``, the
difference of two, less a number rounded to 2^-17, rounded to 2^-14, is off by less than
2^-12 + 2^-17 + 2^-14. Both shares of ``d`` are cut to 2^-22, which moves it by one unit at most and
2^-14 of one for noise, half a person is rounded to 2^-23, and the label's units to 2^-35 for each
person. A product is cut to 2^-22. Since the shares of ones and of zeros each add up to 1, the sum
of all magnitudes of ``d`` is at most κ (2 + bins (1/N1 + 1/N0) / 2).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.circuit import (
    FALSE,
    TRUE,
    Circuit,
    Word,
    constant,
    difference,
    select,
    total,
    when,
)
from fedmq.privacy.garbling.schedule import Schedule

__all__ = [
    "DIFFERENCE_BITS",
    "FRACTION_BITS",
    "HALF_BITS",
    "LABEL_FRACTION_BITS",
    "LEAST_PEOPLE",
    "MOST_STEPS",
    "RATIO_BITS",
    "SCALE",
    "STEP",
    "STEP_BITS",
    "TERM_BITS",
    "bin_schedule",
    "column_schedule",
    "error_in_steps",
    "known_bits",
    "share_bits",
]

STEP = 0.02
"""Of an information value."""

STEP_BITS = 6

MOST_STEPS = (1 << STEP_BITS) - 1
"""What stands for all that is as much or more."""

SCALE = math.log(2) / ((MOST_STEPS + 1) * STEP)
"""κ."""

LEAST_PEOPLE = 8
"""With either label: of fewer the fixed point does not hold the shares."""

LABEL_FRACTION_BITS = 34
"""Of what a person adds to ``d``."""

FRACTION_BITS = 22
"""Of ``d``, and of its products."""

DIFFERENCE_BITS = FRACTION_BITS + 1
"""Of ``d`` with its sign: its magnitude is below κ (1 + 1/16) < 1."""

HALF_BITS = DIFFERENCE_BITS
"""Of what half a person of each label moves ``d`` by."""

_LOG_FRACTION = 16
_LOG_ERROR = 2.0**-13
_WEIGHT_FRACTION = 13
_WEIGHT_BITS = 1 + 5 + _WEIGHT_FRACTION  # a weight of evidence is below 32 in magnitude
RATIO_BITS = 1 + 5 + _LOG_FRACTION
"""Of log2(N1/N0) with its sign."""

_INDEX_BITS, _ALONG_BITS = 6, 8
_SLOPE_FRACTION = 8
_MOST_BINS_BITS = 6


def share_bits(rows: int) -> int:
    """Bits of a share of a bin's ones: two below a person, which the noise rounds."""
    return rows.bit_length() + 2


def known_bits(ones: int, zeros: int) -> tuple[int, int]:
    """What the active party puts in for half a person, and for log2(N1/N0), as words' numbers.

    The second is less by half of the last place that is kept, so that to cut is to round.
    """
    half = round(SCALE * (1 / ones - 1 / zeros) / 2 * 2**FRACTION_BITS)
    ratio = round(math.log2(ones / zeros) * 2**_LOG_FRACTION)
    return half, ratio - (1 << (_LOG_FRACTION - _WEIGHT_FRACTION - 1))


def error_in_steps(bins: int, ones: int, zeros: int) -> float:
    """How far the circuits' value is at most from that of the shares, in steps."""
    rows, each = ones + zeros, 1 / ones + 1 / zeros
    weight = math.log2(2 * rows + 1) + abs(math.log2(ones / zeros))
    of_weight = 2 * _LOG_ERROR + 2.0**-17 + 2.0**-14
    unit = 2.0**-FRACTION_BITS
    of_difference = bins * (1 + 2.0**-14 + 0.5) * unit + rows * 2.0**-35
    magnitudes = SCALE * (2 + bins * each / 2)
    error = of_difference * (weight + of_weight) + magnitudes * of_weight + bins * unit
    return (MOST_STEPS + 1) * error


@cache
def bin_schedule(rows: int) -> Schedule:
    """The ``term`` of a bin: d · w.

    ``own`` inputs are the passive party's: its shares of ones and of d, and the people of the bin;
    ``other`` those of the active party, and ``half`` and ``ratio`` as `known_bits` has them.
    """
    c, bits = Circuit(), rows.bit_length()
    shared = share_bits(rows)
    ones = total(c, c.input("own ones", shared), c.input("other ones", shared))[2:]
    moved = total(
        c, c.input("own difference", DIFFERENCE_BITS), c.input("other difference", DIFFERENCE_BITS)
    )
    zeros = difference(c, c.input("own people", bits), ones)
    alike = c.either(c.inverse(c.any_of(ones)), c.inverse(c.any_of(zeros)))
    moved = total(c, moved, when(c, alike, c.input("half", HALF_BITS)))
    weight = difference(c, _logarithm(c, [alike, *ones]), _logarithm(c, [alike, *zeros]))
    weight = difference(c, weight, c.input("ratio", RATIO_BITS))
    weight = weight[_LOG_FRACTION - _WEIGHT_FRACTION :]
    assert len(weight) == _WEIGHT_BITS
    c.output("term", _signed_product(c, moved, weight)[_WEIGHT_FRACTION:])
    return Schedule.of(c)


TERM_BITS = DIFFERENCE_BITS + _WEIGHT_BITS - _WEIGHT_FRACTION


@cache
def column_schedule(bins: int, least: int) -> Schedule:
    """The ``steps`` of a column of so many ``bins``, by its ``terms``; 0 if below ``least``."""
    assert bins < 1 << _MOST_BINS_BITS
    c = Circuit()
    wire = c.input("terms", bins * TERM_BITS)
    words = [wire[start : start + TERM_BITS] for start in range(0, len(wire), TERM_BITS)]
    whole = _extended(words[0], TERM_BITS + _MOST_BINS_BITS)
    for word in words[1:]:
        whole = total(c, whole, _extended(word, len(whole)))
    steps = whole[FRACTION_BITS - STEP_BITS :]
    low, high, negative = steps[:STEP_BITS], steps[STEP_BITS:-1], steps[-1]
    over = c.any_of(high)
    low = [c.either(bit, over) for bit in low]
    enough = difference(c, [*low, FALSE], constant(least, STEP_BITS + 1))[-1] ^ 1
    c.output("steps", when(c, c.both(c.inverse(negative), enough), low))
    return Schedule.of(c)


def _extended(word: Word, bits: int) -> Word:
    return word + [word[-1]] * (bits - len(word))


def _signed_product(c: Circuit, left: Word, right: Word) -> Word:
    """The product of two numbers with signs, in two's complement: as long as both together."""
    running = _extended(when(c, right[0], left), len(left) + 1)
    product = [running[0]]
    for place, bit in enumerate(right[1:], 2):
        part = _extended(when(c, bit, left), len(left) + 1)
        add = difference if place == len(right) else total  # the highest bit counts negatively
        running = add(c, [*running[1:], running[-1]], part)
        product.append(running[0])
    return product + running[1:]


# Logarithms: the highest bit moves to the top, and chords give the rest.


def _logarithm(c: Circuit, word: Word) -> Word:
    """log2 of a number above 0, more by as much for all words of this length: RATIO_BITS bits."""
    zeros, kept = [], word
    for shift in (16, 8, 4, 2, 1):
        if shift >= len(word):
            zeros.append(FALSE)
            continue
        empty = c.inverse(c.any_of(kept[-shift:]))
        kept = select(c, empty, [FALSE] * shift + kept[:-shift], kept)
        zeros.append(empty)
    fraction = _fitted(kept[:-1], _INDEX_BITS + _ALONG_BITS)
    along, index = fraction[:_ALONG_BITS], fraction[_ALONG_BITS:]
    begins, slopes = _chords()
    chosen = _one_of(c, index)
    begin = _from_table(c, chosen, begins, _LOG_FRACTION)
    slope = _from_table(c, chosen, slopes, _SLOPE_FRACTION + 1)
    more = _product(c, slope, along)[_INDEX_BITS + 2 * _ALONG_BITS - _LOG_FRACTION :]
    places = [c.inverse(bit) for bit in reversed(zeros)]
    return total(c, [*begin, *places, FALSE], more)


def _fitted(word: Word, bits: int) -> Word:
    return [FALSE] * (bits - len(word)) + word[max(0, len(word) - bits) :]


@cache
def _chords() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each chord of log2(1 + x) begins, and its slope, in fixed point: int64 (64,)."""
    ends = np.log2(1 + np.arange((1 << _INDEX_BITS) + 1) / (1 << _INDEX_BITS))
    slopes = np.rint(np.diff(ends) * 2 ** (_INDEX_BITS + _SLOPE_FRACTION)).astype(np.int64)
    centre = 7.4e-5  # half of what is cut
    begins = np.rint((ends[:-1] + centre) * 2**_LOG_FRACTION).astype(np.int64)
    return begins, slopes


def _one_of(c: Circuit, index: Word) -> list[int]:
    """A wire for each number that ``index`` may be: set where it is that."""
    wires = [TRUE]
    for bit in reversed(index):
        set_ = [c.both(wire, bit) for wire in wires]
        wires = [
            each
            for wire, high in zip(wires, set_, strict=True)
            for each in (c.xor(wire, high), high)
        ]
    return wires


def _from_table(c: Circuit, chosen: list[int], table: NDArray[np.int64], bits: int) -> Word:
    word = []
    for bit in range(bits):
        found = FALSE
        for wire, number in zip(chosen, table.tolist(), strict=True):
            if number >> bit & 1:
                found = c.xor(found, wire)
        word.append(found)
    return word


def _product(c: Circuit, left: Word, right: Word) -> Word:
    running, product = [*when(c, right[0], left), FALSE], list[int]()
    for bit in right[1:]:
        product.append(running[0])
        running = total(c, [*running[1:], FALSE], when(c, bit, left))
    return product + running
