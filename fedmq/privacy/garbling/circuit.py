"""Which gates does a result need? XOR and NOT, which are free, and AND, which costs 32 bytes.

Words are built on gates: unsigned integers of any length, and float32 numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EXPONENT_BITS",
    "FALSE",
    "MANTISSA_BITS",
    "TRUE",
    "Circuit",
    "Float",
    "Gate",
    "Word",
    "at_least",
    "constant",
    "difference",
    "difference_and_order",
    "float_bits",
    "float_difference",
    "float_from_integer",
    "float_quotient",
    "float_sum",
    "floats_of",
    "inverted",
    "select",
    "sum_and_carry",
    "swap",
    "total",
    "when",
]

Word = list[int]
"""Wires, the lowest bit first."""

FALSE = 0
TRUE = 1


@dataclass(frozen=True, slots=True)
class Gate:
    """XOR or AND of two wires."""

    kind: Literal["xor", "and"]
    left: int
    right: int


class Circuit:
    """Gates, added one by one; adding an existing gate again reuses it.

    A wire is twice the number of its node, and one more where the node's bit is inverted: NOT is no
    gate. Node 0 is the constant; other nodes are inputs or gates.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, list[int]] = {}
        self.outputs: dict[str, Word] = {}
        self.gates: dict[int, Gate] = {}
        self._nodes: dict[Gate, int] = {}
        self._count = 1

    def input(self, name: str, bits: int) -> Word:
        """Add an input word."""
        self.inputs[name] = list(range(self._count, self._count + bits))
        self._count += bits
        return [2 * node for node in self.inputs[name]]

    def output(self, name: str, word: Word) -> None:
        """Name a word that is a result."""
        self.outputs[name] = list(word)

    def xor(self, left: int, right: int) -> int:
        inverted = (left ^ right) & 1
        left, right = sorted((left & ~1, right & ~1))
        if left == right:
            return inverted
        if left == FALSE:
            return right | inverted
        return self._gate("xor", left, right) | inverted

    def both(self, left: int, right: int) -> int:
        """AND."""
        left, right = sorted((left, right))
        if left == FALSE or left ^ right == 1:
            return FALSE
        if left in (TRUE, right):
            return right
        return self._gate("and", left, right)

    def inverse(self, wire: int) -> int:
        """NOT."""
        return wire ^ 1

    def either(self, left: int, right: int) -> int:
        """OR."""
        return self.both(left ^ 1, right ^ 1) ^ 1

    def any_of(self, wires: Sequence[int]) -> int:
        """Whether any of ``wires`` is set: a tree of ORs."""
        rest = list(wires) or [FALSE]
        while len(rest) > 1:
            pairs = [rest[start : start + 2] for start in range(0, len(rest), 2)]
            rest = [self.either(pair[0], pair[-1]) for pair in pairs]
        return rest[0]

    def _gate(self, kind: Literal["xor", "and"], left: int, right: int) -> int:
        gate = Gate(kind, left, right)
        if gate not in self._nodes:
            self._nodes[gate] = self._count
            self.gates[self._count] = gate
            self._count += 1
        return 2 * self._nodes[gate]


# How do gates compute on unsigned integers? Words of any length; a shorter one counts zeros above.
#
# An addition costs an AND a bit (Kolesnikov and Schneider, ICALP 2008), and so do a comparison and
# a choice.


def constant(value: int, bits: int) -> Word:
    """The lowest ``bits`` of ``value``, also of a negative one."""
    return [value >> bit & 1 for bit in range(bits)]


def sum_and_carry(c: Circuit, left: Word, right: Word, carry: int = FALSE) -> tuple[Word, int]:
    """``left + right + carry``, as long as the longer one, and the carry out of it."""
    left, right = _same_length(left, right)
    added = []
    for x, y in zip(left, right, strict=True):
        x_differs = c.xor(x, carry)
        added.append(c.xor(x_differs, y))
        carry = c.xor(carry, c.both(x_differs, c.xor(y, carry)))
    return added, carry


def total(c: Circuit, left: Word, right: Word, carry: int = FALSE) -> Word:
    """``left + right + carry`` modulo two to the length of the longer one."""
    return sum_and_carry(c, left, right, carry)[0]


def difference_and_order(c: Circuit, left: Word, right: Word) -> tuple[Word, int]:
    """``left - right`` modulo two to the length of the longer one, and whether left >= right."""
    left, right = _same_length(left, right)
    return sum_and_carry(c, left, inverted(right, TRUE), TRUE)


def difference(c: Circuit, left: Word, right: Word) -> Word:
    """``left - right`` modulo two to the length of the longer one."""
    return difference_and_order(c, left, right)[0]


def at_least(c: Circuit, left: Word, right: Word) -> int:
    """Whether ``left >= right``."""
    return difference_and_order(c, left, right)[1]


def select(c: Circuit, choice: int, chosen: Word, other: Word) -> Word:
    """``chosen`` where ``choice`` is set, else ``other``."""
    chosen, other = _same_length(chosen, other)
    return [c.xor(y, c.both(choice, c.xor(x, y))) for x, y in zip(chosen, other, strict=True)]


def swap(c: Circuit, choice: int, left: Word, right: Word) -> tuple[Word, Word]:
    """Both words, exchanged where ``choice`` is set."""
    left, right = _same_length(left, right)
    moved = [c.both(choice, c.xor(x, y)) for x, y in zip(left, right, strict=True)]
    return (
        [c.xor(x, bit) for x, bit in zip(left, moved, strict=True)],
        [c.xor(y, bit) for y, bit in zip(right, moved, strict=True)],
    )


def when(c: Circuit, condition: int, word: Word) -> Word:
    """``word``, or 0 where ``condition`` is not set."""
    return [c.both(condition, bit) for bit in word]


def inverted(word: Word, choice: int) -> Word:
    """Every bit inverted if the constant ``choice`` is `TRUE`."""
    return [bit ^ choice for bit in word]


def _same_length(left: Word, right: Word) -> tuple[Word, Word]:
    bits = max(len(left), len(right))
    return left + [FALSE] * (bits - len(left)), right + [FALSE] * (bits - len(right))


# How do float32 numbers enter a circuit, and how do they leave it?
#
# As words of 32 bits: a mantissa of 24 bits, and an exponent above it.


MANTISSA_BITS = 24
EXPONENT_BITS = 8


def float_bits(numbers: NDArray[np.float32] | NDArray[np.float64], bias: int) -> NDArray[np.bool_]:
    """Bits of non-negative ``numbers`` (n,) of 24 significant bits: bool (32, n).

    Raises:
        ValueError: an exponent plus ``bias`` lies outside 1 to 255.
    """
    finite = np.isfinite(numbers)
    fractions, exponents = np.frexp(np.where(finite, numbers, 1))
    mantissas = np.ldexp(fractions.astype(np.float64), MANTISSA_BITS).astype(np.uint32)
    exponents = np.where(mantissas > 0, exponents + (bias - 1), 1)
    if not (finite & (exponents > 0) & (exponents < 1 << EXPONENT_BITS)).all():
        raise ValueError(f"numbers whose exponents do not fit {EXPONENT_BITS} bits")
    exponents = np.where(mantissas > 0, exponents, 0).astype(np.uint32)
    words = (mantissas | exponents << np.uint32(MANTISSA_BITS)).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return np.ascontiguousarray(bits.T).astype(np.bool_)


def floats_of(bits: NDArray[np.bool_], bias: int) -> NDArray[np.float32]:
    """The numbers of ``bits`` (32, n) of `float_bits`, within float32's range."""
    packed = np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")
    words = packed.view("<u4").reshape(-1)
    mantissas = (words & np.uint32((1 << MANTISSA_BITS) - 1)).astype(np.float64)
    exponents = (words >> np.uint32(MANTISSA_BITS)).astype(np.intc)
    numbers = np.ldexp(mantissas, exponents - np.intc(bias + MANTISSA_BITS - 1))
    return np.asarray(numbers, np.float32)


# How do gates compute as float32 does? Rounded to nearest, ties to even, as IEEE 754 says.
#
# A number is a mantissa of 24 bits, whose highest is set unless the number is zero, and an exponent
# of 8 bits, that of the highest bit plus a bias; zero has neither. There are no signs, infinities
# or subnormals: a circuit's author keeps exponents within 1 and 255.


@dataclass(frozen=True, slots=True)
class Float:
    """``mantissa * 2**(exponent - bias - 23)``."""

    mantissa: Word
    exponent: Word

    @property
    def word(self) -> Word:
        """The exponent above the mantissa: numbers are ordered as these words are."""
        return self.mantissa + self.exponent

    @classmethod
    def of(cls, word: Word) -> Float:
        """The number of a word of `word`."""
        return cls(word[:MANTISSA_BITS], word[MANTISSA_BITS:])


def float_from_integer(c: Circuit, integer: Word, bias: int) -> Float:
    """The float32 nearest to an unsigned integer."""
    kept, rest, zeros = _normalised(c, integer)
    mantissa, carried = _rounded(c, kept, rest)
    highest = constant(len(integer) - 1 + bias, EXPONENT_BITS)
    return _number(c, mantissa, total(c, difference(c, highest, zeros), [], carried))


def float_sum(c: Circuit, left: Float, right: Float) -> Float:
    """``left + right`` of numbers with the same bias."""
    by, ordered = difference_and_order(c, left.exponent, right.exponent)
    turned = ordered ^ 1
    larger, smaller = swap(c, turned, left.word, right.word)
    by = total(c, [c.xor(bit, turned) for bit in by], [], turned)
    shifted, rest = _shifted(c, smaller[:MANTISSA_BITS], by, below=1)
    added, carried = sum_and_carry(c, [FALSE, *larger[:MANTISSA_BITS]], shifted)
    rest = c.either(rest, c.both(carried, added[0]))
    kept = select(c, carried, [*added[1:], TRUE], added)
    mantissa, rounded_up = _rounded(c, kept, rest)
    return Float(mantissa, total(c, total(c, larger[MANTISSA_BITS:], [carried]), [rounded_up]))


def float_difference(c: Circuit, left: Float, right: Float) -> tuple[Float, int]:
    """``left - right`` of numbers with the same bias, and whether it is at least zero.

    A negative difference is no valid number.
    """
    by, ordered = difference_and_order(c, left.exponent, right.exponent)
    shifted, rest = _shifted(c, right.mantissa, by, below=2)
    left_over, enough = difference_and_order(c, [FALSE] * 3 + left.mantissa, [rest, *shifted])
    kept, rest, zeros = _normalised(c, left_over)
    mantissa, carried = _rounded(c, kept, rest)
    exponent = total(c, difference(c, left.exponent, zeros), [], carried)
    return _number(c, mantissa, exponent), c.both(ordered, enough)


def float_quotient(c: Circuit, left: Float, right: Float, bias: int) -> Float:
    """``left / right`` of numbers with the same bias; ``bias`` is that of the quotient.

    Non-restoring division: the next step adds to a negative remainder (Ercegovac and Lang, Division
    and Square Root, 1994). The result of a division by zero is undefined.
    """
    bits = MANTISSA_BITS + 2
    divisor = right.mantissa + [FALSE] * 2
    remainder = difference(c, left.mantissa + [FALSE] * 2, divisor)
    quotient = [remainder[-1] ^ 1]
    for _ in range(bits - 1):
        subtract = quotient[-1]
        summand = [c.xor(bit, subtract) for bit in divisor]
        remainder = total(c, [FALSE, *remainder[:-1]], summand, subtract)
        quotient.append(remainder[-1] ^ 1)
    restored = total(c, remainder, when(c, remainder[-1], divisor))
    inexact = c.any_of(restored[:-1])
    quotient.reverse()
    at_least_one = quotient[-1]
    kept = select(c, at_least_one, quotient[1:], quotient[:-1])
    rest = c.either(inexact, c.both(at_least_one, quotient[0]))
    mantissa, rounded_up = _rounded(c, kept, rest)
    exponent = total(
        c, difference(c, left.exponent, right.exponent), constant(bias - 1, EXPONENT_BITS)
    )
    return _number(c, mantissa, total(c, total(c, exponent, [at_least_one]), [rounded_up]))


def _number(c: Circuit, mantissa: Word, exponent: Word) -> Float:
    """The number, with exponent 0 if the mantissa is 0."""
    return Float(mantissa, when(c, mantissa[-1], exponent))


def _normalised(c: Circuit, word: Word) -> tuple[Word, int, Word]:
    """The 25 bits from the highest set one on, whether a lower one is set, and the zeros above."""
    kept, rest, zeros = word, FALSE, []
    for power in reversed(range((len(word) - 1).bit_length())):
        by = 2**power
        empty = c.any_of(kept[-by:]) ^ 1
        # Later steps shift by less than 2**power: lower bits matter only as a rest.
        below = max(0, len(kept) - (MANTISSA_BITS + by))
        rest = c.either(rest, c.both(empty ^ 1, c.any_of(kept[:below])))
        up = [FALSE] * by + kept[:-by]
        kept = select(c, empty, up[below:], kept[below:])
        zeros.append(empty)
    kept = [FALSE] * (MANTISSA_BITS + 1 - len(kept)) + kept
    return kept, rest, zeros[::-1]


def _rounded(c: Circuit, kept: Word, rest: int) -> tuple[Word, int]:
    """25 bits as 24, and whether the exponent grows; ``rest``: whether more is set below."""
    up = c.both(kept[0], c.either(rest, kept[1]))
    mantissa, carried = sum_and_carry(c, kept[1:], [], up)
    return [*mantissa[:-1], c.either(mantissa[-1], carried)], carried


def _shifted(c: Circuit, mantissa: Word, by: Word, below: int) -> tuple[Word, int]:
    """``mantissa`` and ``below`` bits under it, moved down, and whether a set bit fell off."""
    kept, rest = [FALSE] * below + mantissa, FALSE
    stages = (len(kept) - 1).bit_length()
    for power, moved in enumerate(by[:stages]):
        rest = c.either(rest, c.both(moved, c.any_of(kept[: 2**power])))
        kept = select(c, moved, kept[2**power :], kept)
    far = c.any_of(by[stages:])
    rest = c.either(rest, c.both(far, c.any_of(kept)))
    return when(c, far ^ 1, kept), rest
