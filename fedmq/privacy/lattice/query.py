"""How are nodes asked about without saying which rows stand in them?

Row by row its g and h are encrypted, 0 where a row stands elsewhere: ``b_j = a_j·s + e_j + u_j``
for each block of rows, and ``b' = a'·s + e'`` for the masks, with a fresh secret s (Regev, STOC
2005; Lyubashevsky, Peikert and Regev, EUROCRYPT 2010). The a_j are not sent, and
low bits that noise would drown are rounded away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.layout import LIMB_BITS, LIMBS, Layout
from fedmq.privacy.lattice.limbs import add_power, add_shifted, carried
from fedmq.privacy.lattice.public_elements import PublicElements
from fedmq.privacy.lattice.ring import coefficients, transformed
from fedmq.privacy.lattice.sampling import Stream, draw_secret
from fedmq.privacy.plan import Values

__all__ = ["EncryptNode", "Query", "read_query"]

_HALF = LIMB_BITS // 2


@dataclass(frozen=True, eq=False)
class EncryptNode:
    """A query about nodes, of ``rows`` each, in pieces: a block of rows each, the masks' at last.

    They are ``layout.nodes`` at most, and no row stands in two. ``pairs`` int64 (all rows, 2).
    ``seed`` must never encrypt anything else: the difference of two queries under one secret would
    be bare.
    """

    label: ClassVar[str] = "EncryptNode"
    pairs: NDArray[np.int64]
    rows: Sequence[NDArray[np.integer]]
    public: PublicElements
    layout: Layout
    seed: bytes = field(repr=False)

    def run(self) -> list[Values]:
        layout = self.layout
        secret = transformed(draw_secret(self.seed, layout.degree, layout.largest_secret))
        asked = np.zeros((len(self.rows), 2, layout.rows), np.int64)
        for node, rows in enumerate(self.rows):
            asked[node][:, rows] = self.pairs[rows].T
        pieces: list[Values] = []
        for block in range(layout.blocks):
            held = layout.rows_of(block)
            count = held.stop - held.start
            sums = coefficients(self.public.blocks[block] * secret)
            sums[0] += Stream(self.seed, f"fedmq lattice error {block}").errors(layout.degree)
            sums = sums[:, :count]
            for node, (g, h) in enumerate(asked[..., held]):
                add_shifted(sums, h, layout.h_offset(node))
                add_shifted(sums, g, layout.g_offset(node))
            pieces.append(_rounded("rows", sums, layout))
        sums = coefficients(self.public.mask * secret)
        sums[0] += Stream(self.seed, "fedmq lattice error of masks").errors(layout.degree)
        pieces.append(_rounded("masks", sums, layout))
        return pieces


def _rounded(name: str, sums: NDArray[np.int64], layout: Layout) -> Values:
    """Sums of limbs (6, n) as they travel, as numbers modulo 2^192 without their dropped bits."""
    if layout.dropped_bits:
        add_power(sums, layout.dropped_bits - 1)
    limbs = carried(sums)
    whole = layout.sent_limbs - layout.sends_half
    piece: Values = {name: limbs[LIMBS - whole :]}
    if layout.sends_half:
        piece["half"] = (limbs[LIMBS - whole - 1] >> _HALF).astype(np.uint16)
    return piece


@dataclass(frozen=True, eq=False)
class Query:
    """A query as its recipient adds it up: float64 (sent limbs, rows), and (sent limbs, N)."""

    rows: NDArray[np.float64]
    masks: NDArray[np.float64]


def read_query(pieces: Sequence[Values], layout: Layout) -> Query:
    """The pieces of `EncryptNode`, checked.

    Raises:
        MessageError: they are not of ``layout``.
    """
    if len(pieces) != layout.blocks + 1:
        raise MessageError(f"a query of {len(pieces)} pieces, not {layout.blocks + 1}")
    rows = np.empty((layout.sent_limbs, layout.rows))
    for block, piece in enumerate(pieces[:-1]):
        held = layout.rows_of(block)
        _read(piece, "rows", layout, rows[:, held])
    masks = np.empty((layout.sent_limbs, layout.degree))
    _read(pieces[-1], "masks", layout, masks)
    return Query(rows, masks)


def _read(piece: Values, name: str, layout: Layout, into: NDArray[np.float64]) -> None:
    """Put the limbs of ``piece`` into float64 (sent limbs, count)."""
    half = layout.sends_half
    shape = (len(into) - half, into.shape[1])
    limbs, halves = piece.get(name), piece.get("half")
    if (
        set(piece) != ({name, "half"} if half else {name})
        or not isinstance(limbs, np.ndarray)
        or limbs.dtype != np.uint32
        or limbs.shape != shape
    ):
        raise MessageError(f"a piece of a query that is not {name}: uint32 {shape}")
    into[int(half) :] = limbs
    if not half:
        return
    if not isinstance(halves, np.ndarray) or halves.dtype != np.uint16 or halves.shape != shape[1:]:
        raise MessageError(f"a piece of a query whose half limbs are not uint16 {shape[1:]}")
    np.multiply(halves, float(1 << _HALF), out=into[0])
