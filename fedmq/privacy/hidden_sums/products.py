"""How do shares of sums become shares of S and V? By three rounds of correlated transfers.

`fedmq.privacy.hidden_sums.filter` says what S and V are. The active party chooses by the bits of
what it holds, the passive party offers its own share times the place of each bit (Gilboa, CRYPTO
1999, section 4.1):

1. carries of both fields, as `fedmq.privacy.hidden_sums.shares` has them;
2. x and d, by the bits of factors that the active party alone knows, once for all candidates of a
   node, or of a block of it: the passive party does not learn the scale of a node;
3. V = x (X - x), whose cross product is (X - 2 x_A) x_P, and S = d², whose one is 2 d_A d_P.

Arrays are of all nodes and candidates, (nodes, C), and numbers uint64 below a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.hidden_sums.filter import NodeFactors, Precision
from fedmq.privacy.hidden_sums.shares import Field, Shares, offset
from fedmq.privacy.oblivious_transfer.correlated import (
    Offered,
    Wide,
    add,
    bits_at,
    shift_up,
    subtract,
    wide,
)

__all__ = [
    "Numbers",
    "Scaled",
    "carry_choices",
    "factor_choices",
    "joined_receiver",
    "joined_sender",
    "lifted",
    "offered_carries",
    "offered_factors",
    "offered_products",
    "own_scaled",
    "product_choices",
    "received_scaled",
    "sent_scaled",
]

Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A party's shares of x and d: (nodes, C) each."""

    x: Numbers
    d: Numbers


def _modulus(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def _fields(shares: Shares) -> Numbers:
    """The fields of g and of h, one after the other: (2, nodes, C)."""
    return np.moveaxis(shares, -1, 0)


# First round: did the fields carry?


def carry_choices(shares: Shares, field: Field) -> NDArray[np.bool_]:
    """The active party's choices, of both fields: bool (2 * nodes * C,)."""
    return field.top(_fields(offset(shares, field))).reshape(-1)


def offered_carries(shares: Shares, field: Field, precision: Precision) -> Offered:
    """The passive party's numbers."""
    unset = (~field.top(_fields(shares)).reshape(-1, 1)).astype(np.uint64)
    return Offered(len(unset), precision.wrap_bits, lambda: iter([unset]))


def lifted(
    shares: Shares, carries: Numbers, field: Field, precision: Precision, *, receives: bool
) -> Wide:
    """Shares of G / 2^dropped and of H / 2^dropped, modulo 2^128: (2, nodes, C, 2).

    ``carries``: this party's shares, (2 * nodes * C, 1). The active party, which ``receives``, adds
    2^(F - 2) to its field of g, and takes it off in `NodeFactors.d_offset`.
    """
    fields = _fields(offset(shares, field) if receives else shares)
    carried = carries.reshape(fields.shape)
    if not receives:
        set_already = field.top(fields).astype(np.uint64)
        carried = carried + set_already & _modulus(precision.wrap_bits)
    kept = wide(np.ascontiguousarray(fields >> np.uint64(precision.dropped)))
    if not precision.dropped:  # else the carry from h is less than what is dropped
        kept[0] = add(kept[0], wide(carried[1]))
    return subtract(kept, shift_up(wide(carried), field.bits - precision.dropped))


# Second round: x and d.


def _x_bits(c: Precision) -> int:
    return c.x_modulus + c.x_guard


def _d_bits(c: Precision) -> int:
    return c.d_modulus + c.d_guard


def factor_choices(factors: Sequence[NodeFactors], c: Precision) -> NDArray[np.bool_]:
    """The active party's choices: bool (factor bits * nodes,), by bit."""
    rows = [
        [(number >> bit & 1) for number in numbers]
        for numbers, bits in (
            ([node.x for node in factors], c.x_factor),
            ([node.g for node in factors], c.g_factor),
            ([-node.h for node in factors], c.h_factor),
        )
        for bit in range(bits)
    ]
    return np.array(rows, np.bool_).reshape(-1)


def offered_factors(sums: Wide, c: Precision) -> tuple[Offered, Offered]:
    """Numbers for x, and for d: (bits * nodes, C). ``sums``: as `lifted` gives them."""
    of_g, of_h = sums

    def of_x(bit: int) -> Numbers:
        return bits_at(of_h, c.x_shift - c.x_guard - bit, _x_bits(c))

    def of_d(bit: int) -> Numbers:
        shift = c.d_shift - c.d_guard
        if bit < c.g_factor:
            return bits_at(of_g, shift - bit, _d_bits(c))
        found = bits_at(of_h, shift - (bit - c.g_factor), _d_bits(c))
        is_sign = bit == c.g_factor + c.h_factor - 1
        return np.uint64(0) - found & _modulus(_d_bits(c)) if is_sign else found

    return (
        _by_bit(of_x, c.x_factor, of_h.shape[:-1], _x_bits(c)),
        _by_bit(of_d, c.g_factor + c.h_factor, of_g.shape[:-1], _d_bits(c)),
    )


_NUMBERS_AT_ONCE = 2**18
"""Their hashes lie in a cache."""


def _by_bit(
    of_bit: Callable[[int], Numbers], bits: int, shape: tuple[int, ...], modulus: int
) -> Offered:
    """What each of ``bits`` bits stands for, of this ``shape``: a row is a transfer's."""
    transfers, width = shape
    at_once = max(1, _NUMBERS_AT_ONCE // (transfers * width))

    def parts() -> Iterator[Numbers]:
        for first in range(0, bits, at_once):
            some = range(first, min(first + at_once, bits))
            yield np.concatenate([of_bit(bit).reshape(shape) for bit in some])

    return Offered(bits * transfers, modulus, parts)


def own_scaled(sums: Wide, factors: Sequence[NodeFactors], c: Precision) -> Scaled:
    """The active party's factors times its own shares, and all constants; guard bits included."""
    choices = factor_choices(factors, c).reshape(-1, len(factors), 1)
    chosen = choices[: c.x_factor], choices[c.x_factor :]
    constants = [of.x_offset for of in factors], [of.d_offset for of in factors]
    return Scaled(
        *(
            _sum_of_chosen(offered, of_bits, sums.shape[1:-1])
            + np.array([number % 2**64 for number in offsets], np.uint64)[:, np.newaxis]
            for offered, of_bits, offsets in zip(
                offered_factors(sums, c), chosen, constants, strict=True
            )
        )
    )


def _sum_of_chosen(offered: Offered, chosen: NDArray[np.bool_], shape: tuple[int, ...]) -> Numbers:
    """The sum over bits, (nodes, C), of what was ``chosen``, (bits, nodes, 1)."""
    total, first = np.zeros(shape, np.uint64), 0
    for numbers in offered.parts():
        by_bit = numbers.reshape(-1, *shape)
        of_bits = chosen[first : first + len(by_bit)]
        total += np.where(of_bits, by_bit, np.uint64(0)).sum(axis=0, dtype=np.uint64)
        first += len(by_bit)
    return total


def received_scaled(own: Scaled, x: Numbers, d: Numbers, c: Precision) -> Scaled:
    """The active party's shares, of what it received, summed over bits: (nodes, C)."""
    return _complete(own, x, d, c)


def sent_scaled(x: Numbers, d: Numbers, c: Precision) -> Scaled:
    """The passive party's shares, of what it kept, summed over bits: (nodes, C)."""
    none = np.zeros_like(x)
    return _complete(Scaled(none, none), x, d, c)


def _complete(own: Scaled, x: Numbers, d: Numbers, c: Precision) -> Scaled:
    return Scaled(
        (own.x + x & _modulus(_x_bits(c))) >> np.uint64(c.x_guard),
        (own.d + d & _modulus(_d_bits(c))) >> np.uint64(c.d_guard),
    )


# Third round: V and S.


def product_choices(
    scaled: Scaled, factors: Sequence[NodeFactors], c: Precision
) -> NDArray[np.bool_]:
    """The active party's choices, for V and for S: bool (bits * nodes * C,), by bit."""
    total = np.array([node.total for node in factors], np.uint64)[:, np.newaxis]
    other = total - np.uint64(2) * scaled.x
    chosen = np.empty((c.x_modulus + c.d_modulus, *scaled.x.shape), np.bool_)
    of_weights, of_squares = chosen[: c.x_modulus], chosen[c.x_modulus :]
    for numbers, of_bits in ((other, of_weights), (scaled.d, of_squares)):
        for bit, of_bit in enumerate(of_bits):
            of_bit[:] = numbers >> np.uint64(bit) & np.uint64(1)
    return chosen.reshape(-1)


def offered_products(scaled: Scaled, c: Precision) -> tuple[Offered, Offered]:
    """The passive party's numbers for V, and for S: (bits * nodes * C, 1)."""
    return (
        _places(scaled.x, c.x_modulus, 0, c.x_modulus, c.weight_shift, c.shared_weight_bits),
        _places(scaled.d, c.d_modulus, 1, c.d_modulus + 1, c.square_shift, c.shared_square_bits),
    )


def _places(
    numbers: Numbers, count: int, first: int, bits: int, shift: int, modulus: int
) -> Offered:
    """``numbers`` times 2^first and the next places, modulo 2^bits, less the ``shift`` lowest."""

    def at_place(place: int) -> Numbers:
        return (numbers << np.uint64(first + place) & _modulus(bits)) >> np.uint64(shift)

    return _by_bit(at_place, count, (numbers.size, 1), modulus)


def joined_receiver(
    scaled: Scaled,
    factors: Sequence[NodeFactors],
    of_weights: Numbers,
    of_squares: Numbers,
    c: Precision,
) -> dict[str, Numbers]:
    """The active party's shares of S and V, (nodes, C), of those of products, summed over bits.

    S lies low and V high, by their errors.
    """
    total = np.array([node.total for node in factors], np.uint64)[:, np.newaxis]
    guard = 2.0**c.product_guard
    raised = c.weight_error + 1 + (c.x_modulus + 2) / guard / 2
    lowered = c.lowered - 1 - (c.d_modulus + 2) / guard / 2
    return _joined(
        scaled.x * (total - scaled.x),
        scaled.d * scaled.d,
        of_weights,
        of_squares,
        int(raised * guard),
        -int(lowered * guard),
        c,
    )


def joined_sender(
    scaled: Scaled, of_weights: Numbers, of_squares: Numbers, c: Precision
) -> dict[str, Numbers]:
    """The same for the passive party."""
    weight = np.uint64(0) - scaled.x * scaled.x
    return _joined(weight, scaled.d * scaled.d, of_weights, of_squares, 0, 0, c)


def _joined(
    weight: Numbers,
    square: Numbers,
    of_weights: Numbers,
    of_squares: Numbers,
    raised: int,
    lowered: int,
    c: Precision,
) -> dict[str, Numbers]:
    cut_weight = (weight & _modulus(c.x_modulus)) >> np.uint64(c.weight_shift)
    cut_square = (square & _modulus(c.d_modulus + 1)) >> np.uint64(c.square_shift)
    weight = cut_weight + of_weights + np.uint64(raised % 2**64) & _modulus(c.shared_weight_bits)
    square = cut_square + of_squares + np.uint64(lowered % 2**64) & _modulus(c.shared_square_bits)
    guard = np.uint64(c.product_guard)
    return {"S": square >> guard, "V": weight >> guard}
