"""Parts that compute on float32, in the clear beside NumPy.

``python -m tests.privacy.garbling.float_parts [NUMBERS]`` compares so many of each, and ends with 1
if a bit differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from fedmq.privacy.garbling.circuit import Circuit, Format, Real, real_bits
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear
from fedmq.privacy.oblivious_transfer.correlated import Wide, add, bits_of, wide

BIAS = 150
"""With which the smallest subnormal number has the exponent 1."""

FORM = Format(8, BIAS)

HIGHEST = 2**23


def edges(random: np.random.Generator, count: int) -> np.ndarray:
    """Mantissas as float32 in [2^23, 2^24): half of them drawn, the others near a power of two."""
    near = np.concatenate(
        [np.arange(4), HIGHEST // 2 + np.arange(-2, 3), HIGHEST - 1 - np.arange(4)]
    )
    drawn = random.integers(0, HIGHEST, count)
    drawn[::2] = random.choice(near, len(drawn[::2]))
    return (drawn + HIGHEST).astype(np.float32)


def operands(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Exponents near one another, now and then far, subnormal, or a zero."""
    exponents = random.integers(-110, 40, count)
    exponents[::16] = -172 + random.integers(0, 30, len(exponents[::16]))
    apart = random.integers(-30, 31, count)
    apart[::3] = random.integers(-3, 4, len(apart[::3]))
    left, right = (edges(random, count) for _ in range(2))
    left, right = np.ldexp(left, exponents), np.ldexp(right, exponents + apart)
    left[5::97], right[7::89] = 0, 0
    same = np.arange(11, count, 101)
    right[same] = left[same]
    return left, right


def float_bits(numbers: np.ndarray, bias: int) -> np.ndarray:
    """The bits of `Real.word` of numbers that are not negative: bool (32, n)."""
    return real_bits(numbers, Format(8, bias), signed=False)


def real(c: Circuit, name: str) -> Real:
    return Real.of_input(c, FORM, c.input(name, 32), signed=False)


@cache
def sums() -> Schedule:
    c = Circuit()
    left, right = (real(c, name) for name in ("left", "right"))
    c.output("sum", (left + right).word)
    difference = left.above(right)
    c.output("difference", difference.word)
    c.output("ordered", [c.inverse(difference.sign)])
    return Schedule.of(c)


@cache
def quotients() -> Schedule:
    c = Circuit()
    left, right = (real(c, name) for name in ("left", "right"))
    c.output("quotient", left.over(right).word)
    return Schedule.of(c)


@cache
def conversions(bits: int) -> Schedule:
    c = Circuit()
    number = Real.of_whole(c, Format(8, 1), c.input("integer", bits), once=True)
    c.output("float", number.single().word)
    return Schedule.of(c)


def different_sums(random: np.random.Generator, count: int) -> int:
    left, right = operands(random, count)
    found = in_the_clear(sums(), {"left": float_bits(left, BIAS), "right": float_bits(right, BIAS)})
    with np.errstate(over="ignore"):
        added, less = left + right, left - right
    ordered = left >= right
    different = (found["sum"] != float_bits(added, BIAS)).any(axis=0)
    different |= found["ordered"][0] != ordered
    wrong = found["difference"] != float_bits(np.where(ordered, less, np.float32(0)), BIAS)
    different |= ordered & wrong.any(axis=0)
    return int(different.sum())


def different_quotients(random: np.random.Generator, count: int) -> int:
    """Quotients are normal numbers; some are exact, many lie beside the middle of two."""
    left, right = operands(random, count)
    right = np.where(right == 0, np.float32(3), right)
    exact = np.arange(13, count, 17)
    factor = np.ldexp(random.integers(1, 4096, len(exact)).astype(np.float32), -8)
    right[exact] = np.ldexp(random.integers(1, 4096, len(exact)).astype(np.float32), 5)
    left[exact] = right[exact] * factor
    with np.errstate(all="ignore"):
        wanted = left / right
    usual = (left == 0) | ((wanted > 2.0**-100) & (wanted < 2.0**100))
    left, right, wanted = left[usual], right[usual], wanted[usual]
    inputs = {"left": float_bits(left, BIAS), "right": float_bits(right, BIAS)}
    found = in_the_clear(quotients(), inputs)["quotient"]
    assert len(wanted) > count / 2
    return int((found != float_bits(wanted, BIAS)).any(axis=0).sum())


def wide_numbers(random: np.random.Generator, count: int, bits: int) -> Wide:
    """Of any length up to ``bits``; half in the middle between two float32, or just beside it."""
    lengths = random.integers(0, bits + 1, count)
    drawn = random.integers(0, 2**64, (count, 2), np.uint64)
    numbers = shifted_down(drawn, 128 - lengths)
    middles = np.flatnonzero((lengths > 24) & (random.random(count) < 0.5))
    mantissas = random.integers(2**24, 2**25, len(middles), np.uint64) | np.uint64(1)
    highest = np.stack([np.zeros_like(mantissas), mantissas << np.uint64(39)], axis=-1)
    beside = random.integers(-1, 2, len(middles))
    beside[lengths[middles] == 25] = 0  # no number lies between
    numbers[middles] = add(shifted_down(highest, 128 - lengths[middles]), wide(beside))
    return numbers


def shifted_down(numbers: Wide, by: np.ndarray) -> Wide:
    """Numbers (n, 2) over two to the power of ``by`` (n,), from 0 to 128."""
    low, high = numbers[:, 0], numbers[:, 1]
    within = (by % 64).astype(np.uint64)
    crossing = np.where(within > 0, high << (np.uint64(64) - within) % np.uint64(64), np.uint64(0))
    zero = np.zeros_like(low)
    within_low, within_high = low >> within | crossing, high >> within
    low = np.select([by >= 128, by >= 64], [zero, within_high], within_low)
    return np.stack([low, np.where(by >= 64, zero, within_high)], axis=-1)


def nearest_floats(numbers: Wide) -> np.ndarray:
    """The float32 nearest to numbers of 128 bits, by NumPy's conversion of those of 64."""
    low, high = numbers[:, 0], numbers[:, 1]
    below = np.where(high < 2**26, 26, 64)
    top = np.where(high < 2**26, high << np.uint64(38) | low >> np.uint64(26), high)
    rest = np.where(high < 2**26, low & np.uint64(2**26 - 1), low)
    wide = np.ldexp((top | (rest != 0)).astype(np.float32), below)
    return np.where(high == 0, low.astype(np.float32), wide)


def different_conversions(random: np.random.Generator, count: int, bits: int) -> int:
    numbers = wide_numbers(random, count, bits)
    found = in_the_clear(conversions(bits), {"integer": bits_of(numbers, bits)})["float"]
    return int((found != float_bits(nearest_floats(numbers), 1)).any(axis=0).sum())


PARTS: dict[str, Callable[[np.random.Generator, int], int]] = {
    "sums and differences": different_sums,
    "quotients": different_quotients,
    "floats of 24 bits": lambda random, count: different_conversions(random, count, 24),
    "floats of 57 bits": lambda random, count: different_conversions(random, count, 57),
    "floats of 110 bits": lambda random, count: different_conversions(random, count, 110),
    "floats of 124 bits": lambda random, count: different_conversions(random, count, 124),
}

AT_ONCE = 1_000_000


def main(count: int) -> int:
    """Compare ``count`` numbers with each part; the numbers that differ."""
    different = 0
    for name, part in PARTS.items():
        random = np.random.default_rng(0)
        found = sum(part(random, min(AT_ONCE, count - start)) for start in range(0, count, AT_ONCE))
        print(f"{name}: {found} of {count:,} differ", flush=True)
        different += found
    return different


if __name__ == "__main__":
    sys.exit(main(int([*sys.argv[1:], "10000000"][0])) > 0)
