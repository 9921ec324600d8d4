"""Sums of gradients by bin at the speed of memory, in the processor's own instructions.

A piece of a node's rows stays in the cache while all features are summed. One vector holds the
gradients of a row, so that a row and a feature take one addition.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated

__all__ = ["FEWEST_ROWS", "add_by_cell", "can_add"]

FEWEST_ROWS = 2**15
"""Translating the code takes 40 ms, which 40 sums of so many rows of ten columns save."""

_MOST_COLUMNS = 8  # of gradients, in one vector
_PIECE = 4096  # rows: their gradients and numbers fit into the second cache


def can_add(codes: NDArray[np.unsignedinteger], gradients: NDArray[np.int64]) -> bool:
    """Whether `add_by_cell` is there, and can sum these arrays."""
    return (
        0 < gradients.shape[1] <= _MOST_COLUMNS
        and gradients.dtype == np.int64
        and codes.dtype in (np.uint8, np.uint16)
        and bool(features())
    )


def add_by_cell(
    sums: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    first_cell: NDArray[np.int64],
    gradients: NDArray[np.int64],
    rows: NDArray[np.intp],
    lengths: Sequence[int],
) -> None:
    """Add each node's gradients to ``sums``, int64 (nodes, cells, columns), in one piece.

    ``rows`` are those of the nodes, one node after the other, of these ``lengths``.
    ``codes`` (rows, features) lie below the number of cells of their feature.

    Raises:
        IndexError: a row is not in the table.
    """
    if len(rows) and not 0 <= rows.min() <= rows.max() < min(len(codes), len(gradients)):
        raise IndexError("a row that is not in the table")
    starts = np.concatenate(([0], np.cumsum(lengths)))
    pieces = np.array(
        [
            (node, first, min(first + _PIECE, stop))
            for node, (start, stop) in enumerate(pairwise(starts.tolist()))
            for first in range(start, stop, _PIECE)
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    gradients = np.ascontiguousarray(gradients)
    first_cell = np.ascontiguousarray(first_cell, np.int64)
    width = codes.itemsize
    _kernel(8 * width, gradients.shape[1])(
        *(array.ctypes.data for array in (sums, codes, first_cell, gradients, rows, pieces)),
        len(pieces),
        codes.shape[1],
        sums.shape[1],
        codes.strides[0] // width,
        codes.strides[1] // width,
    )


@lru_cache(maxsize=16)
def _kernel(bits: int, columns: int) -> Callable[..., None]:
    module = _MODULE.replace("CODE", f"i{bits}").replace("BYTES", str(8 * columns))
    module = module.replace("ROW", f"<{columns} x i64>")
    [address] = translated(module, "add_by_cell")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 5)(address)


_MODULE = """
define void @add_by_cell(ptr %sums, ptr %codes, ptr %cells, ptr %gradients, ptr %rows, ptr %pieces,
    i64 %n_pieces, i64 %features, i64 %node_cells, i64 %row_step, i64 %feature_step) {
entry:
  %none = icmp eq i64 %n_pieces, 0
  %featureless = icmp eq i64 %features, 0
  %nothing = or i1 %none, %featureless
  br i1 %nothing, label %end, label %piece
piece:
  %p = phi i64 [0, %entry], [%next_p, %piece_end]
  %at = mul i64 %p, 3
  %node_at = getelementptr i64, ptr %pieces, i64 %at
  %start_at = getelementptr i64, ptr %node_at, i64 1
  %stop_at = getelementptr i64, ptr %node_at, i64 2
  %node = load i64, ptr %node_at
  %start = load i64, ptr %start_at
  %stop = load i64, ptr %stop_at
  %node_first = mul i64 %node, %node_cells
  br label %feature
feature:
  %f = phi i64 [0, %piece], [%next_f, %feature_end]
  %cell_at = getelementptr i64, ptr %cells, i64 %f
  %feature_first = load i64, ptr %cell_at
  %first = add i64 %node_first, %feature_first
  %column = mul i64 %f, %feature_step
  br label %row
row:
  %k = phi i64 [%start, %feature], [%next_k, %row]
  %number_at = getelementptr i64, ptr %rows, i64 %k
  %number = load i64, ptr %number_at
  %in_column = mul i64 %number, %row_step
  %code_index = add i64 %column, %in_column
  %code_at = getelementptr CODE, ptr %codes, i64 %code_index
  %code = load CODE, ptr %code_at
  %bin = zext CODE %code to i64
  %cell = add i64 %first, %bin
  %gradient_bytes = mul i64 %number, BYTES
  %gradient_at = getelementptr i8, ptr %gradients, i64 %gradient_bytes
  %gradient = load ROW, ptr %gradient_at, align 8
  %sum_bytes = mul i64 %cell, BYTES
  %sum_at = getelementptr i8, ptr %sums, i64 %sum_bytes
  %before = load ROW, ptr %sum_at, align 8
  %after = add ROW %before, %gradient
  store ROW %after, ptr %sum_at, align 8
  %next_k = add i64 %k, 1
  %more_rows = icmp slt i64 %next_k, %stop
  br i1 %more_rows, label %row, label %feature_end
feature_end:
  %next_f = add i64 %f, 1
  %more_features = icmp slt i64 %next_f, %features
  br i1 %more_features, label %feature, label %piece_end
piece_end:
  %next_p = add i64 %p, 1
  %more_pieces = icmp slt i64 %next_p, %n_pieces
  br i1 %more_pieces, label %piece, label %end
end:
  ret void
}
"""
