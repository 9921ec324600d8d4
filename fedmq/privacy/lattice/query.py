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
from fedmq.privacy.lattice.ring import Transform, coefficients, transformed
from fedmq.privacy.lattice.sampling import draw_errors, draw_secret
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values
from fedmq.privacy.random_stream import Stream

__all__ = ["EncryptNode", "QueryPart", "pieces_of_query", "query_extent", "read_query"]

_HALF = LIMB_BITS // 2


@dataclass(frozen=True, eq=False)
class EncryptNode:
    """A query about nodes, of ``rows`` each, in pieces: the numbers of all rows, then the masks'.

    All of them, or the one number ``piece`` alone. Nodes are ``layout.nodes`` at most, and no row
    stands in two. ``pairs`` int64 (all rows, 2).
    ``seed`` must never encrypt anything else: the difference of two queries under one secret would
    be bare.
    """

    label: ClassVar[str] = "EncryptNode"
    pairs: NDArray[np.int64]
    rows: Sequence[NDArray[np.integer]]
    public: PublicElements
    layout: Layout
    seed: bytes = field(repr=False)
    piece: int | None = None

    def run(self) -> list[Values]:
        layout = self.layout
        secret = transformed(draw_secret(self.seed, layout.degree, layout.largest_secret))
        inside = np.zeros((len(self.rows), layout.rows), np.bool_)
        for node, rows in enumerate(self.rows):
            inside[node, rows] = True
        pieces = _elements(layout)
        asked = pieces if self.piece is None else [pieces[self.piece]]
        return [self._encrypted(elements, secret, inside) for elements in asked]

    def _encrypted(self, elements: range, secret: Transform, inside: NDArray[np.bool_]) -> Values:
        """These elements of the query; ``inside`` (nodes, rows): who stands in which node."""
        layout = self.layout
        sums = coefficients(self.public.every[elements.start : elements.stop] * secret)
        for element, limbs in zip(elements, sums, strict=True):
            limbs[0] += draw_errors(self._errors(element), layout.degree)
            if element == layout.blocks:
                continue
            held = layout.rows_of(element)
            for node, here in enumerate(inside[:, held]):
                g, h = np.multiply(self.pairs[held].T, here, order="C")
                add_shifted(limbs[:, : len(here)], h, layout.h_offset(node))
                add_shifted(limbs[:, : len(here)], g, layout.g_offset(node))
        if layout.dropped_bits:  # rounded, so that they do not count any more
            add_power(sums, layout.dropped_bits - 1)
        sent = carried(sums)[:, LIMBS - layout.sent_limbs :]
        counts = (_numbers(range(element, element + 1), layout) for element in elements)
        parts = [part[:, : held.stop - held.start] for part, held in zip(sent, counts, strict=True)]
        return _packed(np.concatenate(parts, axis=1), layout)

    def _errors(self, element: int) -> Stream:
        of = "of masks" if element == self.layout.blocks else f"{element}"
        return Stream(self.seed, f"fedmq lattice error {of}")


def _elements(layout: Layout) -> list[range]:
    """Which ring elements of a query travel in each of its pieces: blocks of rows, then masks."""
    count, number_bytes = layout.blocks + 1, LIMB_BITS // 8 * layout.sent_limbs
    most = max(1, LARGEST_PIECE_BYTES // (number_bytes * layout.degree))
    return [range(start, min(start + most, count)) for start in range(0, count, most)]


def _numbers(elements: range, layout: Layout) -> slice:
    """Where the numbers of neighbouring elements stand among all of a query."""
    ends = [min(end * layout.degree, layout.rows) for end in range(layout.blocks + 1)]
    ends.append(layout.rows + layout.degree)
    return slice(ends[elements.start], ends[elements.stop])


def query_extent(layout: Layout) -> Extent:
    """What the pieces of `EncryptNode` take."""
    number_bytes = LIMB_BITS // 8 * layout.sent_limbs - _HALF // 8 * layout.sends_half
    return Extent(pieces_of_query(layout), (layout.rows + layout.degree) * number_bytes)


def _packed(limbs: NDArray[np.uint32], layout: Layout) -> Values:
    """Limbs (sent limbs, n) as they travel."""
    if not layout.sends_half:
        return {"limbs": limbs}
    return {"limbs": limbs[1:], "half": (limbs[0] >> _HALF).astype(np.uint16)}


@dataclass(frozen=True, eq=False)
class QueryPart:
    """Neighbouring pieces of a query as their recipient adds them up.

    ``rows`` float64 (sent limbs, rows) are the numbers of so many rows from ``first`` on; ``masks``
    (sent limbs, N), or (sent limbs, 0) where the last piece is not among them.
    """

    first: int
    rows: NDArray[np.float64]
    masks: NDArray[np.float64]


def pieces_of_query(layout: Layout) -> int:
    """So many pieces does `EncryptNode` make."""
    return len(_elements(layout))


def read_query(pieces: Sequence[Values], layout: Layout, first: int = 0) -> QueryPart:
    """The ``pieces`` of `EncryptNode` from piece ``first`` on, checked.

    Raises:
        MessageError: they are not of ``layout``.
    """
    parts = [
        _numbers(elements, layout) for elements in _elements(layout)[first : first + len(pieces)]
    ]
    if not parts or len(parts) != len(pieces):
        raise MessageError(
            f"a query of {first + len(pieces)} pieces, not {pieces_of_query(layout)}"
        )
    held = slice(parts[0].start, parts[-1].stop)
    limbs = np.empty((layout.sent_limbs, held.stop - held.start))
    for piece, part in zip(pieces, parts, strict=True):
        _read(piece, layout, limbs[:, part.start - held.start : part.stop - held.start])
    rows = min(held.stop, layout.rows) - held.start
    return QueryPart(held.start, limbs[:, :rows], limbs[:, rows:])


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
