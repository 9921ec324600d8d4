"""How do gates compute on unsigned integers? Words of any length; a shorter one counts zeros above.

An addition costs an AND a bit (Kolesnikov and Schneider, ICALP 2008), and so do a comparison and a
choice.
"""

from __future__ import annotations

from fedmq.privacy.garbling.circuit import FALSE, TRUE, Circuit, Word

__all__ = [
    "at_least",
    "constant",
    "difference",
    "difference_and_order",
    "inverted",
    "select",
    "sum_and_carry",
    "swap",
    "total",
    "when",
]


def constant(value: int, bits: int) -> Word:
    """The lowest ``bits`` of ``value``, also of a negative one."""
    return [value >> bit & 1 for bit in range(bits)]


def sum_and_carry(c: Circuit, left: Word, right: Word, carry: int = FALSE) -> tuple[Word, int]:
    """``left + right + carry``, as long as the longer of them, and what is carried out of it."""
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
