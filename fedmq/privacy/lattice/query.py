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
from fedmq.privacy.engine import Extent
from fedmq.privacy.lattice.layout import LIMB_BITS, LIMBS, Layout
from fedmq.privacy.lattice.limbs import add_power, add_shifted, carried
from fedmq.privacy.lattice.public_elements import PublicElements
from fedmq.privacy.lattice.ring import coefficients, transformed
from fedmq.privacy.lattice.sampling import draw_errors, draw_secret
from fedmq.privacy.plan import PIECE_BYTES, Values
from fedmq.privacy.random_stream import Stream

__all__ = ["EncryptNode", "Query", "query_extent", "read_query"]

_HALF = LIMB_BITS // 2


@dataclass(frozen=True, eq=False)
class EncryptNode:
    """A query about nodes, of ``rows`` each, in pieces: the numbers of all rows, then the masks'.

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
        limbs = np.empty((LIMBS, layout.rows + layout.degree), np.uint32)
        for block in range(layout.blocks):
            held = layout.rows_of(block)
            sums = coefficients(self.public.blocks[block] * secret)
            sums[0] += draw_errors(Stream(self.seed, f"fedmq lattice error {block}"), layout.degree)
            sums = sums[:, : held.stop - held.start]
            for node, (g, h) in enumerate(asked[..., held]):
                add_shifted(sums, h, layout.h_offset(node))
                add_shifted(sums, g, layout.g_offset(node))
            limbs[:, held] = _rounded(sums, layout)
        sums = coefficients(self.public.mask * secret)
        sums[0] += draw_errors(Stream(self.seed, "fedmq lattice error of masks"), layout.degree)
        limbs[:, layout.rows :] = _rounded(sums, layout)
        return [_piece(limbs[:, part], layout) for part in _parts(layout)]


def _rounded(sums: NDArray[np.int64], layout: Layout) -> NDArray[np.uint32]:
    """Sums of limbs (6, n) as numbers modulo 2^192, whose dropped bits do not count any more."""
    if layout.dropped_bits:
        add_power(sums, layout.dropped_bits - 1)
    return carried(sums)


def _parts(layout: Layout) -> list[slice]:
    """Which of a query's numbers travel in each of its pieces."""
    count = layout.rows + layout.degree
    width = PIECE_BYTES // (LIMB_BITS // 8 * layout.sent_limbs)
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


def query_extent(layout: Layout) -> Extent:
    """What the pieces of `EncryptNode` take."""
    number_bytes = LIMB_BITS // 8 * layout.sent_limbs - _HALF // 8 * layout.sends_half
    return Extent(len(_parts(layout)), (layout.rows + layout.degree) * number_bytes)


def _piece(limbs: NDArray[np.uint32], layout: Layout) -> Values:
    """Limbs (6, n) as they travel."""
    lowest = LIMBS - layout.sent_limbs
    if not layout.sends_half:
        return {"limbs": np.ascontiguousarray(limbs[lowest:])}
    return {
        "limbs": np.ascontiguousarray(limbs[lowest + 1 :]),
        "half": (limbs[lowest] >> _HALF).astype(np.uint16),
    }


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
    parts = _parts(layout)
    if len(pieces) != len(parts):
        raise MessageError(f"a query of {len(pieces)} pieces, not {len(parts)}")
    limbs = np.empty((layout.sent_limbs, layout.rows + layout.degree))
    for piece, part in zip(pieces, parts, strict=True):
        _read(piece, layout, limbs[:, part])
    return Query(limbs[:, : layout.rows], limbs[:, layout.rows :])


def _read(piece: Values, layout: Layout, into: NDArray[np.float64]) -> None:
    """Put the limbs of ``piece`` into float64 (sent limbs, count)."""
    half = layout.sends_half
    shape = (len(into) - half, into.shape[1])
    limbs, halves = piece.get("limbs"), piece.get("half")
    if (
        set(piece) != ({"limbs", "half"} if half else {"limbs"})
        or not isinstance(limbs, np.ndarray)
        or limbs.dtype != np.uint32
        or limbs.shape != shape
    ):
        raise MessageError(f"a piece of a query that is not limbs: uint32 {shape}")
    into[int(half) :] = limbs
    if not half:
        return
    if not isinstance(halves, np.ndarray) or halves.dtype != np.uint16 or halves.shape != shape[1:]:
        raise MessageError(f"a piece of a query whose half limbs are not uint16 {shape[1:]}")
    np.multiply(halves, float(1 << _HALF), out=into[0])
