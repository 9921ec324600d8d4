"""The splitting matrix M of a node, and one exchange that sums gradients over its hidden form W.

FedXGBoost (arXiv 2106.10662), Algorithms 1 and 2. SMM-1 asks about every node in this way, SMM-2
about the nodes whose gradients it cannot hide.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.engine import Query, Sums
from fedmq.privacy.masking.null_space import Columns, FewColumnsSpan, is_orthonormal, null_vectors
from fedmq.privacy.masking.row_pieces import joined_rows, row_pieces, row_ranges
from fedmq.privacy.plan import Compute, Exchange, Plan, Values

__all__ = [
    "HideSplits",
    "SumHidden",
    "VectorsOffGradients",
    "ask_hidden",
    "check_vector_counts",
    "hide_splits",
    "splitting_matrix",
]


_LOW_BITS = 24  # of gradients that are summed by themselves, so that products stay exact


def check_vector_counts(r: int, r_used: int) -> None:
    """Raise ConfigError unless 1 <= r_used <= r."""
    if not 1 <= r_used <= r:
        raise ConfigError(f"r_used = {r_used}, r = {r}: 1 <= r_used <= r is needed")


def splitting_matrix(
    bins: BinMatrix,
    rows: NDArray[np.int32],
    candidates: CandidateTable,
    order: NDArray[np.int64],
) -> Columns:
    """M: float64 (rows, candidates), 1 where a row goes left of candidate ``order[i]``, else 0."""
    feature = candidates.feature[order]
    codes = bins.codes[rows].astype(np.int32)[:, feature]
    matrix = np.empty(codes.shape)
    np.less_equal(codes, candidates.bin[order], out=matrix)
    backward = np.flatnonzero(candidates.default_left[order])
    matrix[:, backward] += codes[:, backward] == bins.cuts.n_bins[feature[backward]]
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class VectorsOffGradients:
    """``count`` random orthonormal vectors Z (rows, count) with ``Z^T [g h] = 0`` (Algorithm 1).

    Fewer where the node has fewer rows. Gradients that are all alike leave one more.
    """

    label: ClassVar[str] = "VectorsOffGradients"
    pairs: NDArray[np.int64]
    count: int
    seed: int

    def run(self) -> Columns:
        span = FewColumnsSpan(self.pairs.astype(np.float64))
        return null_vectors(span, self.count, np.random.default_rng(self.seed))


@dataclass(frozen=True, slots=True, eq=False)
class HideSplits:
    """``W = (I - Z' Z'^T) M`` in pieces, for ``r_used`` random vectors of the Z that was sent.

    To the last bit the same on every machine: ``Z'^T M`` is summed over Z' on a grid, where sums
    are exact in any order. ``W^T g = M^T g`` holds whatever ``Z'^T M`` is rounded to.
    """

    label: ClassVar[str] = "HideSplits"
    pieces: Sequence[Values]
    bins: BinMatrix
    rows: NDArray[np.int32]
    candidates: CandidateTable
    order: NDArray[np.int64]
    r: int
    r_used: int
    seed: int

    def run(self) -> list[Values]:
        vectors = joined_rows("z", self.pieces, len(self.rows))
        chosen = self._chosen(vectors)
        # The numbers in a unit vector add up to no more than the root of how many there are.
        grid_bits = 52 - (len(self.rows).bit_length() + 1) // 2
        whole = np.rint(np.ldexp(chosen, grid_bits))
        pieces, weights = [], np.zeros((chosen.shape[1], len(self.order)))
        for part in row_ranges(len(self.rows), len(self.order)):
            left = splitting_matrix(self.bins, self.rows[part], self.candidates, self.order)
            weights += whole[part].T @ left
            pieces.append((chosen[part], left))
        weights = np.ldexp(weights, -grid_bits)
        # M becomes W in its place: it may fill the memory. A product of matrices would round as
        # its library likes.
        for parts, left in pieces:
            for vector, weight in zip(parts.T, weights, strict=True):
                np.subtract(left, np.multiply.outer(vector, weight), out=left)
        return [{"w": left} for _, left in pieces]

    def _chosen(self, vectors: Columns) -> Columns:
        count, rows = vectors.shape[1], len(self.rows)
        if not min(self.r, max(rows - 2, 0)) <= count <= self.r or not is_orthonormal(vectors):
            raise Refused(
                f"{count} vectors for {rows} rows that are not the {self.r} orthonormal ones "
                "agreed upon: they would hide nothing"
            )
        # Half of what came at most, so that the active party does not know which.
        used = min(self.r_used, -(-count // 2)) if count < self.r else self.r_used
        random = np.random.default_rng(self.seed)
        return vectors[:, random.permutation(count)[:used]]


@dataclass(frozen=True, slots=True, eq=False)
class SumHidden:
    """``W^T g`` and ``W^T h`` on the grid of the fixed point: int64 (candidates, 2).

    W is taken as whole numbers and a small rest, so that large sums are exact and only the rest is
    rounded: what comes out is ``M^T g`` to the last bit, unless rounding adds up to half a unit.
    """

    label: ClassVar[str] = "SumHidden"
    pieces: Sequence[Values]
    pairs: NDArray[np.int64]
    candidates: int

    def run(self) -> NDArray[np.int64]:
        if any(
            not isinstance(w := piece.get("w"), np.ndarray)
            or w.dtype != np.float64
            or w.ndim != 2
            or w.shape[1] != self.candidates
            for piece in self.pieces
        ) or sum(len(piece["w"]) for piece in self.pieces) != len(self.pairs):
            raise MessageError("an answer W that does not fit the node")
        high = self.pairs >> _LOW_BITS
        low = (self.pairs - (high << _LOW_BITS)).astype(np.float64)
        floats, exact = self.pairs.astype(np.float64), high.astype(np.float64)
        sums, rest = np.zeros((self.candidates, 2), np.int64), np.zeros((self.candidates, 2))
        start = 0
        for piece in self.pieces:
            part = slice(start, start + len(piece["w"]))
            whole = np.rint(piece["w"])
            # Both products are sums of integers below 2**53: exact in float64.
            sums += (whole.T @ exact[part]).astype(np.int64) << _LOW_BITS
            sums += (whole.T @ low[part]).astype(np.int64)
            rest += (piece["w"] - whole).T @ floats[part]
            start = part.stop
        return sums + np.rint(rest).astype(np.int64)


def ask_hidden(pairs: NDArray[np.int64], r: int) -> Plan[Sums]:
    """One exchange of SMM-1 about the rows with the gradients ``pairs`` (rows, 2)."""
    [vectors] = yield Compute([VectorsOffGradients(pairs, r, secrets.randbits(128))])
    pieces = yield Exchange(row_pieces("z", vectors))
    first = pieces[0].get("w")
    candidates = first.shape[-1] if isinstance(first, np.ndarray) else 0
    [left] = yield Compute([SumHidden(pieces, pairs, candidates)])
    return Sums(left)


def hide_splits(
    query: Query, bins: BinMatrix, rows: NDArray[np.int32], r: int, r_used: int, seed: int
) -> HideSplits:
    """The passive party's answer to :func:`ask_hidden`: ``rows`` of the node carry gradients."""
    return HideSplits(
        query.pieces,
        bins,
        rows,
        query.candidates,
        query.order,
        r,
        r_used,
        seed,
    )
