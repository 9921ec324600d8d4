"""Which gates does a result need? XOR and NOT, which are free, and AND, which costs 32 bytes.

Words are built on gates: unsigned integers of any length, and numbers with signs, rounded as
float32 or as float64 is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DOUBLE",
    "FALSE",
    "SINGLE",
    "TRUE",
    "Circuit",
    "CircuitNumbers",
    "Format",
    "Gate",
    "Real",
    "Word",
    "at_least",
    "constant",
    "difference",
    "difference_and_order",
    "inverted",
    "real_bits",
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


class Gate(NamedTuple):
    """XOR or AND of two wires."""

    kind: Literal["xor", "and"]
    left: int
    right: int


class Circuit:
    """Gates, added one by one; adding an existing gate again reuses it.

    A wire is twice the number of its node, and one more where the node's bit is inverted: NOT is no
    gate. Node 0 is the constant; other nodes are inputs or gates. Long sums of a ``shallow`` one
    wait for half as many ANDs one after the other, and take nearly three times as many: it is for
    few instances, each layer of which costs about the same.
    """

    def __init__(self, *, shallow: bool = False) -> None:
        self.shallow = shallow
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
        left, right = left & ~1, right & ~1
        if left > right:
            left, right = right, left
        if left == right:
            return inverted
        if left == FALSE:
            return right | inverted
        return self._gate("xor", left, right) | inverted

    def both(self, left: int, right: int) -> int:
        """AND."""
        if left > right:
            left, right = right, left
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
        node = self._nodes.setdefault(gate, self._count)
        if node == self._count:
            self.gates[node] = gate
            self._count += 1
        return 2 * node


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
    if not c.shallow:
        return _rippled(c, left, right, carry)
    added, carry = _rippled(c, left[:_BLOCK], right[:_BLOCK], carry)
    for start in range(_BLOCK, len(left), _BLOCK):
        # All blocks are summed at once, as if nothing were carried into them. A carry turns the
        # bits of a sum up to the lowest one that is 0: if there is none, it leaves the block, out
        # of which the sum itself then carries nothing.
        block = slice(start, start + _BLOCK)
        found, out = _rippled(c, left[block], right[block], FALSE)
        below = TRUE
        for bit in found:
            added.append(c.xor(bit, c.both(below, carry)))
            below = c.both(below, bit)
        carry = c.xor(out, c.both(below, carry))
    return added, carry


_BLOCK = 4  # bits


def _rippled(c: Circuit, left: Word, right: Word, carry: int) -> tuple[Word, int]:
    """The sum, in which each bit waits for the carry out of the one before."""
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


# How do gates compute on numbers with signs? To nearest, ties to even, as IEEE 754 says.
#
# There are no infinities, subnormals or NaN: a circuit's author keeps exponents within the bits of
# their `Format`. A constant bit costs no gate, so a number that is never negative, or has few bits,
# costs no more than it must; and a schedule leaves out what no output needs, so a number may hold
# several forms of itself.


SINGLE = 24
"""Significant bits of float32."""

DOUBLE = 53
"""Significant bits of float64."""


@dataclass(frozen=True, slots=True)
class Format:
    """How exponents are kept: that of the highest bit plus ``bias``, in ``exponent_bits``."""

    exponent_bits: int
    bias: int

    def bits(self, *, signed: bool) -> int:
        """Bits of a float32 as an input: mantissa, exponent above it, and a sign if ``signed``."""
        return SINGLE + self.exponent_bits + signed


def real_bits(
    numbers: NDArray[np.float32] | NDArray[np.float64], form: Format, *, signed: bool = True
) -> NDArray[np.bool_]:
    """Bits of ``numbers`` (n,) of 24 significant bits, as `Real.of_input` takes them: (bits, n).

    Raises:
        ValueError: a number is negative though not ``signed``, or leaves the ``form``.
    """
    finite = np.isfinite(numbers)
    fractions, exponents = np.frexp(np.where(finite, np.abs(numbers), 1))
    mantissas = np.ldexp(fractions.astype(np.float64), SINGLE).astype(np.uint64)
    exponents = np.where(mantissas > 0, exponents + (form.bias - 1), 1)
    fits = (exponents > 0) & (exponents < 1 << form.exponent_bits)
    if not (finite & fits & (signed | (numbers >= 0))).all():
        raise ValueError(f"numbers that do not fit {form}")
    exponents = np.where(mantissas > 0, exponents, 0).astype(np.uint64)
    words = mantissas | exponents << np.uint64(SINGLE)
    words |= (numbers < 0).astype(np.uint64) << np.uint64(SINGLE + form.exponent_bits)
    places = np.arange(form.bits(signed=signed), dtype=np.uint64)[:, np.newaxis]
    return (words >> places & np.uint64(1)).astype(np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """``mantissa * 2**(exponent - bias - len(mantissa) + 1)``, negative if ``sign`` is set.

    The mantissa's highest bit is set unless the number is zero, which has exponent 0.
    ``precision``: the bits to which results are rounded, as `SINGLE` or `DOUBLE`; a mantissa may
    have fewer. ``whole``: the same number as an integer, if it is known to be none below 0; rounded
    ``once``: its float32 is the nearest one, not that of its float64. ``rounded``: the same number
    as float32, and ``squared`` its square, if there is a cheaper way to them.
    """

    circuit: Circuit = field(repr=False)
    form: Format
    precision: int
    sign: int
    mantissa: Word
    exponent: Word
    whole: Word | None = None
    once: bool = False
    rounded: Real | None = None
    squared: Real | None = None

    @classmethod
    def of_input(cls, circuit: Circuit, form: Format, word: Word, *, signed: bool = True) -> Real:
        """A float32 of an input of `real_bits`."""
        sign = word[-1] if signed else FALSE
        exponent = word[SINGLE : SINGLE + form.exponent_bits]
        return cls(circuit, form, SINGLE, sign, word[:SINGLE], exponent)

    @classmethod
    def of_whole(
        cls, circuit: Circuit, form: Format, word: Word, sign: int = FALSE, *, once: bool = False
    ) -> Real:
        """The float64 nearest to an unsigned integer, which is negative if ``sign`` is set."""
        whole = word if once or len(word) <= DOUBLE else _whole_double(circuit, word)
        kept, _, zeros = _normalised(circuit, whole, DOUBLE)
        exponent = _exponent_of_whole(circuit, form, whole, zeros)
        rounded = None
        if once or len(word) <= DOUBLE:
            highest, rest, empty = _normalised(circuit, word, SINGLE + 1)
            mantissa, carried = _rounded(circuit, highest, rest)
            places = total(circuit, _exponent_of_whole(circuit, form, word, empty), [], carried)
            rounded = _real(circuit, form, SINGLE, sign, mantissa, places)
        number = _real(circuit, form, DOUBLE, sign, kept, exponent)
        positive = whole if sign == FALSE else None
        return replace(number, whole=positive, once=once, rounded=rounded)

    @classmethod
    def cut(cls, circuit: Circuit, form: Format, word: Word, bits: int) -> Real:
        """The highest ``bits`` of an unsigned integer from its first one on, which are rounded to.

        At most a 2^(1 - bits)th less than the integer.
        """
        kept, _, zeros = _normalised(circuit, word, bits)
        return _real(
            circuit, form, bits, FALSE, kept, _exponent_of_whole(circuit, form, word, zeros)
        )

    @property
    def word(self) -> Word:
        """The exponent above the mantissa: magnitudes are ordered as these words are."""
        return self.mantissa + self.exponent

    def padded(self, bits: int) -> Real:
        """The same number with a mantissa of ``bits`` bits."""
        mantissa = [FALSE] * (bits - len(self.mantissa)) + self.mantissa
        return replace(self, mantissa=mantissa)

    def single(self) -> Real:
        """The number rounded to float32."""
        if self.precision == SINGLE:
            return self
        if self.rounded is not None:
            return self.rounded
        if len(self.mantissa) <= SINGLE:
            return replace(self, precision=SINGLE)
        below = len(self.mantissa) - SINGLE - 1
        rest = self.circuit.any_of(self.mantissa[:below])
        mantissa, carried = _rounded(self.circuit, self.mantissa[below:], rest)
        exponent = total(self.circuit, self.exponent, [], carried)
        return _real(self.circuit, self.form, SINGLE, self.sign, mantissa, exponent)

    def squares(self) -> Real:
        """The square, rounded once."""
        if self.squared is not None:
            return self.squared
        return self._product(_square(self.circuit, self.mantissa), self, FALSE)

    def over(self, divisor: Real) -> Real:
        """The quotient by a number above 0, else undefined."""
        return _quotient(self.circuit, self, divisor)

    def __neg__(self) -> Real:
        rounded = None if self.rounded is None else -self.rounded
        return replace(self, sign=self.sign ^ 1, whole=None, rounded=rounded)

    def __abs__(self) -> Real:
        rounded = None if self.rounded is None else abs(self.rounded)
        return replace(self, sign=FALSE, rounded=rounded)

    def __rmul__(self, factor: int) -> Real:
        """Twice the number."""
        assert factor == 2, "a product by another constant than 2"
        circuit = self.circuit
        exponent = when(circuit, self.mantissa[-1], total(circuit, self.exponent, [TRUE]))
        rounded = None if self.rounded is None else 2 * self.rounded
        whole = None if self.whole is None else [FALSE, *self.whole]
        return replace(self, exponent=exponent, whole=whole, rounded=rounded, squared=None)

    def __mul__(self, other: Real) -> Real:
        if other is self:
            return self.squares()
        product = _product(self.circuit, self.mantissa, other.mantissa)
        return self._product(product, other, self.circuit.xor(self.sign, other.sign))

    def _product(self, product: Word, other: Real, sign: int) -> Real:
        """``product``: that of both mantissas."""
        circuit, form = self.circuit, self.form
        precision = max(self.precision, other.precision)
        kept, rest = _without_zero(circuit, product, precision + 1)
        mantissa, carried = _rounded(circuit, kept, rest)
        exponent = total(circuit, self.exponent, other.exponent, product[-1])
        exponent = difference(circuit, exponent, constant(form.bias, form.exponent_bits))
        exponent = total(circuit, exponent, [], carried)
        return _real(circuit, form, precision, sign, mantissa, exponent)

    def __add__(self, other: Real) -> Real:
        circuit, precision = self.circuit, max(self.precision, other.precision)
        added = _sum(circuit, precision, self.padded(precision), other.padded(precision))
        if self.whole is None or other.whole is None or precision == SINGLE:
            return added
        bits = max(len(self.whole), len(other.whole)) + 1
        whole = total(circuit, self.whole + [FALSE] * (bits - len(self.whole)), other.whole)
        return Real.of_whole(circuit, self.form, whole, once=self.once and other.once)

    def __sub__(self, other: Real) -> Real:
        return self + -other

    def above(self, other: Real) -> Real:
        """``self - other``; where that is below 0, a negative number that is no valid one."""
        circuit, precision = self.circuit, max(self.precision, other.precision)
        if self.sign != FALSE or other.sign != FALSE:
            return self - other
        left, right = self.padded(precision), other.padded(precision)
        found, ordered = _ordered_difference(circuit, precision, left, right)
        return replace(found, sign=circuit.inverse(ordered))

    def at_least(self, other: Real) -> int:
        """Whether ``self >= other``."""
        bits = max(len(self.mantissa), len(other.mantissa))
        return at_least(self.circuit, self.padded(bits).ordered, other.padded(bits).ordered)

    @property
    def ordered(self) -> Word:
        """A word ordered as numbers of the same length are, negative ones below."""
        circuit = self.circuit
        sign = circuit.both(self.sign, self.mantissa[-1])
        return [*(circuit.xor(bit, sign) for bit in self.word), circuit.inverse(sign)]

    def chosen(self, choice: int, other: Real) -> Real:
        """``self`` where ``choice`` is set, else ``other``."""
        circuit, bits = self.circuit, max(len(self.mantissa), len(other.mantissa))
        mantissa = select(circuit, choice, self.padded(bits).mantissa, other.padded(bits).mantissa)
        exponent = select(circuit, choice, self.exponent, other.exponent)
        [sign] = select(circuit, choice, [self.sign], [other.sign])
        precision = max(self.precision, other.precision)
        return Real(circuit, self.form, precision, sign, mantissa, exponent)

    def when(self, condition: int) -> Real:
        """The number where ``condition`` is set, else 0."""
        if condition == TRUE:
            return self
        circuit = self.circuit
        mantissa = when(circuit, condition, self.mantissa)
        exponent = when(circuit, condition, self.exponent)
        rounded = None if self.rounded is None else self.rounded.when(condition)
        return replace(
            self, mantissa=mantissa, exponent=exponent, whole=None, rounded=rounded, squared=None
        )


class CircuitNumbers:
    """The kind of numbers of `fedmq.boosting.gain` that gates compute; conditions are wires.

    ``weighed``: sums of hessians are known to be above 0, and heavy enough, so nothing asks.
    """

    def __init__(self, circuit: Circuit, *, weighed: bool) -> None:
        self._circuit = circuit
        self._weighed = weighed

    def single(self, x: Real) -> Real:
        return x.single()

    def quotient(self, x: Real, y: Real, condition: int) -> Real:
        return x.over(y).when(condition)

    def clipped(self, x: Real, lower: Real, upper: Real) -> Real:
        raised = lower.chosen(lower.at_least(x), x)
        found = upper.chosen(raised.at_least(upper), raised)
        if x.rounded is None or max(lower.precision, upper.precision) > SINGLE:
            return found
        return replace(found, rounded=self.clipped(x.rounded, lower, upper))

    def nearer_to_zero(self, x: Real, by: Real) -> Real:
        nearer = abs(x).above(by)
        return replace(nearer.when(self._circuit.inverse(nearer.sign)), sign=x.sign)

    def excess(self, x: Real, y: Real) -> Real:
        return x.above(y)

    def when(self, condition: int, x: Real) -> Real:
        return x.when(condition)

    def is_positive(self, x: Real) -> int:
        if self._weighed:
            return TRUE
        return self._circuit.both(x.mantissa[-1], self._circuit.inverse(x.sign))

    def at_least(self, x: Real, y: Real) -> int:
        return x.at_least(y)

    def is_heavy(self, x: Real, least: Real) -> int:
        if self._weighed:
            return TRUE
        return self._circuit.both(self.is_positive(x), x.at_least(least))

    def both(self, x: int, y: int) -> int:
        return self._circuit.both(x, y)

    def follows(self, x: int, y: int) -> int:
        return self._circuit.either(self._circuit.inverse(x), y)


def _real(
    c: Circuit, form: Format, precision: int, sign: int, mantissa: Word, exponent: Word
) -> Real:
    """The number, with exponent 0 if the mantissa is 0."""
    return Real(c, form, precision, sign, mantissa, when(c, mantissa[-1], exponent))


# Wholes: integers of any length, of which float64 keeps the highest 53 bits.


def _whole_double(c: Circuit, word: Word) -> Word:
    """The integer that float64 has for ``word``, which is longer: one bit longer than it."""
    found, up = list(word), [FALSE] * len(word)
    none_above = TRUE
    for top in range(len(word) - 1, DOUBLE - 1, -1):
        leads = c.both(none_above, word[top])
        none_above = c.both(none_above, word[top] ^ 1)
        unit = top - DOUBLE + 1  # the lowest bit that stays
        half, rest = word[unit - 1], c.any_of(word[: unit - 1])
        up[unit] = c.both(leads, c.both(half, c.either(rest, word[unit])))
        for place in range(unit):
            found[place] = c.both(found[place], leads ^ 1)
    longer, carry = sum_and_carry(c, found, up)
    return [*longer, carry]


def _exponent_of_whole(c: Circuit, form: Format, word: Word, zeros: Word) -> Word:
    bits = form.exponent_bits
    return difference(c, constant(len(word) - 1 + form.bias, bits), zeros)


# Mantissas: the highest set bit comes to the top, and what falls off at the bottom is a rest.


def _normalised(c: Circuit, word: Word, keep: int) -> tuple[Word, int, Word]:
    """``keep`` bits from the highest set one on, whether a lower one is set, and zeros above."""
    kept, rest, zeros = list(word), FALSE, []
    for power in reversed(range((len(word) - 1).bit_length())):
        by = 2**power
        empty = c.any_of(kept[-by:]) ^ 1
        # Later steps shift by less than 2**power: lower bits matter only as a rest.
        below = max(0, len(kept) - (keep - 1 + by))
        rest = c.either(rest, c.both(empty ^ 1, c.any_of(kept[:below])))
        up = [FALSE] * by + kept[:-by]
        kept = select(c, empty, up[below:], kept[below:])
        zeros.append(empty)
    return [FALSE] * (keep - len(kept)) + kept, rest, zeros[::-1]


def _without_zero(c: Circuit, product: Word, keep: int) -> tuple[Word, int]:
    """The highest ``keep`` bits of a product, at most one of which is zero above; and a rest."""
    product = [FALSE] * (keep + 1 - len(product)) + product
    below, top = len(product) - keep, product[-1]
    kept = select(c, top, product[below:], product[below - 1 : -1])
    rest = c.any_of(product[: below - 1])
    return kept, c.either(rest, c.both(top, product[below - 1]))


def _rounded(c: Circuit, kept: Word, rest: int) -> tuple[Word, int]:
    """One bit less, and whether the exponent grows; ``rest``: whether more is set below."""
    return _up(c, kept, c.both(kept[0], c.either(rest, kept[1])))


def _up(c: Circuit, kept: Word, up: int) -> tuple[Word, int]:
    mantissa, carried = sum_and_carry(c, kept[1:], [], up)
    return [*mantissa[:-1], c.either(mantissa[-1], carried)], carried


def _moved_down(c: Circuit, mantissa: Word, by: Word, below: int) -> tuple[Word, int]:
    """``mantissa`` and ``below`` bits under it, moved down, and whether a set bit fell off."""
    kept, rest = [FALSE] * below + mantissa, FALSE
    stages = (len(kept) - 1).bit_length()
    for power, moved in enumerate(by[:stages]):
        rest = c.either(rest, c.both(moved, c.any_of(kept[: 2**power])))
        kept = select(c, moved, kept[2**power :], kept)
    far = c.any_of(by[stages:])
    rest = c.either(rest, c.both(far, c.any_of(kept)))
    return when(c, far ^ 1, kept), rest


# Sums: the smaller number is moved down below the larger one.


def _sum(c: Circuit, precision: int, left: Real, right: Real) -> Real:
    """``left + right`` of mantissas of ``precision`` bits."""
    subtracts = c.xor(left.sign, right.sign)
    if subtracts == FALSE:
        return _sum_of_magnitudes(c, precision, left, right)
    ordered = at_least(c, left.word, right.word)
    larger, smaller = swap(c, ordered ^ 1, left.word, right.word)
    by = difference(c, larger[precision:], smaller[precision:])
    low, rest = _moved_down(c, smaller[:precision], by, 2)
    turned = [c.xor(bit, subtracts) for bit in [rest, *low]]
    added, carried = sum_and_carry(c, [FALSE] * 3 + larger[:precision], turned, subtracts)
    added.append(c.both(carried, subtracts ^ 1))
    kept, rest, zeros = _normalised(c, added, precision + 1)
    mantissa, carried = _rounded(c, kept, rest)
    exponent = difference(c, total(c, larger[precision:], [TRUE]), zeros)
    exponent = total(c, exponent, [], carried)
    [sign] = select(c, ordered, [left.sign], [right.sign])
    return _real(c, left.form, precision, sign, mantissa, exponent)


def _sum_of_magnitudes(c: Circuit, precision: int, left: Real, right: Real) -> Real:
    """The same of numbers with the same sign."""
    by, ordered = difference_and_order(c, left.exponent, right.exponent)
    turned = ordered ^ 1
    larger, smaller = swap(c, turned, left.word, right.word)
    by = total(c, [c.xor(bit, turned) for bit in by], [], turned)
    low, rest = _moved_down(c, smaller[:precision], by, 1)
    added, carried = sum_and_carry(c, [FALSE, *larger[:precision]], low)
    rest = c.either(rest, c.both(carried, added[0]))
    kept = select(c, carried, [*added[1:], TRUE], added)
    mantissa, rounded_up = _rounded(c, kept, rest)
    exponent = total(c, total(c, larger[precision:], [carried]), [rounded_up])
    return Real(c, left.form, precision, left.sign, mantissa, exponent)


def _ordered_difference(c: Circuit, precision: int, left: Real, right: Real) -> tuple[Real, int]:
    """``left - right`` of numbers that are not negative, and whether it is at least 0.

    A negative difference is no valid number.
    """
    by, ordered = difference_and_order(c, left.exponent, right.exponent)
    low, rest = _moved_down(c, right.mantissa, by, 2)
    left_over, enough = difference_and_order(c, [FALSE] * 3 + left.mantissa, [rest, *low])
    kept, rest, zeros = _normalised(c, left_over, precision + 1)
    mantissa, carried = _rounded(c, kept, rest)
    exponent = total(c, difference(c, left.exponent, zeros), [], carried)
    found = _real(c, left.form, precision, FALSE, mantissa, exponent)
    return found, c.both(ordered, enough)


# Products: the multiples of one mantissa by the bits of the other are added one by one.


def _product(c: Circuit, left: Word, right: Word) -> Word:
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    running = [*when(c, shorter[0], longer), FALSE]
    product = [running[0]]
    for bit in shorter[1:]:
        added, carry = sum_and_carry(c, running[1:], when(c, bit, longer))
        running = [*added, carry]
        product.append(running[0])
    return product + running[1:]


def _square(c: Circuit, word: Word) -> Word:
    """Of two bits that differ the product counts twice, so only half of all are needed."""
    square = [FALSE] * (2 * len(word))
    for place, bit in enumerate(word):
        start = 2 * place
        multiple = [bit, FALSE, *when(c, bit, word[place + 1 :])]
        # What was added before lies below 2^(2 len - place), so no carry leaves this part.
        part, carry = sum_and_carry(c, square[start : start + len(multiple)], multiple)
        square[start : start + len(multiple)] = part
        if start + len(multiple) < len(square):
            square[start + len(multiple)] = carry
    return square


# Quotients: non-restoring division, in which the next step adds to a negative remainder (Ercegovac
# and Lang, Division and Square Root, 1994).


def _quotient(c: Circuit, left: Real, right: Real) -> Real:
    precision = max(left.precision, right.precision)
    bits = max(len(left.mantissa), len(right.mantissa))
    divisor = right.padded(bits).mantissa + [FALSE] * 2
    remainder = difference(c, left.padded(bits).mantissa + [FALSE] * 2, divisor)
    quotient = [remainder[-1] ^ 1]
    rounded = None
    while len(quotient) < precision + 2:
        subtract = quotient[-1]
        summand = [c.xor(bit, subtract) for bit in divisor]
        remainder = total(c, [FALSE, *remainder[:-1]], summand, subtract)
        quotient.append(remainder[-1] ^ 1)
        if len(quotient) == SINGLE + 2 < precision + 2:
            mantissa, grows = _single_of_double(c, quotient, remainder, divisor)
            exponent = _exponent_of_quotient(c, left, right, quotient[0], grows)
            rounded = _real(c, left.form, SINGLE, left.sign, mantissa, exponent)
    restored = total(c, remainder, when(c, remainder[-1], divisor))
    inexact = c.any_of(restored[:-1])
    one, kept, last = _highest(c, quotient)
    mantissa, grows = _rounded(c, kept, c.either(inexact, last))
    exponent = _exponent_of_quotient(c, left, right, one, grows)
    return replace(_real(c, left.form, precision, left.sign, mantissa, exponent), rounded=rounded)


def _highest(c: Circuit, quotient: Word) -> tuple[int, Word, int]:
    """Whether the quotient is at least 1, all its bits but one, and that one if it is the lowest.

    ``quotient``: the highest bit first.
    """
    upwards = quotient[::-1]
    one = upwards[-1]
    return one, select(c, one, upwards[1:], upwards[:-1]), c.both(one, upwards[0])


def _exponent_of_quotient(c: Circuit, left: Real, right: Real, one: int, grows: int) -> Word:
    form = left.form
    exponent = total(
        c,
        difference(c, left.exponent, right.exponent),
        constant(form.bias - 1, form.exponent_bits),
    )
    return total(c, total(c, exponent, [one]), [grows])


def _single_of_double(
    c: Circuit, quotient: Word, remainder: Word, divisor: Word
) -> tuple[Word, int]:
    """The float32 of a quotient's float64: its mantissa, and whether its exponent grows.

    ``quotient`` holds 26 bits, 25 of which count. What follows these is lost to float64 if it is
    within 2^-29 of nothing, or of a whole unit of the 25th bit.
    """
    restored = total(c, remainder, when(c, remainder[-1], divisor))[:-1]
    one, kept, last = _highest(c, quotient)
    units = divisor[:-2]  # remainder and divisor in the divisor's own units: both end above 2 zeros
    left_over = restored[: len(units)]
    short = DOUBLE - SINGLE  # 29 bits
    near = select(c, one, units[short - 1 :], [*units[short:], FALSE])
    above_near = c.inverse(at_least(c, near, left_over))
    missing = difference(c, units, left_over)
    below_one = at_least(c, near, missing)
    rest = c.either(above_near, last)
    whole = c.both(below_one, c.either(one ^ 1, last))
    half, odd = kept[0], kept[1]
    up = c.both(half, c.either(rest, odd))
    up_at_whole = c.both(whole, c.both(half ^ 1, odd))
    return _up(c, kept, c.xor(up, up_at_whole))
