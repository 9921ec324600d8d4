"""Random orthonormal vectors that vanish under a matrix, without ever forming a square one.

Gaussian vectors are projected off the matrix's columns, and made orthonormal; both are done
twice, which leaves no more than rounding (Giraud et al. 2005, "twice is enough"), and the columns
have the last word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ColumnSpan",
    "Columns",
    "FewColumnsSpan",
    "OneHotSpan",
    "is_orthonormal",
    "leverages",
    "null_vectors",
]

Columns = NDArray[np.float64]

_INDEPENDENT = 1e-13  # of a column's length; what is left below that is rounding
_SMALLEST_EIGENVALUE = 1e-10  # of a Gram matrix with unit diagonal
_VANISHES = 1e-4
_GRID_BITS = 25  # squares of unit vectors on that grid are sums below 2^53
_TALL = 8  # Gaussian columns of such a shape are well conditioned


class ColumnSpan(ABC):
    """The span of some columns of length ``rows``."""

    rows: int
    rank: int

    @abstractmethod
    def removed(self, vectors: Columns) -> Columns:
        """``vectors`` (rows, r) less their projection on the span."""


class FewColumnsSpan(ColumnSpan):
    """Of a handful of dense columns (rows, c), which may depend on each other or be zero."""

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
    """Of the bin indicators of some features, and of a few dense columns beside them.

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
        """What ``rank`` cannot exceed; known before the Gram matrix is taken apart."""
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

    Fewer where the null space is smaller.
    """
    count = max(0, min(count, span.rows - span.rank))
    vectors = random.standard_normal((span.rows, count))
    for _ in range(2):
        vectors = _orthonormalised(span.removed(vectors))
    return span.removed(vectors)


def _orthonormalised(vectors: Columns) -> Columns:
    """By Cholesky where there are many more rows than vectors, which is as good and much faster."""
    rows, count = vectors.shape
    if rows < _TALL * count:
        return np.linalg.qr(vectors)[0]
    triangle = np.linalg.cholesky(vectors.T @ vectors)
    return vectors @ np.linalg.inv(triangle).T


def is_orthonormal(vectors: Columns) -> bool:
    """Whether the columns of ``vectors`` are orthonormal, to 4 digits.

    Sums of whole numbers below 2^53 are exact in any order, so that every machine decides alike.
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
