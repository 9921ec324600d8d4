"""Tall matrices in row ranges that fit one message each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import Extent
from fedmq.privacy.plan import PIECE_BYTES, Values

__all__ = ["joined_rows", "matrix_extent", "row_pieces", "row_ranges"]


def row_ranges(rows: int, columns: int, itemsize: int = 8) -> Iterator[slice]:
    """Ranges of the rows of a matrix that fill a message each; at least one, possibly empty."""
    step = max(1, PIECE_BYTES // max(1, columns * itemsize))
    return (slice(start, start + step) for start in range(0, max(rows, 1), step))


def matrix_extent(rows: int, columns: int) -> Extent:
    """A matrix of float64 as `row_pieces` sends it."""
    return Extent(sum(1 for _ in row_ranges(rows, columns)), 8 * rows * columns)


def row_pieces(name: str, matrix: NDArray[np.float64]) -> list[Values]:
    """``matrix`` (rows, columns) as the value ``name`` of so many pieces as it takes."""
    rows, columns = matrix.shape
    return [{name: matrix[part]} for part in row_ranges(rows, columns)]


def joined_rows(name: str, pieces: Sequence[Values], rows: int) -> NDArray[np.float64]:
    """What ``row_pieces`` took apart: float64 (rows, columns).

    Raises:
        MessageError: the pieces are of another kind, not finite, or not of so many rows.
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
