"""How is a node asked about without saying which rows stand in it?

Row by row its g and h are encrypted, 0 where a row stands elsewhere: ``b_j = a_j·s + e_j + u_j``
for each block of rows, and ``b' = a'·s + e'`` for the masks, with a fresh secret s (Regev, STOC
2005; Lyubashevsky, Peikert and Regev, EUROCRYPT 2010). The a_j are not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.layout import LIMBS, Layout
from fedmq.privacy.lattice.limbs import add_shifted, carried
from fedmq.privacy.lattice.public_elements import PublicElements
from fedmq.privacy.lattice.ring import coefficients, transformed
from fedmq.privacy.lattice.sampling import Stream, draw_secret
from fedmq.privacy.plan import Values

__all__ = ["EncryptNode", "Query", "read_query"]


@dataclass(frozen=True, eq=False)
class EncryptNode:
    """A query about the node of ``rows`` in pieces: a block of rows each, and the masks' at last.

    ``pairs`` int64 (all rows, 2). ``seed`` must never encrypt anything else: the difference of two
    queries under one secret would be bare.
    """

    label: ClassVar[str] = "EncryptNode"
    pairs: NDArray[np.int64]
    rows: NDArray[np.integer]
    public: PublicElements
    layout: Layout
    seed: bytes = field(repr=False)

    def run(self) -> list[Values]:
        layout = self.layout
        secret = transformed(draw_secret(self.seed, layout.degree, layout.largest_secret))
        asked = np.zeros((2, layout.rows), np.int64)
        asked[:, self.rows] = self.pairs[self.rows].T
        pieces: list[Values] = []
        for block in range(layout.blocks):
            held = layout.rows_of(block)
            count = held.stop - held.start
            sums = coefficients(self.public.blocks[block] * secret)
            sums[0] += Stream(self.seed, f"fedmq lattice error {block}").errors(layout.degree)
            sums = sums[:, :count]
            add_shifted(sums, asked[1, held], layout.noise_bits)
            add_shifted(sums, asked[0, held], layout.g_offset)
            pieces.append({"rows": carried(sums)})
        sums = coefficients(self.public.mask * secret)
        sums[0] += Stream(self.seed, "fedmq lattice error of masks").errors(layout.degree)
        pieces.append({"masks": carried(sums)})
        return pieces


@dataclass(frozen=True, eq=False)
class Query:
    """A query as its recipient adds it up: ``rows`` float64 (6, rows), ``masks`` uint32 (6, N)."""

    rows: NDArray[np.float64]
    masks: NDArray[np.uint32]


def read_query(pieces: Sequence[Values], layout: Layout) -> Query:
    """The pieces of `EncryptNode`, checked.

    Raises:
        MessageError: they are not of ``layout``.
    """
    if len(pieces) != layout.blocks + 1:
        raise MessageError(f"a query of {len(pieces)} pieces, not {layout.blocks + 1}")
    rows = np.empty((LIMBS, layout.rows))
    for block, piece in enumerate(pieces[:-1]):
        held = layout.rows_of(block)
        rows[:, held] = _limbs(piece, "rows", held.stop - held.start)
    return Query(rows, _limbs(pieces[-1], "masks", layout.degree))


def _limbs(piece: Values, name: str, count: int) -> NDArray[np.uint32]:
    limbs = piece.get(name)
    if (
        set(piece) != {name}
        or not isinstance(limbs, np.ndarray)
        or limbs.dtype != np.uint32
        or limbs.shape != (LIMBS, count)
    ):
        raise MessageError(f"a piece of a query that is not {name}: uint32 ({LIMBS}, {count})")
    return limbs
