"""How do gates compute as float32 does? Rounded to nearest, ties to even, as IEEE 754 says.

A number is a mantissa of 24 bits, whose highest is set unless the number is zero, and an exponent
of 8 bits, that of the highest bit plus a bias; zero has neither. There are no signs, infinities or
subnormals: who builds a circuit sees to it that exponents lie within 1 and 255.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmq.privacy.garbling.circuit import FALSE, TRUE, Circuit, Word
from fedmq.privacy.garbling.float_bits import EXPONENT_BITS, MANTISSA_BITS
from fedmq.privacy.garbling.integers import (
    constant,
    difference,
    difference_and_order,
    select,
    sum_and_carry,
    swap,
    total,
    when,
)

__all__ = [
    "Float",
    "float_difference",
    "float_from_integer",
    "float_quotient",
    "float_sum",
]


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
        """The number of such a word."""
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

    What is below zero is no number.
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

    Restores nothing: a remainder below zero is added to in the next step instead (Ercegovac and
    Lang, Division and Square Root, 1994). Of a division by zero nothing is promised.
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
    """With an exponent of 0 where the mantissa is 0."""
    return Float(mantissa, when(c, mantissa[-1], exponent))


def _normalised(c: Circuit, word: Word) -> tuple[Word, int, Word]:
    """The 25 bits from the highest set one on, whether a lower one is set, and the zeros above."""
    kept, rest, zeros = word, FALSE, []
    for power in reversed(range((len(word) - 1).bit_length())):
        by = 2**power
        empty = c.any_of(kept[-by:]) ^ 1
        # What follows shifts by less than 2**power: lower bits can only be remembered as a rest.
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
