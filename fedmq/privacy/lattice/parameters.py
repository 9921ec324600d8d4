"""How are pairs (g, h) laid out in a number modulo q, and do their sums stay exact?

From the top of 192 bits: ``[ g | h | noise ]``, both fields signed. Where gradients have few bits,
pairs of several nodes stand side by side: ``[ g | h | g | h | noise ]``, the first node's lowest.
All bounds are worst cases, and are checked before a session begins.

Where sums are shown, the noise over an answer leaves room for all errors, which it drowns. Where
they are hidden it is uniform over all that is below the fields, as the mask is over the fields: an
answer is a uniform number modulo 2^192, whatever was asked. Errors then reach the fields where this
noise is next to an end of its room; the active party sees that, and ends the session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.errors import DataError

__all__ = [
    "DEGREE",
    "ERROR_BITS",
    "FLOOD_UNIFORMS",
    "LIMBS",
    "LIMB_BITS",
    "MOST_ROWS",
    "SUM_BYTES",
    "VERSION",
    "Layout",
    "add_power",
    "add_shifted",
    "carried",
    "field_at",
    "signed_field",
]

VERSION = 9
"""The version of both halves' messages: 1 had transfers of 128 bits a row, 2 had some at the root
as well, 3 had shorter pieces of queries, 4 hid sums without a filter, 5 had four slots alone, 6 had
hidden sums under noise that left half of its room empty, 7 had more rounds of hidden sums, 8 had a
filter of short quotients alone, noise from digests without a key, and shorter choices of rows."""

DEGREE = 8192
"""N of the ring Z_q[X]/(X^N + 1)."""

LIMB_BITS = 32
LIMBS = 6
"""q = 2^192, in limbs of 32 bits."""

SUM_BYTES = 4 * LIMBS + 4
"""Bytes of an answered sum: its limbs and the number of its candidate."""

ERROR_BITS = 21
"""An error is centred binomial, 21 bits against 21: deviation 3.24."""

FLOOD_UNIFORMS = 4
"""The number of uniform numbers that sum to the noise over an answer, where sums are shown."""

MOST_ROWS = 2**21 - 1
"""Sums of limbs stay below 2^53, where float64 counts every integer."""

_SUM_BITS = 62
_FLOOD_BELOW = 3  # bits; four uniform numbers stay below half of the lowest field's unit
_LEAST_NOISE = 64  # bits, with as many rows as are let in
_CUT_UNIT = 16  # bits; hints and queries travel in these units
_LEAST_ANSWERS = 2**26  # of a session, however nodes are joined or bits dropped
_FLOOD_INFORMATION = 1.04  # Fisher information times variance of the sum of four uniform numbers
_DISTANCE_BITS = 40  # of all answers of a session together: 2^-40
_DOUBT_BITS = 38  # rounding hints, or queries, puts at most one of 2^38 hidden sums in doubt


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout for sums over ``rows`` rows of gradients below ``2**value_bits``.

    ``degree`` is smaller than `DEGREE` in tests only. With ``hidden`` sums a query is about one
    node, and both fields are strictly smaller than a quarter of what they hold.
    With them few low bits are rounded away, and only once in 2^36 sums are errors in doubt.

    Raises:
        DataError: there are too many rows for exact sums.
    """

    rows: int
    degree: int = DEGREE
    value_bits: int = RESOLUTION_BITS
    hidden: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise DataError(
                f"{self.rows:,} rows; engine 'lattice' sums {MOST_ROWS:,} at most: draw some, "
                "or use engine 'ou'"
            )
        # Sums of limbs over rows, and products of limbs by ternary numbers, in float64.
        assert max(self.rows, self.degree) << LIMB_BITS < 1 << 53
        if self.hidden:
            assert self.largest_error < 1 << (self.noise_bits - 37)
        else:
            assert self.largest_noise < 1 << (self.noise_bits - 1)

    @property
    def blocks(self) -> int:
        """Ring elements that hold a number for each row."""
        return -(-self.rows // self.degree)

    def rows_of(self, block: int) -> slice:
        """The rows whose numbers are the first coefficients of ``block``."""
        return slice(block * self.degree, min(self.rows, (block + 1) * self.degree))

    @property
    def field_bits(self) -> int:
        """Bits of a sum of g or h, with its sign and a bit for carries."""
        most = self.rows if self.hidden else self.rows - 1
        return min(_SUM_BITS, self.value_bits + most.bit_length()) + 2

    @property
    def nodes(self) -> int:
        """The number of nodes in one query."""
        most = 1 if self.hidden else LIMBS * LIMB_BITS // (2 * self.field_bits)
        for nodes in range(most, 1, -1):
            if self._answers(self._noise_beside(nodes)) >= _LEAST_ANSWERS:
                return nodes
        return 1

    @property
    def noise_bits(self) -> int:
        """Bits below all fields; the offset of the first h."""
        return self._noise_beside(self.nodes)

    def _noise_beside(self, nodes: int) -> int:
        return LIMBS * LIMB_BITS - 2 * self.field_bits * nodes

    def h_offset(self, node: int) -> int:
        """The lowest bit of h of a query's ``node``, counted from 0."""
        return self.noise_bits + 2 * self.field_bits * node

    def g_offset(self, node: int) -> int:
        """The lowest bit of g of a query's ``node``."""
        return self.h_offset(node) + self.field_bits

    @property
    def dropped_bits(self) -> int:
        """Low bits of a query that are rounded away, a multiple of 16."""
        noise = self.noise_bits
        if self.hidden:
            return self._rounded_bits(self.rows + self.degree)
        return max(
            bits
            for bits in range(0, noise, _CUT_UNIT)
            if bits == 0 or self._answers(noise, bits) >= _LEAST_ANSWERS
        )

    @property
    def sent_limbs(self) -> int:
        """Limbs of a query that travel; the lowest may be its upper half alone."""
        return LIMBS - self.dropped_bits // LIMB_BITS

    @property
    def sends_half(self) -> bool:
        """Whether only the upper half of the lowest sent limb travels."""
        return self.dropped_bits % LIMB_BITS > 0

    @property
    def flood_bits(self) -> int:
        """Bits of each uniform number over an answer."""
        return self.noise_bits - (0 if self.hidden else _FLOOD_BELOW)

    @property
    def flood_uniforms(self) -> int:
        """The number of uniform numbers over an answer; one alone fills the room below fields."""
        return 1 if self.hidden else FLOOD_UNIFORMS

    @property
    def cut_bits(self) -> int:
        """Low bits of a hint that are rounded away, a multiple of 16."""
        if self.hidden:
            return self._rounded_bits(self.largest_secret)
        return (self.noise_bits - 14) // _CUT_UNIT * _CUT_UNIT

    def _rounded_bits(self, numbers: int) -> int:
        """Low bits of so many numbers that may be rounded away before they are added."""
        room = (1 << (self.noise_bits - _DOUBT_BITS)) // numbers
        return max(0, room.bit_length() - 1) // _CUT_UNIT * _CUT_UNIT

    @property
    def hint_units(self) -> int:
        """Units of 16 bits that remain of a coefficient of a hint."""
        return (LIMBS * LIMB_BITS - self.cut_bits) // _CUT_UNIT

    @property
    def hint_bytes(self) -> int:
        """Bytes of one candidate's hint."""
        return 2 * self.hint_units * self.degree

    @property
    def largest_secret(self) -> int:
        """The most non-zero coefficients of a secret; one with more is drawn again."""
        return 3 * self.degree // 4

    @property
    def largest_noise(self) -> int:
        """The largest magnitude below the fields at decryption, in the worst case."""
        return (self.flood_uniforms << (self.flood_bits - 1)) + self.largest_error

    @property
    def largest_error(self) -> int:
        """The largest magnitude of all but the passive party's noise, in the worst case."""
        cut = self.largest_secret << self.cut_bits >> 1
        errors = ERROR_BITS * (self.rows + 2 * self.degree)
        dropped = (self.rows + self.degree) << self.dropped_bits >> 1
        return cut + errors + dropped

    @property
    def most_answers(self) -> int:
        """The most sums that a session may show.

        The errors in an answer have a root mean square B; the noise over it has deviation D. Q
        answers then differ from answers without errors by a statistical distance of at most
        (B/2)·√(1.04 Q)/D: the Hellinger distance of a density and its shift is bounded by the
        Fisher information. Q is where this reaches 2^-40. A query's dropped bits count as an error,
        uniform like the bits.
        """
        return self._answers(self.noise_bits, self.dropped_bits)

    def _answers(self, noise_bits: int, dropped_bits: int = 0) -> int:
        if noise_bits < _LEAST_NOISE:
            return 0
        variance = ERROR_BITS / 2 * (self.rows + 4 * self.degree / 3)
        if dropped_bits:
            variance += 4.0**dropped_bits / 12 * (self.rows + 2 * self.degree / 3)
        flood_bits = noise_bits - _FLOOD_BELOW
        deviation_bits = flood_bits + math.log2(FLOOD_UNIFORMS / 12) / 2
        shift_bits = math.log2(variance) / 2 - 1
        return int(2 ** (2 * (deviation_bits - _DISTANCE_BITS - shift_bits)) / _FLOOD_INFORMATION)


# Which numbers modulo 2^192 stand in so many limbs of 32 bits?
#
# Limbs come lowest first, along the last axis but one: coefficients lie side by side. While sums
# are taken a limb is an int64 of any size below 2^62; ``carried`` makes numbers of them.


_WORD_BITS = 64


def carried(sums: NDArray[np.int64], limb_bits: int = LIMB_BITS) -> NDArray[np.uint32]:
    """Sums of limbs, int64 (..., limbs, n), as numbers modulo 2^(limbs · limb_bits).

    uint32 of the same shape.
    """
    limbs = np.empty(sums.shape, np.uint32)
    carry: NDArray[np.int64] = np.zeros(sums.shape[:-2] + sums.shape[-1:], np.int64)
    for limb in range(sums.shape[-2]):
        carry += sums[..., limb, :]
        limbs[..., limb, :] = carry & ((1 << limb_bits) - 1)
        carry >>= limb_bits
    return limbs


def add_shifted(sums: NDArray[np.int64], values: NDArray[np.int64], offset: int) -> None:
    """Add ``values`` (..., n), below 2^62 in magnitude, times ``2**offset`` to sums of limbs."""
    limb, shift = divmod(offset, LIMB_BITS)
    # A value times 2^shift is its 64 lowest bits, as two limbs, and what is above them, signed.
    low = (values << shift).view(np.uint32)
    for place, part in enumerate((low[..., 0::2], low[..., 1::2]), start=limb):
        if place < LIMBS:
            sums[..., place, :] += part
    if limb + 2 < LIMBS:
        sums[..., limb + 2, :] += values >> min(_WORD_BITS - shift, _WORD_BITS - 1)


def add_power(sums: NDArray[np.int64], bit: int, sign: int = 1) -> None:
    """Add ``sign * 2**bit`` to every one of the sums of limbs."""
    limb, shift = divmod(bit, LIMB_BITS)
    if limb < LIMBS:
        sums[..., limb, :] += sign * (1 << shift)


def field_at(limbs: NDArray[np.uint32], offset: int) -> NDArray[np.uint64]:
    """The 64 bits from ``offset`` on: uint64 (..., n)."""
    limb, shift = divmod(offset, LIMB_BITS)
    field = np.zeros(limbs.shape[:-2] + limbs.shape[-1:], np.uint64)
    for place in range(limb, min(limb + 3, LIMBS)):
        part = limbs[..., place, :].astype(np.uint64)
        up = LIMB_BITS * (place - limb) - shift
        field |= part << np.uint64(up) if up >= 0 else part >> np.uint64(-up)
    return field


def signed_field(limbs: NDArray[np.uint32], offset: int, bits: int) -> NDArray[np.int64]:
    """The ``bits`` (at most 64) from ``offset`` on as signed integers: int64 (..., n)."""
    unused = 64 - bits
    field = field_at(limbs, offset) << np.uint64(unused)
    signed: NDArray[np.int64] = field.view(np.int64) >> unused
    return signed
