"""The steps around the transforms of `fedmq.privacy.sealed_scores.modulus`, in machine code.

Each function does what the one of the same name does there. What is rounded at the end is the same
number to the last bit; transforms on the way may differ in their last bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated
from fedmq.machine_loops import Array, Kind, Loops, Number
from fedmq.privacy.lattice.machine_query import room, untwisted
from fedmq.privacy.lattice.ring import Transform, check_distance, untwist
from fedmq.privacy.sealed_scores.parameters import (
    DEGREE,
    FACTOR_BITS,
    GENERATOR,
    LIMB_BITS,
    LIMBS,
    PRIME,
    SENT_BITS,
)

__all__ = [
    "can_compute",
    "decrypted",
    "factor_transforms",
    "from_slots",
    "is_translated",
    "packed",
    "product",
    "rounded",
    "scaled",
    "ternary_product",
    "to_slots",
    "transforms_of",
    "translate",
    "unpacked",
]

_Whole = NDArray[np.int64]

_HALF = DEGREE // 2
_MASK = (1 << LIMB_BITS) - 1
_SENT_LIMBS = 3
_SENT_TOP = SENT_BITS - 2 * LIMB_BITS
_WORD = 16  # bits of a part of what is sent
_SIDE_BITS = 6
_SIDE = 1 << _SIDE_BITS


@cache
def can_compute() -> bool:
    """Whether these functions are there."""
    return bool(features())


def is_translated() -> bool:
    """Whether they are there already, so that the first call does not take tenths of a second."""
    return bool(_functions.cache_info().currsize)


def translate() -> None:
    """Do that now."""
    if can_compute():
        _functions()


# Elements modulo q


def unpacked(words: NDArray[np.uint64]) -> _Whole:
    """As of `modulus`."""
    _check(words, (2, words.shape[-1]), np.uint64)
    limbs = np.empty((LIMBS, words.shape[1]), np.int64)
    _call("unpacked", limbs, np.ascontiguousarray(words), words.shape[1])
    return limbs


def packed(limbs: _Whole) -> NDArray[np.uint64]:
    """As of `modulus`; the limbs need not be carried."""
    _check(limbs, (LIMBS, limbs.shape[-1]), np.int64)
    words = np.empty((2, limbs.shape[1]), np.uint64)
    _call("packed", words, np.ascontiguousarray(limbs), limbs.shape[1])
    return words


def rounded(limbs: _Whole) -> NDArray[np.uint16]:
    """As of `modulus`."""
    _check(limbs, (LIMBS, limbs.shape[-1]), np.int64)
    parts = np.empty((SENT_BITS // _WORD, limbs.shape[1]), np.uint16)
    _call("rounded", parts, np.ascontiguousarray(limbs), limbs.shape[1])
    return parts


def scaled(numbers: _Whole) -> _Whole:
    """As of `modulus`."""
    _check(numbers, (len(numbers),), np.int64)
    limbs = np.empty((LIMBS, len(numbers)), np.int64)
    _call("scaled", limbs, np.ascontiguousarray(numbers), len(numbers))
    return limbs


# Transforms


def transforms_of(words: NDArray[np.uint64]) -> Transform:
    """The transforms of an element that is packed, uint64 (2, N), made signed: (4, N/2)."""
    _check(words, (2, DEGREE), np.uint64)
    folded = room("folded", LIMBS, _HALF)
    _call("spread", folded, np.ascontiguousarray(words), _twist(_HALF))
    return np.fft.fft(folded, axis=-1)


def factor_transforms(numbers: _Whole) -> Transform:
    """As of `modulus`."""
    _check(numbers, (DEGREE,), np.int64)
    folded = room("folded", 2, _HALF)
    _call("factors", folded, np.ascontiguousarray(numbers), _twist(_HALF))
    return np.fft.fft(folded, axis=-1)


def product(element: Transform, factor: Transform, added: Transform | None, count: int) -> _Whole:
    """As of `modulus`."""
    _check(element, (LIMBS, _HALF), np.complex128)
    _check(factor, (2, _HALF), np.complex128)
    both = room("products", 2 * LIMBS, count // 2)
    more = element if added is None else added  # what is not added does not count, but is read
    _check(more, (LIMBS, _HALF), np.complex128)
    _call(
        "multiplied",
        both,
        np.ascontiguousarray(element),
        np.ascontiguousarray(factor),
        np.ascontiguousarray(more),
        count // 2,
        DEGREE // count,
        int(added is not None),
    )
    if count < DEGREE:
        both *= count / DEGREE
    limbs = np.empty((LIMBS, count), np.int64)
    _gather("gathered", limbs, both)
    return limbs


def ternary_product(element: Transform, factor: Transform) -> _Whole:
    """As of `modulus`."""
    return _coefficients(element * factor)


def decrypted(
    masks: NDArray[np.uint16], numbers: NDArray[np.uint16], secret: Transform, near: int
) -> tuple[_Whole, NDArray[np.bool_]]:
    """As of `modulus`; so ``near`` to a border, of 2^53, a number is in doubt."""
    _check(masks, (SENT_BITS // _WORD, DEGREE), np.uint16)
    _check(numbers, (SENT_BITS // _WORD, numbers.shape[-1]), np.uint16)
    count = numbers.shape[1]
    folded = room("folded", _SENT_LIMBS, _HALF)
    _call("sent", folded, np.ascontiguousarray(masks), _twist(_HALF))
    products = np.fft.fft(folded, axis=-1)
    products *= secret
    if count < DEGREE:
        products = products.reshape(_SENT_LIMBS, -1, count // 2).mean(axis=1)
    found, doubtful = np.empty(count, np.int64), np.empty(count, np.bool_)
    whole, parts = _coefficients(products), np.ascontiguousarray(numbers)
    _call("read", found, doubtful, whole, parts, near, count)
    return found, doubtful


def _coefficients(transforms: Transform) -> _Whole:
    whole = np.empty((len(transforms), 2 * transforms.shape[-1]), np.int64)
    _gather("whole", whole, transforms, len(transforms))
    return whole


def _gather(name: str, whole: _Whole, transforms: Transform, *rows: int) -> None:
    half = transforms.shape[-1]
    folded, farthest = room("back", *transforms.shape), np.empty(1)
    np.fft.ifft(transforms, axis=-1, out=folded)
    _call(name, whole, farthest, folded, untwist(2 * half), half, *rows)
    check_distance(farthest[0])


@lru_cache
def _twist(half: int) -> Transform:
    twist: Transform = np.exp(1j * np.pi * np.arange(half) / (2 * half))
    return twist


# Slots


def to_slots(numbers: _Whole) -> _Whole:
    """As of `modulus`, of N numbers each."""
    return _evaluated(numbers, _ROOT * _ROOT, (_ROOT, 1), (1, 1))


def from_slots(slots: _Whole) -> _Whole:
    """As of `modulus`, of N slots each."""
    inverse = pow(_ROOT, -1, PRIME)
    return _evaluated(slots, inverse * inverse, (1, 1), (inverse, pow(DEGREE, -1, PRIME)))


_ROOT = pow(GENERATOR, (PRIME - 1) // (2 * DEGREE), PRIME)


def _evaluated(
    numbers: _Whole, root: int, before: tuple[int, int], after: tuple[int, int]
) -> _Whole:
    """Σ_c numbers[..., c] root^(ck); ``before`` and ``after`` it times the powers of these."""
    tables = (
        _powers(*before, DEGREE),
        _turns(root % PRIME),
        _powers(*after, DEGREE),
        _powers(pow(root, _SIDE, PRIME), 1, _SIDE // 2),
        _backwards(),
    )
    numbers = np.ascontiguousarray(numbers, np.int64)
    _check(numbers, (*numbers.shape[:-1], DEGREE), np.int64)
    found, room = np.empty_like(numbers), np.empty((2, DEGREE), np.uint32)
    for one, other in zip(found.reshape(-1, DEGREE), numbers.reshape(-1, DEGREE), strict=True):
        _call("evaluated", one, other, *room, *tables)
    return found


@lru_cache
def _powers(root: int, share: int, count: int) -> NDArray[np.uint32]:
    """share, share * root, … as factors."""
    powers = [share]
    while len(powers) < count:
        powers.append(powers[-1] * root % PRIME)
    return _factors(powers)


@lru_cache
def _turns(root: int) -> NDArray[np.uint32]:
    """root^(jk) as factors, row by row."""
    return _factors([pow(root, j * k, PRIME) for j in range(_SIDE) for k in range(_SIDE)])


def _factors(numbers: Sequence[int]) -> NDArray[np.uint32]:
    """``numbers`` modulo t, and their quotients 2^32 w / t, rounded down (Shoup): (2, n)."""
    return np.array([numbers, [(number << 32) // PRIME for number in numbers]], np.uint32)


@cache
def _backwards() -> NDArray[np.int64]:
    """Numbers of 6 bits, their bits turned around."""
    return np.array([int(f"{place:06b}"[::-1], 2) for place in range(_SIDE)], np.int64)


# The code, which is translated once in a process


def _check(array: NDArray[Any], shape: tuple[int, ...], kind: type) -> None:
    if array.shape != shape or array.dtype != kind:
        raise ValueError(f"{array.dtype} {array.shape}, not {kind.__name__} {shape}")


def _call(name: str, *arguments: NDArray[Any] | int) -> None:
    _functions()[name](*(part if isinstance(part, int) else part.ctypes.data for part in arguments))


@cache
def _functions() -> dict[str, Callable[..., None]]:
    loops = Loops()
    for name, (kinds, numbers, write) in _WRITTEN.items():
        loops.function(name, kinds, numbers, write)
    found: dict[str, Callable[..., None]] = {}
    addresses = translated(str(loops), *_WRITTEN, as_vectors=True)
    for (name, (kinds, numbers, _)), address in zip(_WRITTEN.items(), addresses, strict=True):
        types = [ctypes.c_void_p] * len(kinds) + [ctypes.c_int64] * numbers
        found[name] = ctypes.CFUNCTYPE(None, *types)(address)
    return found


def _write_unpacked(loops: Loops, limbs: Array, words: Array, count: Number) -> None:
    with loops.each(count) as k:
        for place, limb in enumerate(_limbs(words, k, count)):
            limbs.write(count * place + k, limb)


def _limbs(words: Array, k: Number, count: Number | int) -> list[Number]:
    low, high = words.read(k), words.read(k + count)
    third = low.unsigned_shift(54) | (high << 10)
    parts = (low, low.unsigned_shift(27), third, high.unsigned_shift(17))
    return [part & _MASK for part in parts]


def _write_packed(loops: Loops, words: Array, limbs: Array, count: Number) -> None:
    with loops.each(count) as k:
        first, second, third, fourth = _carried(_column(limbs, k, count))
        words.write(k, first | (second << 27) | (third << 54))
        words.write(k + count, third.unsigned_shift(10) | (fourth << 17))


def _column(limbs: Array, k: Number, count: Number) -> list[Number]:
    return [limbs.read(count * place + k) for place in range(LIMBS)]


def _carried(limbs: list[Number]) -> list[Number]:
    carried, carry = [], None
    for limb in limbs:
        whole = limb if carry is None else limb + carry
        carried.append(whole & _MASK)
        carry = whole >> LIMB_BITS
    return carried


def _write_rounded(loops: Loops, parts: Array, limbs: Array, count: Number) -> None:
    with loops.each(count) as k:
        first, second, *others = _column(limbs, k, count)
        _, second, third, fourth = _carried([first, second + 1, *others])
        low = second.unsigned_shift(1) | (third << 26) | (fourth << 53)
        for place in range(4):
            parts.write(count * place + k, low.unsigned_shift(_WORD * place))
        parts.write(count * 4 + k, fourth.unsigned_shift(11))


def _write_scaled(loops: Loops, limbs: Array, numbers: Array, count: Number) -> None:
    with loops.each(count) as k:
        left, quotients = numbers.read(k), []
        for _ in range(LIMBS):
            wide = left << LIMB_BITS
            # At most one off, which the rest tells.
            guess = (wide.floating() * (1.0 / PRIME)).whole()
            rest = wide - guess * PRIME
            quotients.append(guess - rest.is_below(0) + rest.is_above(PRIME - 1))
            left = rest.more_if_negative(PRIME).less_if_above(PRIME - 1, PRIME)
        quotients[-1] = quotients[-1] + (left << 1).is_above(PRIME - 1)
        for place, quotient in enumerate(reversed(quotients)):
            limbs.write(count * place + k, quotient)


def _write_spread(loops: Loops, folded: Array, words: Array, twist: Array) -> None:
    with loops.each(_HALF) as k:
        here, there = (_made_signed(_limbs(words, at, DEGREE)) for at in (k, k + _HALF))
        _write_twisted(folded, k, here, there, twist)


def _made_signed(limbs: list[Number]) -> list[Number]:
    half = 1 << (LIMB_BITS - 1)
    return [limb - half for limb in _carried([limb + half for limb in limbs])]


def _write_twisted(
    folded: Array, k: Number, here: Sequence[Number], there: Sequence[Number], twist: Array
) -> None:
    """Coefficients k and k + N/2 as one complex number, turned."""
    at = k << 1
    real, imaginary = twist.read(at), twist.read(at + 1)
    for row, pair in enumerate(zip(here, there, strict=True)):
        one, other = (number.floating() for number in pair)
        folded.write(at + row * DEGREE, one * real - other * imaginary)
        folded.write(at + row * DEGREE + 1, one * imaginary + other * real)


def _write_factors(loops: Loops, folded: Array, numbers: Array, twist: Array) -> None:
    with loops.each(_HALF) as k:
        here, there = (_in_halves(numbers.read(at)) for at in (k, k + _HALF))
        _write_twisted(folded, k, here, there, twist)


def _in_halves(number: Number) -> list[Number]:
    signed = number.less_if_above(PRIME // 2, PRIME)
    high = (signed + (1 << (FACTOR_BITS - 1))) >> FACTOR_BITS
    return [signed - (high << FACTOR_BITS), high]


def _write_multiplied(
    loops: Loops,
    both: Array,
    element: Array,
    factor: Array,
    added: Array,
    half: Number,
    groups: Number,
    adds: Number,
) -> None:
    """Of each limb the products with both halves, over all groups."""
    with loops.each(groups) as group, loops.each(half) as k:
        at = (group * half + k) << 1
        halves = [
            (factor.read(at + row * DEGREE), factor.read(at + row * DEGREE + 1)) for row in (0, 1)
        ]
        for place in range(LIMBS):
            here = at + place * DEGREE
            one, other = element.read(here), element.read(here + 1)
            for row, (real, imaginary) in enumerate(halves):
                found = [one * real - other * imaginary, one * imaginary + other * real]
                for part in (0, 1):
                    if row == 0:
                        more = added.read(here + part).zero_if_none(adds)
                        found[part] = found[part] + more
                    out = (half * (2 * place + row) + k << 1) + part
                    both.write(out, found[part] + both.read(out).zero_if_none(group))


def _write_gathered(
    loops: Loops, limbs: Array, farthest: Array, folded: Array, untwist: Array, half: Number
) -> None:
    """Limbs of the products with both halves; what is above a limb goes into the next."""
    kept = LIMB_BITS - FACTOR_BITS
    most = loops.kept(0)
    with loops.each(half) as k:
        above: list[Number] = []
        for place in range(LIMBS):
            low, high = (
                untwisted(folded, untwist, half * (2 * place + row), k, most) for row in (0, 1)
            )
            for part, at in enumerate((k, k + half)):
                limb = low[part] + ((high[part] & ((1 << kept) - 1)) << FACTOR_BITS)
                limbs.write((half << 1) * place + at, limb + above[part] if above else limb)
            above = [number >> kept for number in high]
    farthest.write(0, most.get())


def _write_whole(
    loops: Loops,
    whole: Array,
    farthest: Array,
    folded: Array,
    untwist: Array,
    half: Number,
    rows: Number,
) -> None:
    most = loops.kept(0)
    with loops.each(rows) as row, loops.each(half) as k:
        for part, number in enumerate(untwisted(folded, untwist, half * row, k, most)):
            whole.write(((half * row) << 1) + half * part + k, number)
    farthest.write(0, most.get())


def _write_sent(loops: Loops, folded: Array, parts: Array, twist: Array) -> None:
    with loops.each(_HALF) as k:
        here, there = (_sent_limbs(parts, at, DEGREE) for at in (k, k + _HALF))
        _write_twisted(folded, k, here, there, twist)


def _sent_limbs(parts: Array, k: Number, count: Number | int) -> list[Number]:
    wide = [parts.read(k + count * place) for place in range(SENT_BITS // _WORD)]
    low = wide[0] | ((wide[1] & 0x7FF) << 16)
    middle = (wide[1] >> 11) | (wide[2] << 5) | ((wide[3] & 0x3F) << 21)
    return [low, middle, (wide[3] >> 6) | (wide[4] << 10)]


def _write_read(
    loops: Loops,
    found: Array,
    doubtful: Array,
    products: Array,
    parts: Array,
    near: Number,
    count: Number,
) -> None:
    room = _SENT_TOP + LIMB_BITS
    with loops.each(count) as k:
        limbs = [
            limb + products.read(count * place + k)
            for place, limb in enumerate(_sent_limbs(parts, k, count))
        ]
        low, middle, top = _carried(limbs)
        carry = (middle * PRIME) + ((low * PRIME) >> LIMB_BITS)
        below = carry & _MASK
        carry = (top & ((1 << _SENT_TOP) - 1)) * PRIME + (carry >> LIMB_BITS)
        place = ((carry & ((1 << _SENT_TOP) - 1)) << LIMB_BITS) | below
        found.write(k, carry >> _SENT_TOP)
        doubtful.write(k, (place - near).is_below(0) | (place + near).is_above((1 << room) - 1))


def _write_evaluated(
    loops: Loops,
    found: Array,
    numbers: Array,
    first: Array,
    second: Array,
    before: Array,
    turns: Array,
    after: Array,
    stages: Array,
    backwards: Array,
) -> None:
    """Of a square of numbers first the columns, then the rows (Gentleman and Sande, 1966)."""
    with loops.each(DEGREE) as k:
        first.write(k, _times(numbers.read(k), before, k, DEGREE))
    _write_columns(loops, first, stages)
    with loops.each(_SIDE) as row, loops.each(_SIDE) as column:
        at = (row << _SIDE_BITS) + column
        turned = first.read((backwards.read(column) << _SIDE_BITS) + row)
        second.write(at, _times(turned, turns, at, DEGREE))
    _write_columns(loops, second, stages)
    with loops.each(_SIDE) as row, loops.each(_SIDE) as column:
        at = (row << _SIDE_BITS) + column
        evaluated = second.read((backwards.read(row) << _SIDE_BITS) + column)
        found.write(at, _times(evaluated, after, at, DEGREE))


def _write_columns(loops: Loops, square: Array, stages: Array) -> None:
    """Transform each column; what belongs to row k is then in the row with its bits backwards."""
    with loops.each(_SIDE_BITS) as stage:
        half = loops.number(_SIDE // 2).unsigned_shift(stage)
        step = loops.number(1) << stage
        with loops.each(step) as block, loops.each(half) as j, loops.each(_SIDE) as column:
            one = (((block * half << 1) + j) << _SIDE_BITS) + column
            other = one + (half << _SIDE_BITS)
            left, right = square.read(one), square.read(other)
            square.write(one, (left + right).less_if_above(PRIME - 1, PRIME))
            square.write(other, _times(left - right + PRIME, stages, j * step, _SIDE // 2))


def _times(number: Number, factors: Array, place: Number, count: int) -> Number:
    """``number``, below 2^32, times a factor modulo t, as Shoup computes it."""
    factor, quotient = factors.read(place), factors.read(place + count)
    whole = (number * quotient).unsigned_shift(32)
    return (number * factor - whole * PRIME).less_if_above(PRIME - 1, PRIME)


_EVALUATED: tuple[Kind, ...] = ("i64", "i64", "u32", "u32", "u32", "u32", "u32", "u32", "i64")

_WRITTEN: dict[str, tuple[tuple[Kind, ...], int, Callable[..., None]]] = {
    "unpacked": (("i64", "u64"), 1, _write_unpacked),
    "packed": (("u64", "i64"), 1, _write_packed),
    "rounded": (("u16", "i64"), 1, _write_rounded),
    "scaled": (("i64", "i64"), 1, _write_scaled),
    "spread": (("f64", "u64", "f64"), 0, _write_spread),
    "factors": (("f64", "i64", "f64"), 0, _write_factors),
    "multiplied": (("f64", "f64", "f64", "f64"), 3, _write_multiplied),
    "gathered": (("i64", "i64", "f64", "f64"), 1, _write_gathered),
    "whole": (("i64", "i64", "f64", "f64"), 2, _write_whole),
    "sent": (("f64", "u16", "f64"), 0, _write_sent),
    "read": (("i64", "u8", "i64", "u16"), 2, _write_read),
    "evaluated": (
        ("i64", "i64", "u32", "u32", "u32", "u32", "u32", "u32", "i64"),
        0,
        _write_evaluated,
    ),
}
"""By name: the kinds of arrays, how many numbers follow them, and what writes the function."""
