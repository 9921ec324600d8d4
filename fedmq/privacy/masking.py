"""How are matrices hidden in null spaces? The common ground of SMM-1 and SMM-2.

A broadcast names the rows that carry gradients. Then the splitting matrix M of a node, or its
gradients, travel as W: without their part in a null space. Matrices travel in row ranges that fit
one message each.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.splits import CandidateTable
from fedmq.computation import computation
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.cleartext_sums import carried_row_pieces
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf, Query, SizeLimit, Sums
from fedmq.privacy.plan import PIECE_BYTES, Compute, Exchange, Plan, Values

__all__ = [
    "ColumnSpan",
    "Columns",
    "FewColumnsSpan",
    "OneHotSpan",
    "RowNumbersPassive",
    "ask_hidden",
    "broadcast_row_numbers",
    "check_vector_counts",
    "hide_splits",
    "hiding_vectors",
    "is_orthonormal",
    "joined_rows",
    "leverages",
    "matrix_limit",
    "null_vectors",
    "row_pieces",
    "row_ranges",
    "splitting_matrix",
    "sum_hidden",
    "vectors_off_gradients",
]

_BYTES_PER_ROW = 4


def broadcast_row_numbers(gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
    """The plans of an active half that broadcasts the numbers of the rows that carry gradients."""
    return [_row_numbers(rows) for rows in carried_row_pieces(gradients, _BYTES_PER_ROW)]


def _row_numbers(rows: NDArray[np.uint32]) -> Plan[BroadcastPiece]:
    return BroadcastPiece(rows, {})
    yield


class RowNumbersPassive(PassiveHalf):
    """A passive party's half that receives the numbers of rows; engines add the answers."""

    def __init__(self, bins: BinMatrix) -> None:
        self.bins = bins
        self._secret = secrets.token_bytes(32)
        self.forget_tree()

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._secret = secret or self._secret

    def seed(self, query: Query) -> int:
        """The seed of the randomness in the answer to ``query``, unique to its round and node."""
        place = struct.pack(">QQQ", query.tree, query.node, query.round)
        return int.from_bytes(hmac.digest(self._secret, place, "sha256")[:16], "big")

    def forget_tree(self) -> None:
        self._carried = np.zeros(self.bins.n_rows, dtype=np.bool_)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        self._carried[piece.rows] = True
        return
        yield

    def carrying(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of ``rows`` that carry gradients."""
        return rows[self._carried[rows]]


# Tall matrices in row ranges that fit one message each.


def row_ranges(rows: int, columns: int, itemsize: int = 8) -> Iterator[slice]:
    """Ranges of the rows of a matrix that fill a message each; at least one, possibly empty."""
    step = max(1, PIECE_BYTES // max(1, columns * itemsize))
    return (slice(start, start + step) for start in range(0, max(rows, 1), step))


def matrix_limit(rows: int, columns: int) -> SizeLimit:
    """The size of a float64 matrix as `row_pieces` sends it."""
    return SizeLimit(sum(1 for _ in row_ranges(rows, columns)), 8 * rows * columns)


def row_pieces(name: str, matrix: NDArray[np.float64]) -> list[Values]:
    """``matrix`` (rows, columns) in pieces, each under the value ``name``."""
    rows, columns = matrix.shape
    return [{name: matrix[part]} for part in row_ranges(rows, columns)]


def joined_rows(name: str, pieces: Sequence[Values], rows: int) -> NDArray[np.float64]:
    """The matrix that ``row_pieces`` cut: float64 (rows, columns).

    Raises:
        MessageError: the pieces are of another kind, not finite, or do not have ``rows`` rows.
    """
    parts: list[NDArray[np.float64]] = []
    for piece in pieces:
        part = piece.get(name)
        if not isinstance(part, np.ndarray) or part.dtype != np.float64 or part.ndim != 2:
            raise MessageError(f"pieces of {name} that are no matrix of float64")
        parts.append(part)
    if len({part.shape[1] for part in parts}) != 1 or sum(len(part) for part in parts) != rows:
        raise MessageError(f"pieces of {name} that do not make up a matrix of {rows} rows")
    joined: NDArray[np.float64] = np.concatenate(parts)
    if not np.isfinite(joined).all():
        raise MessageError(f"pieces of {name} with values that are not finite")
    return joined


# Random orthonormal vectors that vanish under a matrix, without ever forming a square one.
#
# Gaussian vectors are projected off the matrix's columns, and made orthonormal; both are done
# twice, which leaves no more than rounding (Giraud et al. 2005, "twice is enough"), and the columns
# have the last word.


Columns = NDArray[np.float64]

_INDEPENDENT = 1e-13  # of a column's length; what is left below that is rounding
_SMALLEST_EIGENVALUE = 1e-10  # of a Gram matrix with unit diagonal
_VANISHES = 1e-4
_GRID_BITS = 25  # squares of unit vectors on that grid are sums below 2^53
_TALL = 8  # Gaussian columns this tall are well conditioned


class ColumnSpan(ABC):
    """The span of some columns of length ``rows``."""

    rows: int
    rank: int

    @abstractmethod
    def removed(self, vectors: Columns) -> Columns:
        """``vectors`` (rows, r) less their projection on the span."""


class FewColumnsSpan(ColumnSpan):
    """The span of a few dense columns (rows, c), possibly dependent or zero."""

    def __init__(self, columns: Columns) -> None:
        self.rows = len(columns)
        basis = np.empty((self.rows, 0))
        for column in columns.T:
            length = np.linalg.norm(column)
            if length == 0:
                continue
            rest = column / length
            for _ in range(2):
                rest = rest - basis @ (basis.T @ rest)
            left = np.linalg.norm(rest)
            if left > _INDEPENDENT:
                basis = np.column_stack((basis, rest / left))
        self._basis = basis
        self.rank = basis.shape[1]

    def removed(self, vectors: Columns) -> Columns:
        return vectors - self._basis @ (self._basis.T @ vectors)


class OneHotSpan(ColumnSpan):
    """The span of the bin indicators of some features and of a few dense columns.

    ``codes`` (rows, features) are small integers. All sums over bins of a feature, and so all
    splitting vectors, lie in the span. The Gram matrix is as wide as there are cells, never as
    there are rows.
    """

    def __init__(self, codes: NDArray[np.integer], dense: Columns) -> None:
        self.rows, features = codes.shape
        self._cells: list[NDArray[np.intp]] = []
        self._sorted: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        sizes = []
        for feature in range(features):
            _, cells, counts = np.unique(codes[:, feature], return_inverse=True, return_counts=True)
            self._cells.append(cells)
            starts = np.concatenate(([0], np.cumsum(counts[:-1])))
            self._sorted.append((np.argsort(cells, kind="stable"), starts))
            sizes.append(len(counts))
        self._dense = dense
        self._first = np.concatenate(([0], np.cumsum(sizes, dtype=np.intp)))
        self._largest_rank: int = int(self._first[-1]) - max(features - 1, 0) + dense.shape[1]
        self._factors: tuple[Columns, Columns] | None = None
        self.rank = 0

    @property
    def largest_rank(self) -> int:
        """An upper bound of ``rank``, known before the factorisation of the Gram matrix."""
        return self._largest_rank

    def factorise(self) -> None:
        """Take the Gram matrix apart; sets ``rank``."""
        gram = self._gram()
        scale = 1 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(gram * np.outer(scale, scale))
        kept = values > _SMALLEST_EIGENVALUE * max(values.max(initial=0), 1)
        self.rank = int(kept.sum())
        self._factors = (scale[:, None] * vectors[:, kept], 1 / values[kept])

    def removed(self, vectors: Columns) -> Columns:
        assert self._factors is not None
        directions, inverse = self._factors
        for _ in range(2):  # the Gram matrix squares the condition: refine
            weights = directions @ (inverse[:, None] * (directions.T @ self.products(vectors)))
            vectors = vectors - self._combination(weights)
        return vectors

    def products(self, vectors: Columns) -> Columns:
        """All columns of the span times ``vectors``: (columns, r)."""
        parts = [np.add.reduceat(vectors[order], starts) for order, starts in self._sorted]
        return np.concatenate([*parts, self._dense.T @ vectors])

    def _combination(self, weights: Columns) -> Columns:
        total = self._dense @ weights[self._first[-1] :]
        for cells, first in zip(self._cells, self._first[:-1], strict=True):
            total += weights[first + cells]
        return total

    def _gram(self) -> Columns:
        cells, dense = int(self._first[-1]), self._dense.shape[1]
        gram = np.zeros((cells + dense, cells + dense))
        bounds = [slice(a, b) for a, b in zip(self._first[:-1], self._first[1:], strict=True)]
        for i, rows in enumerate(bounds):
            for j, columns in enumerate(bounds[: i + 1]):
                shape = (rows.stop - rows.start, columns.stop - columns.start)
                joint = self._cells[i] * shape[1] + self._cells[j]
                counts = np.bincount(joint, minlength=shape[0] * shape[1]).reshape(shape)
                gram[rows, columns], gram[columns, rows] = counts, counts.T
        together = self.products(self._dense)
        gram[:, cells:], gram[cells:, :] = together, together.T
        return gram


def null_vectors(span: ColumnSpan, count: int, random: np.random.Generator) -> Columns:
    """``count`` random orthonormal vectors (rows, count) that are orthogonal to ``span``.

    A smaller null space gives fewer.
    """
    count = max(0, min(count, span.rows - span.rank))
    vectors = random.standard_normal((span.rows, count))
    for _ in range(2):
        vectors = _orthonormalised(span.removed(vectors))
    return span.removed(vectors)


def _orthonormalised(vectors: Columns) -> Columns:
    """Orthonormalise; tall matrices by Cholesky, which is as accurate and much faster."""
    rows, count = vectors.shape
    if rows < _TALL * count:
        return np.linalg.qr(vectors)[0]
    triangle = np.linalg.cholesky(vectors.T @ vectors)
    return vectors @ np.linalg.inv(triangle).T


def is_orthonormal(vectors: Columns) -> bool:
    """Whether the columns of ``vectors`` are orthonormal, to 4 digits.

    Sums of integers below 2^53 are exact in any order, so every machine decides alike.
    """
    if np.abs(vectors).max(initial=0) > 1 + _VANISHES:
        return False
    whole = np.rint(np.ldexp(vectors, _GRID_BITS))
    gram = np.ldexp(whole.T @ whole, -2 * _GRID_BITS)
    return bool(np.abs(gram - np.eye(len(gram))).max(initial=0) < _VANISHES)


def leverages(vectors: Columns) -> NDArray[np.float64]:
    """The diagonal of ``Z Z^T`` (rows,): how much of each row the projection takes away."""
    taken: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors)
    return taken


# The splitting matrix M of a node, and one exchange that sums gradients over its hidden form W.
#
# FedXGBoost (arXiv 2106.10662), Algorithms 1 and 2. SMM-1 asks about every node in this way, SMM-2
# about the nodes whose gradients it cannot hide.


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


@computation("VectorsOffGradients")
def vectors_off_gradients(pairs: NDArray[np.int64], count: int, seed: int) -> Columns:
    """``count`` random orthonormal vectors Z (rows, count) with ``Z^T [g h] = 0`` (Algorithm 1).

    Fewer where the node has fewer rows. Gradients that are all alike leave one more.
    """
    span = FewColumnsSpan(pairs.astype(np.float64))
    return null_vectors(span, count, np.random.default_rng(seed))


@computation("HideSplits")
def hide_splits(
    pieces: Sequence[Values],
    bins: BinMatrix,
    rows: NDArray[np.int32],
    candidates: CandidateTable,
    order: NDArray[np.int64],
    r: int,
    r_used: int,
    seed: int,
) -> list[Values]:
    """``W = (I - Z' Z'^T) M`` in pieces, for ``r_used`` random vectors of the Z that was sent.

    The result is bit-identical on every machine: ``Z'^T M`` is summed over Z' on a grid, where sums
    are exact in any order. ``W^T g = M^T g`` holds whatever ``Z'^T M`` is rounded to.
    """
    vectors = joined_rows("z", pieces, len(rows))
    chosen = hiding_vectors(vectors, r, r_used, seed)
    # The numbers in a unit vector add up to no more than the root of how many there are.
    grid_bits = 52 - (len(rows).bit_length() + 1) // 2
    whole = np.rint(np.ldexp(chosen, grid_bits))
    parts, weights = [], np.zeros((chosen.shape[1], len(order)))
    for part in row_ranges(len(rows), len(order)):
        left = splitting_matrix(bins, rows[part], candidates, order)
        weights += whole[part].T @ left
        parts.append((chosen[part], left))
    weights = np.ldexp(weights, -grid_bits)
    # M becomes W in place, since it may fill the memory. A matrix product would round as its
    # library chooses.
    for of_rows, left in parts:
        for vector, weight in zip(of_rows.T, weights, strict=True):
            np.subtract(left, np.multiply.outer(vector, weight), out=left)
    return [{"w": left} for _, left in parts]


def hiding_vectors(vectors: Columns, r: int, r_used: int, seed: int) -> Columns:
    """``r_used`` random ones of the ``vectors`` that came; raises Refused if they hide nothing."""
    rows, count = vectors.shape
    if not min(r, max(rows - 2, 0)) <= count <= r or not is_orthonormal(vectors):
        raise Refused(
            f"{count} vectors for {rows} rows that are not the {r} orthonormal ones "
            "agreed upon: they would hide nothing"
        )
    # At most half of the received vectors, so that the active party cannot tell which.
    used = min(r_used, -(-count // 2)) if count < r else r_used
    random = np.random.default_rng(seed)
    return vectors[:, random.permutation(count)[:used]]


@computation("SumHidden")
def sum_hidden(
    pieces: Sequence[Values], pairs: NDArray[np.int64], candidates: int
) -> NDArray[np.int64]:
    """``W^T g`` and ``W^T h`` on the grid of the fixed point: int64 (candidates, 2).

    W is split into whole numbers and a small rest. Sums of whole numbers are exact and only the
    rest is rounded: the result is ``M^T g`` to the last bit, unless rounding adds up to half a
    unit.
    """
    if any(
        not isinstance(w := piece.get("w"), np.ndarray)
        or w.dtype != np.float64
        or w.ndim != 2
        or w.shape[1] != candidates
        for piece in pieces
    ) or sum(len(piece["w"]) for piece in pieces) != len(pairs):
        raise MessageError("an answer W that does not fit the node")
    high = pairs >> _LOW_BITS
    low = (pairs - (high << _LOW_BITS)).astype(np.float64)
    floats, exact = pairs.astype(np.float64), high.astype(np.float64)
    sums, rest = np.zeros((candidates, 2), np.int64), np.zeros((candidates, 2))
    start = 0
    for piece in pieces:
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
    [vectors] = yield Compute([vectors_off_gradients.bind(pairs, r, secrets.randbits(128))])
    pieces = yield Exchange(row_pieces("z", vectors))
    first = pieces[0].get("w")
    candidates = first.shape[-1] if isinstance(first, np.ndarray) else 0
    [left] = yield Compute([sum_hidden.bind(pieces, pairs, candidates)])
    return Sums(left)
