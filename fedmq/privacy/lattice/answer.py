"""What does a passive party answer? For each candidate one number: the sum of what it cannot read.

Features with few joint cells are counted together; the margins of the small table separate them.
The cell of each row is found once for all queries.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.machine_sums import FEWEST_ROWS, add_by_cell, can_count
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import MessageError
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.lattice.parameters import (
    LIMB_BITS,
    LIMBS,
    Layout,
    add_power,
    carried,
)
from fedmq.privacy.lattice.query import pieces_of_query, read_query
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import SEED_BYTES, Stream

__all__ = [
    "AnswerQueries",
    "AnswerQuery",
    "JointBins",
    "MaskSums",
    "PartSums",
    "SumPieces",
    "add_flood",
    "inner_products",
]

_MOST_CELLS = 4096  # of several features together: a table that stays in the fastest cache


@dataclass(frozen=True, slots=True, eq=False)
class JointBins:
    """The bins of some features, ready for sums; ``cuts`` are those of all features.

    ``groups`` of features are counted together; ``codes`` (rows, groups) are the joint cells of
    rows, of the smallest dtype and column by column: a wide table has many.
    """

    cuts: Cuts
    groups: Sequence[Sequence[int]]
    codes: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, bins: BinMatrix, features: NDArray[np.integer]) -> JointBins:
        """The joint bins of ``features``, in ascending order."""
        groups = list(_joint_features(bins.cuts, features))
        most = max((math.prod(_shape(bins.cuts, joint)) for joint in groups), default=0)
        shape = (len(bins.codes), len(groups))
        codes = np.zeros(shape, np.min_scalar_type(most), order="F")
        for group, joint in enumerate(groups):
            for feature in joint:
                codes[:, group] *= codes.dtype.type(_cells(bins.cuts, feature))
                codes[:, group] += bins.codes[:, feature].astype(codes.dtype)
        return cls(bins.cuts, groups, codes)

    def sums(self, weights: NDArray[np.uint32], first: int = 0) -> NDArray[np.int64]:
        """Sums of ``weights`` (limbs, rows) per cell: int64 (limbs, cells), 0 elsewhere.

        ``weights`` are those of the rows from ``first`` on.
        """
        sums = np.zeros((len(weights), self.cuts.n_cells), np.int64)
        codes = self.codes[first : first + weights.shape[1]]
        shapes = [_shape(self.cuts, joint) for joint in self.groups]
        tables = _tables(codes, weights, [math.prod(shape) for shape in shapes])
        for joint, shape, table in zip(self.groups, shapes, tables, strict=True):
            cells = table.reshape(-1, *shape)
            for axis, (feature, length) in enumerate(zip(joint, shape, strict=True), 1):
                others = tuple(other for other in range(1, cells.ndim) if other != axis)
                place = int(self.cuts.first_cell[feature])
                sums[:, place : place + length] = cells.sum(axis=others)
        return sums


def _tables(
    codes: NDArray[np.unsignedinteger], weights: NDArray[np.uint32], lengths: Sequence[int]
) -> Iterator[NDArray[np.int64]]:
    """Sums of ``weights`` (limbs, rows) by each column of ``codes``: int64 (limbs, length) each.

    Many rows are summed in machine code. Both ways are exact: sums stay below 2^53.
    """
    rows = weights.shape[1]
    if rows >= FEWEST_ROWS and can_count(codes):
        ends = np.cumsum([0, *lengths])
        by_row = np.ascontiguousarray(weights.T, np.int64)
        found = np.zeros((1, int(ends[-1]), len(weights)), np.int64)
        add_by_cell(found, codes, ends, by_row, [np.arange(rows, dtype=np.int32)])
        yield from (found[0, start:stop].T for start, stop in pairwise(ends.tolist()))
        return
    floats = weights.astype(np.float64)
    for column, length in zip(codes.T, lengths, strict=True):
        places = column.astype(np.intp)
        counted = [np.bincount(places, limb, length) for limb in floats]
        yield np.stack(counted).astype(np.int64)


def _shape(cuts: Cuts, features: Sequence[int]) -> list[int]:
    return [_cells(cuts, feature) for feature in features]


def _cells(cuts: Cuts, feature: int) -> int:
    return int(cuts.n_bins[feature]) + 1


def _joint_features(cuts: Cuts, features: NDArray[np.integer]) -> Iterator[list[int]]:
    joint: list[int] = []
    together = 1
    for feature in features.tolist():
        cells = _cells(cuts, feature)
        if joint and together * cells > _MOST_CELLS:
            yield joint
            joint, together = [], 1
        joint.append(feature)
        together *= cells
    if joint:
        yield joint


# What does a passive party answer? For each candidate one number: the sum of what it cannot read.
#
# ``y = Σ b_i over the rows left of the candidate + [b'·r]_0 + E``: [·]_0 is the constant
# coefficient, r the candidate's mask, and E noise that drowns what errors would tell of the rows
# (Gentry, STOC 2009; Asharov et al., EUROCRYPT 2012): the sum of four uniform numbers, or one
# uniform number where sums are hidden. The noise derives from the passive party's secret, the
# position and the content of the question: different questions get different noise, and the same
# question gets the same answer. Contents enter by Poly1305 (Bernstein, FSE 2005, theorem 3.3) under
# a secret key, whose digests nobody sees: two pieces of 1 MB have the same with a chance of 2^-87.


_ELEMENTS_AT_ONCE = 16  # as numbers of 64 bits they stay in a fast cache


def inner_products(
    elements: NDArray[np.int8], limbs: NDArray[np.uint32] | NDArray[np.float64]
) -> NDArray[np.int64]:
    """Inner products of ternary elements (elements, N) with limbs (l, N): int64 (elements, l)."""
    columns = np.ascontiguousarray(limbs.T, np.float64)
    products = np.empty((len(elements), len(limbs)), np.int64)
    for start in range(0, len(elements), _ELEMENTS_AT_ONCE):
        part = slice(start, start + _ELEMENTS_AT_ONCE)
        products[part] = elements[part].astype(np.float64) @ columns
    return products


def add_flood(sums: NDArray[np.int64], seed: bytes, layout: Layout) -> None:
    """Add noise to sums of limbs (6, sums); no other sums may use the same ``seed``."""
    limbs = -(-layout.flood_bits // LIMB_BITS)
    bits = np.full(limbs, LIMB_BITS)
    bits[-1] = layout.flood_bits - LIMB_BITS * (limbs - 1)
    stream = Stream(seed, "fedmq lattice flood")
    words = stream.words(layout.flood_uniforms, limbs, sums.shape[-1])
    words = words >> (64 - bits).astype(np.uint64)[:, np.newaxis]
    sums[:limbs] += words.sum(axis=0).astype(np.int64)
    add_power(sums, layout.flood_bits - 1, -layout.flood_uniforms)  # their mean


@dataclass(frozen=True, slots=True, eq=False)
class PartSums:
    """Sums of ``pieces`` pieces of a query: limbs per cell (6, cells), of masks (masks, limbs).

    ``masks`` is None if the pieces hold no numbers of masks. ``digests`` has one per piece.
    """

    cells: NDArray[np.int64]
    masks: NDArray[np.int64] | None
    digests: Sequence[bytes]


@dataclass(frozen=True, eq=False)
class SumPieces:
    """The sums of neighbouring pieces of a query, the first of which is piece ``first``.

    ``masks`` int8 (masks, N): the secrets r as `reversed_element` turns them. ``seed``: the
    session's. Raises `MessageError` for malformed pieces.
    """

    label: ClassVar[str] = "SumPieces"
    pieces: Sequence[Values]
    first: int
    bins: JointBins
    masks: NDArray[np.int8]
    layout: Layout
    seed: bytes = field(repr=False)

    def run(self) -> PartSums:
        part = read_query(self.pieces, self.layout, self.first)
        lowest = LIMBS - self.layout.sent_limbs
        cells = np.zeros((LIMBS, self.bins.cuts.n_cells), np.int64)
        if part.rows.shape[1]:
            cells[lowest:] = self.bins.sums(part.rows, part.first)
        masks = inner_products(self.masks, part.masks) if part.masks.shape[1] else None
        key = Stream(self.seed, "fedmq lattice digests").read(SEED_BYTES)
        return PartSums(cells, masks, [_digest(piece, key) for piece in self.pieces])


def _digest(piece: Values, key: bytes) -> bytes:
    """The digest of a checked piece: its arrays have fixed names and shapes."""
    digest = Poly1305(key)
    for name in sorted(piece):
        digest.update(np.ascontiguousarray(piece[name]).data.cast("B"))
    return digest.finalize()


@dataclass(frozen=True, eq=False)
class AnswerQuery:
    """The answer to a query: limbs of a number for each candidate in ``order``, uint32 (C, 6).

    ``places`` (C,): the index of each candidate's mask. ``begun`` has the sums of earlier pieces;
    ``rest``, if any, sums the last ones. ``seed`` and ``purpose`` make the noise: they serve no
    other candidates. Raises `MessageError` for a malformed query.
    """

    rest: SumPieces | None
    begun: Sequence[PartSums]
    candidates: CandidateTable
    order: NDArray[np.int64]
    places: NDArray[np.integer]
    layout: Layout
    purpose: str
    seed: bytes = field(repr=False)

    def limbs(self) -> NDArray[np.uint32]:
        return np.ascontiguousarray(carried(self.sums()[0]).T)

    def sums(self) -> tuple[NDArray[np.int64], bytes]:
        """Sums of the answer's limbs (6, C), and the seed of this answer's randomness."""
        rest = [] if self.rest is None else [self.rest]
        pieces = sum(len(part.digests) for part in self.begun)
        pieces += sum(len(part.pieces) for part in rest)
        if pieces != pieces_of_query(self.layout):
            raise MessageError(f"a query of {pieces} pieces, not {pieces_of_query(self.layout)}")
        parts = [*self.begun, *(part.run() for part in rest)]
        assert parts[-1].masks is not None
        cells = np.sum([part.cells for part in parts], axis=0)
        # `left_sums` takes pairs of sums: here of two limbs.
        pairs = cells.reshape(LIMBS // 2, 2, -1).transpose(0, 2, 1)
        left = self.candidates.left_sums(pairs)[:, self.order]
        sums = np.ascontiguousarray(left.transpose(0, 2, 1)).reshape(LIMBS, -1)
        sums[LIMBS - self.layout.sent_limbs :] += parts[-1].masks[self.places[self.order]].T
        digests = b"".join(digest for part in parts for digest in part.digests)
        key = Stream(self.seed, f"fedmq lattice query {self.purpose}").read(SEED_BYTES)
        seed = hashlib.sha256(key + digests).digest()
        add_flood(sums, seed, self.layout)
        return sums, seed


@dataclass(frozen=True, eq=False)
class AnswerQueries:
    """The answers to ``queries``, each as `AnswerQuery` makes it."""

    label: ClassVar[str] = "AnswerQuery"
    queries: Sequence[AnswerQuery]

    def run(self) -> list[NDArray[np.uint32]]:
        return [query.limbs() for query in self.queries]


# How does a passive party keep a share of each sum? It subtracts what it keeps.
#
# An answer is ``y - p·2^noise``, where p is uniform over both fields of a pair, and the noise E in
# y is uniform over all that is below them. So ``E - p·2^noise`` is uniform modulo 2^192, and the
# answer as well: it discloses nothing, also of a query that holds other numbers in other places.


_LOW = np.uint64(2**LIMB_BITS - 1)
_WORD = 64


@dataclass(frozen=True, eq=False)
class MaskSums:
    """The limbs of an answer, uint32 (C, 6), and the passive party's shares (C, 2).

    Raises `MessageError` for a malformed query.
    """

    label: ClassVar[str] = "MaskSums"
    answer: AnswerQuery

    def run(self) -> tuple[NDArray[np.uint32], Shares]:
        layout = self.answer.layout
        sums, seed = self.answer.sums()
        kept = _drawn(seed, sums.shape[-1], layout)
        _subtract(sums, kept, layout)
        return np.ascontiguousarray(carried(sums).T), kept


def _drawn(seed: bytes, count: int, layout: Layout) -> Shares:
    """Uniform shares for this answer alone; its noise uses the same seed, by another stream."""
    words = Stream(seed, "fedmq lattice shares").words(count, 2)
    return words & Field(layout.field_bits).mask


def _subtract(sums: NDArray[np.int64], shares: Shares, layout: Layout) -> None:
    for column, offset in ((0, layout.g_offset(0)), (1, layout.h_offset(0))):
        field = shares[:, column]
        first, shift = divmod(offset, LIMB_BITS)
        for limb in range(first, len(sums)):
            up = LIMB_BITS * (limb - first) - shift
            if up >= _WORD:
                break
            part = field >> np.uint64(up) if up >= 0 else field << np.uint64(-up)
            sums[limb] -= (part & _LOW).astype(np.int64)
