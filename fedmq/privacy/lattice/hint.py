"""What must the active party know once to read all sums? A hint for each candidate, masked.

A ciphertext's public part, summed over the rows left of a candidate, is the same in every query:
``Σ_j a_j·x_j`` with ``x_j = Σ X^(-i)`` over those rows i of block j. It would disclose the rows (a
division yields the x_j), so it leaves only under a mask: plus ``a'·r + e``, with ternary r and
errors e of the candidate's own, which is a sample of ring learning with errors. Its low bits are
rounded away: that loses nothing and saves traffic. The whole hint is rounded, mask included.

Hints that are sent once: Henzinger et al., "One Server for the Price of Two", USENIX Security 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Inexact, MessageError
from fedmq.privacy.lattice.parameters import LIMB_BITS, LIMBS, Layout, add_power, carried
from fedmq.privacy.lattice.ring import (
    PublicElements,
    Transform,
    coefficients,
    draw_errors,
    draw_ternary,
    reversed_element,
    transformed,
)
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import Stream

__all__ = ["JoinHints", "MakeHints", "TurnMasks", "cut_hints", "indicator_products", "masks_of"]

_BLOCKS_AT_ONCE = 16  # their products are added before rounding
_INDICATORS_AT_ONCE = 512
_MASKS_AT_ONCE = 8


def indicator_products(
    codes: NDArray[np.integer],
    cells: int,
    blocks: Transform,
    layout: Layout,
    blocks_at_once: int = _BLOCKS_AT_ONCE,
) -> NDArray[np.int64]:
    """``Σ_j a_j·x_j`` for the rows in each cell of a feature: sums of limbs (cells, 6, N).

    ``codes`` (rows,) says in which cell a row stands.
    """
    total = np.zeros((cells, LIMBS, layout.degree), np.int64)
    start = 0
    while start < layout.blocks:
        stop = min(layout.blocks, start + blocks_at_once)
        indicators = transformed(_indicators(codes, cells, start, stop, layout))
        products = np.matmul(
            indicators.transpose(2, 0, 1), blocks[start:stop].transpose(2, 0, 1)
        ).transpose(1, 2, 0)
        try:
            total += coefficients(np.ascontiguousarray(products))
        except Inexact:
            if blocks_at_once == 1:
                raise
            blocks_at_once //= 2
            continue
        start = stop
    return total


def _indicators(
    codes: NDArray[np.integer], cells: int, start: int, stop: int, layout: Layout
) -> NDArray[np.float64]:
    """x of each cell for blocks from ``start``: X^(-i) is -X^(N-i), and 1 where i = 0."""
    degree = layout.degree
    rows = np.arange(start * degree, min(stop * degree, layout.rows))
    block, place = rows // degree - start, rows % degree
    indicators = np.zeros((cells, stop - start, degree))
    indicators[codes[rows], block, -place % degree] = np.where(place == 0, 1.0, -1.0)
    return indicators


def masks_of(seed: bytes, feature: int, candidates: int, degree: int) -> NDArray[np.int8]:
    """The secret r of each candidate of a feature: ternary (candidates, N)."""
    return draw_ternary(Stream(seed, f"fedmq lattice mask {feature}"), candidates, degree)


def cut_hints(hints: NDArray[np.int64], layout: Layout) -> NDArray[np.uint16]:
    """Hints (..., 6, N) rounded to multiples of 2^cut: their units of 16 bits (..., units, N)."""
    hints = hints.copy()
    if layout.cut_bits:
        add_power(hints, layout.cut_bits - 1)
    limbs = carried(hints)
    units = np.empty((*limbs.shape[:-2], 2 * LIMBS, limbs.shape[-1]), np.uint16)
    units[..., 0::2, :] = limbs & 0xFFFF
    units[..., 1::2, :] = limbs >> 16
    return np.ascontiguousarray(units[..., -layout.hint_units :, :])


@dataclass(frozen=True, eq=False)
class MakeHints:
    """The hints of one feature's candidates, ready to travel: uint16 (candidates, units, N).

    ``bins`` and ``default_left`` (candidates,) as in ``CandidateTable``; the last of the ``cells``
    holds the missing values.
    """

    label: ClassVar[str] = "MakeHints"
    codes: NDArray[np.integer]
    cells: int
    bins: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    public: PublicElements
    layout: Layout
    feature: int
    seed: bytes = field(repr=False)

    def run(self) -> NDArray[np.uint16]:
        degree, candidates = self.layout.degree, len(self.bins)
        blocks_at_once = max(1, min(_BLOCKS_AT_ONCE, _INDICATORS_AT_ONCE // self.cells))
        products = indicator_products(
            self.codes, self.cells, self.public.blocks, self.layout, blocks_at_once
        )
        up_to = np.zeros((self.cells, LIMBS, degree), np.int64)
        np.cumsum(products[:-1], axis=0, out=up_to[1:])
        masks = masks_of(self.seed, self.feature, candidates, degree)
        errors = Stream(self.seed, f"fedmq lattice mask error {self.feature}")
        hints = np.empty((candidates, self.layout.hint_units, degree), np.uint16)
        for start in range(0, candidates, _MASKS_AT_ONCE):
            part = slice(start, start + _MASKS_AT_ONCE)
            masked = coefficients(transformed(masks[part])[:, np.newaxis] * self.public.mask)
            masked[:, 0] += draw_errors(errors, len(masked), degree)
            masked += up_to[self.bins[part] + 1]
            masked += products[-1] * self.default_left[part, np.newaxis, np.newaxis]
            hints[part] = cut_hints(masked, self.layout)
        return hints


@dataclass(frozen=True, eq=False)
class TurnMasks:
    """The masks of all candidates, ``counts`` per feature, as `reversed_element` turns them.

    int8 (candidates, N).
    """

    label: ClassVar[str] = "TurnMasks"
    counts: Sequence[int]
    degree: int
    seed: bytes = field(repr=False)

    def run(self) -> NDArray[np.int8]:
        masks = [np.empty((0, self.degree), np.int8)]
        for feature, count in enumerate(self.counts):
            masks.append(masks_of(self.seed, feature, count, self.degree))
        return reversed_element(np.concatenate(masks))


@dataclass(frozen=True, eq=False)
class JoinHints:
    """Join the pieces of hints as limbs: uint32 (candidates, limbs, N), the highest limb last.

    Raises:
        MessageError: the pieces are not hints of ``layout``.
    """

    label: ClassVar[str] = "JoinHints"
    pieces: Sequence[Values]
    layout: Layout

    def run(self) -> NDArray[np.uint32]:
        units, degree = self.layout.hint_units, self.layout.degree
        parts = [np.empty((0, units, degree), np.uint16)]
        for piece in self.pieces:
            part = piece.get("hint")
            if (
                set(piece) != {"hint"}
                or not isinstance(part, np.ndarray)
                or part.dtype != np.uint16
                or part.shape[1:] != (units, degree)
            ):
                raise MessageError(f"a hint that is not uint16 (candidates, {units}, {degree})")
            parts.append(part)
        limbs = -(-units // 2)
        joined = np.zeros((sum(map(len, parts)), limbs, degree), np.uint32)
        start = 0
        for part in parts:
            into = joined[start : start + len(part)]
            # From the top, since the lowest limb may be half.
            for unit in range(units):
                bits = part[:, units - 1 - unit].astype(np.uint32)
                into[:, limbs - 1 - unit // 2] |= bits << (0 if unit % 2 else LIMB_BITS // 2)
            start += len(part)
        return joined
