"""How do shares of sums become shares of S and V? By three rounds of correlated transfers.

`fedmq.privacy.hidden_sums.filter` says what S and V are. The active party chooses by the bits of
what it holds, the passive party offers its own share times the place of each bit (Gilboa, CRYPTO
1999, section 4.1):

1. carries of both fields, as `fedmq.privacy.hidden_sums.shares` has them;
2. x and d, by the bits of factors that the active party alone knows, once for all candidates of a
   node: the passive party does not learn the scale of a node;
3. V = x (X - x), whose cross product is (X - 2 x_A) x_P, and S = d², whose one is 2 d_A d_P.

Arrays are of all nodes and candidates, (nodes, C), and numbers uint64 below a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.hidden_sums.filter import NodeFactors, Precision
from fedmq.privacy.hidden_sums.shares import Field, Shares, offset
from fedmq.privacy.oblivious_transfer.correlated import Wide, add, bits_at, shift_up, subtract, wide

__all__ = [
    "Numbers",
    "Offered",
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
class Offered:
    """Numbers of transfers, uint64 (transfers, width), modulo 2^``bits``."""

    numbers: Numbers
    bits: int


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
    unset = ~field.top(_fields(shares)).reshape(-1, 1)
    return Offered(unset.astype(np.uint64), precision.wrap_bits)


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


def offered_factors(sums: Wide, c: Precision) -> Iterator[Offered]:
    """Numbers for x, and then for d: (bits * nodes, C). ``sums``: as `lifted` gives them."""
    of_g, of_h = sums
    candidates = of_g.shape[1]
    x = np.empty((c.x_factor, *of_h.shape[:-1]), np.uint64)
    _shift_into(x, of_h, c.x_shift - c.x_guard, _x_bits(c))
    yield Offered(x.reshape(-1, candidates), _x_bits(c))
    del x
    d = np.empty((c.g_factor + c.h_factor, *of_g.shape[:-1]), np.uint64)
    by_g, by_h = d[: c.g_factor], d[c.g_factor :]
    _shift_into(by_g, of_g, c.d_shift - c.d_guard, _d_bits(c))
    _shift_into(by_h, of_h, c.d_shift - c.d_guard, _d_bits(c))
    by_h[-1] = np.uint64(0) - by_h[-1] & _modulus(_d_bits(c))  # the bit of the sign
    yield Offered(d.reshape(-1, candidates), _d_bits(c))


def _shift_into(found: Numbers, sums: Wide, shift: int, bits: int) -> None:
    """Write sums times each bit of a factor times 2^-shift: ``found`` (factor bits, nodes, C)."""
    for bit, at_bit in enumerate(found):
        at_bit[:] = bits_at(sums, shift - bit, bits)


def own_scaled(sums: Wide, factors: Sequence[NodeFactors], c: Precision) -> Scaled:
    """The active party's factors times its own shares, and all constants; guard bits included."""
    choices = factor_choices(factors, c).reshape(-1, len(factors), 1)
    x, d = (offered.numbers.reshape(-1, *sums.shape[1:-1]) for offered in offered_factors(sums, c))
    of_x, of_d = choices[: c.x_factor], choices[c.x_factor :]
    constants = [
        np.array([number % 2**64 for number in numbers], np.uint64)[:, np.newaxis]
        for numbers in ([of.x_offset for of in factors], [of.d_offset for of in factors])
    ]
    return Scaled(
        np.where(of_x, x, np.uint64(0)).sum(axis=0, dtype=np.uint64) + constants[0],
        np.where(of_d, d, np.uint64(0)).sum(axis=0, dtype=np.uint64) + constants[1],
    )


def received_scaled(own: Scaled, x: Numbers, d: Numbers, c: Precision) -> Scaled:
    """The active party's shares, of what it received: (bits * nodes, C)."""
    return _complete(own, x, d, c)


def sent_scaled(nodes: int, x: Numbers, d: Numbers, c: Precision) -> Scaled:
    """The passive party's shares, of what it kept: (bits * nodes, C), or its sum over bits."""
    none = np.zeros((nodes, x.shape[-1]), np.uint64)
    return _complete(Scaled(none, none), x, d, c)


def _complete(own: Scaled, x: Numbers, d: Numbers, c: Precision) -> Scaled:
    shape = own.x.shape
    of_x = own.x + x.reshape(-1, *shape).sum(axis=0, dtype=np.uint64)
    of_d = own.d + d.reshape(-1, *shape).sum(axis=0, dtype=np.uint64)
    return Scaled(
        (of_x & _modulus(_x_bits(c))) >> np.uint64(c.x_guard),
        (of_d & _modulus(_d_bits(c))) >> np.uint64(c.d_guard),
    )


# Third round: V and S.


def product_choices(
    scaled: Scaled, factors: Sequence[NodeFactors], c: Precision
) -> NDArray[np.bool_]:
    """The active party's choices, for V and for S: bool (bits * nodes * C,), by bit."""
    total = np.array([node.total for node in factors], np.uint64)[:, np.newaxis]
    other = total - np.uint64(2) * scaled.x
    chosen = [other >> np.uint64(bit) & np.uint64(1) for bit in range(c.x_modulus)]
    chosen += [scaled.d >> np.uint64(bit) & np.uint64(1) for bit in range(c.d_modulus)]
    return np.stack(chosen).reshape(-1).astype(np.bool_)


def offered_products(scaled: Scaled, c: Precision) -> Iterator[Offered]:
    """The passive party's numbers for V, and then for S: (bits * nodes * C, 1)."""
    yield Offered(
        _places(scaled.x, c.x_modulus, 0, c.x_modulus, c.weight_shift), c.shared_weight_bits
    )
    yield Offered(
        _places(scaled.d, c.d_modulus, 1, c.d_modulus + 1, c.square_shift), c.shared_square_bits
    )


def _places(numbers: Numbers, count: int, first: int, bits: int, shift: int) -> Numbers:
    """``numbers`` times 2^first and the next places, modulo 2^bits, less the ``shift`` lowest."""
    found = np.empty((count, *numbers.shape), np.uint64)
    for place, at_place in enumerate(found, start=first):
        at_place[:] = (numbers << np.uint64(place) & _modulus(bits)) >> np.uint64(shift)
    return found.reshape(-1, 1)


def joined_receiver(
    scaled: Scaled,
    factors: Sequence[NodeFactors],
    of_weights: Numbers,
    of_squares: Numbers,
    c: Precision,
) -> dict[str, Numbers]:
    """The active party's shares of S and V: (nodes, C). S lies low and V high, by their errors."""
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
    """The passive party's shares of S and V: (nodes, C)."""
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
    shape = weight.shape
    weight = cut_weight + of_weights.reshape(-1, *shape).sum(axis=0, dtype=np.uint64)
    square = cut_square + of_squares.reshape(-1, *shape).sum(axis=0, dtype=np.uint64)
    weight = weight + np.uint64(raised % 2**64) & _modulus(c.shared_weight_bits)
    square = square + np.uint64(lowered % 2**64) & _modulus(c.shared_square_bits)
    guard = np.uint64(c.product_guard)
    return {"S": square >> guard, "V": weight >> guard}
