"""Parts that compute on float32 and float64 with signs, in the clear beside NumPy.

``python -m tests.privacy.garbling.float64_parts [NUMBERS]`` compares so many of each, and ends with
1 if a bit differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from fedmq.privacy.garbling.circuit import (
    DOUBLE,
    SINGLE,
    Circuit,
    CircuitNumbers,
    Format,
    Real,
    Word,
)
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear

FORM = Format(11, 1024)

TYPES = {SINGLE: np.float32, DOUBLE: np.float64}


def numbers(random: np.random.Generator, count: int, precision: int) -> np.ndarray:
    """Of any sign: mantissas near powers of two, or near a float32's, or drawn; and zeros."""
    mantissas = random.integers(2 ** (precision - 1), 2**precision, count)
    near = random.integers(-3, 4, count)
    top = 2 ** random.integers(precision - 2, precision, count)
    mantissas[::3] = (top + near)[::3]
    if precision == DOUBLE:  # halfway between float32s, and next to it
        halfway = random.integers(2**23, 2**24, count) * 2**29 + 2**28
        mantissas[1::3] = (halfway + near)[1::3]
    exponents = random.integers(-30, 31, count)
    exponents[::5] = random.integers(-2, 3, len(exponents[::5]))
    found = np.ldexp(mantissas.astype(np.float64), exponents - precision)
    found *= random.choice([-1, 1], count)
    found[7::97] = 0
    return found.astype(TYPES[precision])


def word_bits(values: np.ndarray) -> np.ndarray:
    """The bits of a `Real` of the same precision: bool (bits, n)."""
    precision = SINGLE if values.dtype == np.float32 else DOUBLE
    fractions, exponents = np.frexp(np.abs(values.astype(np.float64)))
    mantissas = np.ldexp(fractions, precision).astype(np.uint64)
    exponents = np.where(mantissas > 0, exponents + (FORM.bias - 1), 0).astype(np.uint64)
    places = np.arange(precision, dtype=np.uint64)[:, np.newaxis]
    low = mantissas >> places & np.uint64(1)
    high = exponents >> places[: FORM.exponent_bits] & np.uint64(1)
    sign = ((values < 0) & (mantissas > 0))[np.newaxis]
    return np.concatenate([low, high, sign]).astype(np.bool_)


def real_of(c: Circuit, name: str, precision: int) -> Real:
    word = c.input(name, precision + FORM.exponent_bits + 1)
    return Real(c, FORM, precision, word[-1], word[:precision], word[precision:-1])


def word_of(c: Circuit, number: Real) -> Word:
    """As `word_bits`; the sign of a zero counts for nothing."""
    padded = number.padded(number.precision)
    return [*padded.word, c.both(number.sign, padded.mantissa[-1])]


def clipped(x: Real, y: Real) -> Real:
    return CircuitNumbers(x.circuit, weighed=True).clipped(x, -abs(y), abs(y))


def shrunk(x: Real, y: Real) -> Real:
    return CircuitNumbers(x.circuit, weighed=True).nearer_to_zero(x, abs(y))


def positive(x: Real) -> Real:
    return x.when(x.circuit.inverse(x.sign))


def towards_zero(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    by = np.abs(y)
    return np.where(by < x, x - by, np.where(-by > x, x + by, 0.0))


OPERATIONS: dict[str, tuple[Callable[[Real, Real], Real], Callable[..., np.ndarray]]] = {
    "sum": (lambda x, y: x + y, np.add),
    "sum of magnitudes": (lambda x, y: abs(x) + abs(y), lambda x, y: np.abs(x) + np.abs(y)),
    "excess": (
        lambda x, y: positive(abs(x).above(abs(y))),
        lambda x, y: np.maximum(abs(x) - abs(y), 0),
    ),
    "excess with signs": (lambda x, y: positive(x.above(y)), lambda x, y: np.maximum(x - y, 0)),
    "product": (lambda x, y: x * y, np.multiply),
    "twice": (lambda x, _: 2 * x, lambda x, _: 2 * x),
    "square": (lambda x, _: x.squares(), lambda x, _: np.square(x)),
    "quotient": (lambda x, y: x.over(abs(y)), lambda x, y: x / np.abs(y)),
    "quotient as single": (
        lambda x, y: x.over(abs(y)).single(),
        lambda x, y: (x / np.abs(y)).astype(np.float32),
    ),
    "single": (lambda x, _: x.single(), lambda x, _: x.astype(np.float32)),
    "clipped": (clipped, lambda x, y: np.clip(x, -np.abs(y), np.abs(y))),
    "nearer to zero": (shrunk, towards_zero),
}

PAIRS = [(SINGLE, SINGLE), (DOUBLE, DOUBLE), (SINGLE, DOUBLE), (DOUBLE, SINGLE)]


@cache
def schedule(name: str, left: int, right: int) -> Schedule:
    c = Circuit()
    found = OPERATIONS[name][0](real_of(c, "left", left), real_of(c, "right", right))
    c.output("result", word_of(c, found))
    return Schedule.of(c)


@cache
def comparison(left: int, right: int) -> Schedule:
    c = Circuit()
    c.output("result", [real_of(c, "left", left).at_least(real_of(c, "right", right))])
    return Schedule.of(c)


@cache
def conversion(bits: int, to_single: bool) -> Schedule:
    c = Circuit()
    number = Real.of_whole(c, FORM, c.input("whole", bits))
    c.output("result", word_of(c, number.single() if to_single else number))
    return Schedule.of(c)


@cache
def sum_of_wholes(bits: int) -> Schedule:
    c = Circuit()
    left, right = (Real.of_whole(c, FORM, c.input(name, bits)) for name in ("left", "right"))
    c.output("result", word_of(c, left + right))
    return Schedule.of(c)


def wholes(random: np.random.Generator, count: int, bits: int) -> np.ndarray:
    """Integers of up to so many bits, many halfway between two numbers of float64 or float32."""
    found = random.integers(0, 2**bits, count, np.uint64)
    found >>= random.integers(0, bits, count).astype(np.uint64)
    unit = np.uint64(1) << random.integers(0, bits - 1, count).astype(np.uint64)
    halfway = (found // unit * unit + unit // np.uint64(2)) + random.integers(
        0, 2, count, np.uint64
    )
    found[::2] = halfway[::2] & np.uint64(2**bits - 1)
    found[::101] = 0
    found[1::101] = 2**bits - 1
    return found


def integer_bits(values: np.ndarray, bits: int) -> np.ndarray:
    places = np.arange(bits, dtype=np.uint64)[:, np.newaxis]
    return (values >> places & np.uint64(1)).astype(np.bool_)


def different(name: str, left: int, right: int, count: int, seed: int = 0) -> int:
    """How many results of an operation differ in a bit."""
    random = np.random.default_rng(seed)
    x, y = numbers(random, count, left), numbers(random, count, right)
    y[3::41] = x[3::41].astype(y.dtype)
    y[5::43] = -x[5::43].astype(y.dtype)
    if name.startswith("quotient"):
        y[y == 0] = 1
        y[::2] = _near_quotients(random, x, y)[::2]
    inputs = {"left": word_bits(x), "right": word_bits(y)}
    if name == "at least":
        found = in_the_clear(comparison(left, right), inputs)["result"][0]
        return int((found != (x >= y)).sum())
    circuit = schedule(name, left, right)
    found = in_the_clear(circuit, {key: inputs[key] for key in circuit.inputs})["result"]
    return int((found != word_bits(OPERATIONS[name][1](x, y))).any(axis=0).sum())


def _near_quotients(random: np.random.Generator, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Divisors by which quotients lie near the middle of two float32s."""
    middle = (random.integers(2**23, 2**24, len(x)) * 2 + 1) / 2**24
    with np.errstate(divide="ignore"):
        found = np.abs(x / middle).astype(y.dtype)
    return np.where(found > 0, found, 1)


def different_wholes(bits: int, count: int, *, to_single: bool, seed: int = 0) -> int:
    values = wholes(np.random.default_rng(seed), count, bits)
    wanted = values.astype(np.float64)
    wanted = wanted.astype(np.float32) if to_single else wanted
    inputs = {"whole": integer_bits(values, bits)}
    found = in_the_clear(conversion(bits, to_single), inputs)["result"]
    return int((found != word_bits(wanted)).any(axis=0).sum())


def different_sums(bits: int, count: int, seed: int = 0) -> int:
    random = np.random.default_rng(seed)
    x, y = wholes(random, count, bits), wholes(random, count, bits)
    inputs = {"left": integer_bits(x, bits), "right": integer_bits(y, bits)}
    found = in_the_clear(sum_of_wholes(bits), inputs)["result"]
    wanted = x.astype(np.float64) + y.astype(np.float64)
    return int((found != word_bits(wanted)).any(axis=0).sum())


def main(count: int) -> int:
    """Compare ``count`` numbers of each operation; those that differ."""
    wrong = 0
    for name in [*OPERATIONS, "at least"]:
        for left, right in PAIRS:
            found = different(name, left, right, count)
            print(f"{name}, {left} and {right} bits: {found} of {count:,} differ", flush=True)
            wrong += found
    for bits in (24, 40, 53, 54, 55, 60, 62):
        for to_single in (False, True):
            found = different_wholes(bits, count, to_single=to_single)
            print(f"whole of {bits} bits, single {to_single}: {found} differ", flush=True)
            wrong += found
        found = different_sums(bits, count)
        print(f"sums of wholes of {bits} bits: {found} differ", flush=True)
        wrong += found
    return wrong


if __name__ == "__main__":
    sys.exit(main(int([*sys.argv[1:], "1000000"][0])) > 0)
