"""Sums and counts of rows by bin at the speed of memory, in the processor's own instructions.

A piece of a node's rows stays in the cache while all features are summed. One vector holds the
gradients of a row, so that a row and a feature take one addition. Several features of a row are
summed together: they share the row's number and its gradients.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import address, features, translated

__all__ = [
    "FEWEST_ROWS",
    "add_by_cell",
    "bounds",
    "can_add",
    "can_bound",
    "can_count",
    "count_by_cell",
]

FEWEST_ROWS = 2**15
"""Translating the code takes 40 ms, which 40 sums of so many rows of ten columns save."""

_MOST_COLUMNS = 8  # of gradients, in one vector
_PIECE = 2048  # rows: their gradients and numbers fit into the second cache
_TOGETHER = 8  # features


def can_count(codes: NDArray[np.unsignedinteger]) -> bool:
    """Whether `count_by_cell` is there, and can count these codes."""
    return codes.dtype in (np.uint8, np.uint16) and bool(features())


def can_bound(gradients: NDArray[np.int64]) -> bool:
    """Whether `bounds` is there, and can sum these gradients."""
    fits = 0 < gradients.shape[1] <= _MOST_COLUMNS and gradients.dtype == np.int64
    return fits and gradients.flags.c_contiguous and bool(features())


def can_add(codes: NDArray[np.unsignedinteger], gradients: NDArray[np.int64]) -> bool:
    """Whether `add_by_cell` is there, and can sum these arrays."""
    fits = 0 < gradients.shape[1] <= _MOST_COLUMNS and gradients.dtype == np.int64
    return fits and can_count(codes)


def add_by_cell(
    sums: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    first_cell: NDArray[np.int64],
    gradients: NDArray[np.int64],
    nodes: Sequence[NDArray[np.integer]],
) -> None:
    """Add the gradients of each node to ``sums``, int64 (nodes, cells, columns).

    A node is given by its rows. ``codes`` (rows, features) lie below the number of cells of their
    feature.

    Raises:
        IndexError: a row is not in the table.
    """
    gradients = np.ascontiguousarray(gradients)
    kernel = _kernel(8 * codes.itemsize, gradients.shape[1])
    table = min(len(codes), len(gradients))
    _by_cell(kernel, sums, codes, first_cell, gradients, range(codes.shape[1]), nodes, table)


def count_by_cell(
    counts: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    first_cell: NDArray[np.int64],
    chosen: Sequence[int],
    nodes: Sequence[NDArray[np.integer]],
) -> None:
    """Add the rows of each node to ``counts``, int64 (nodes, cells), of the ``chosen`` features.

    Raises:
        IndexError: a row is not in the table.
    """
    kernel = _kernel(8 * codes.itemsize, 0)
    _by_cell(kernel, counts, codes, first_cell, codes, chosen, nodes, len(codes))


def bounds(gradients: NDArray[np.int64], rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """The sums over ``rows`` of negative and of positive ``gradients``: int64 (2, columns).

    Raises:
        IndexError: a row is not in the table.
    """
    rows = _numbers(rows, len(gradients))
    found = np.empty((2, gradients.shape[1]), np.int64)
    arrays: tuple[NDArray[Any], ...] = (found, gradients, rows)
    _bounds(gradients.shape[1])(*map(address, arrays), len(rows))
    return found


def _by_cell(
    kernel: Callable[..., None],
    sums: NDArray[np.int64],
    codes: NDArray[np.unsignedinteger],
    first_cell: NDArray[np.int64],
    gradients: NDArray[np.generic],
    chosen: Sequence[int],
    nodes: Sequence[NDArray[np.integer]],
    table: int,
) -> None:
    width, listed = codes.itemsize, np.array(chosen, np.int64)
    first_cell = np.ascontiguousarray(first_cell, np.int64)
    for of_node, node in zip(sums, nodes, strict=True):
        rows = _numbers(node, table)
        arrays: tuple[NDArray[Any], ...] = (of_node, codes, first_cell, gradients, rows, listed)
        steps = (codes.strides[0] // width, codes.strides[1] // width)
        kernel(*map(address, arrays), len(rows), len(listed), *steps)


def _numbers(rows: NDArray[np.integer], table: int) -> NDArray[np.int32]:
    """``rows`` as int32 in one piece, all of them below ``table``, which no table exceeds."""
    if len(rows) and not 0 <= rows.min() <= rows.max() < table:
        raise IndexError("a row that is not in the table")
    return np.ascontiguousarray(rows, np.int32)


@lru_cache(maxsize=16)
def _kernel(bits: int, columns: int) -> Callable[..., None]:
    """Adds rows of so many ``columns`` of gradients, or counts them where there is none."""
    row = f"<{columns or 1} x i64>"
    several, alone = (_rows_of(together, columns) for together in (_TOGETHER, 1))
    module = _MODULE.replace("SEVERAL", several).replace("ALONE", alone)
    module = module.replace("CODE", f"i{bits}").replace("BYTES", str(8 * (columns or 1)))
    module = module.replace("ROW", row).replace("PIECE", str(_PIECE))
    [address] = translated(module.replace("TOGETHER", str(_TOGETHER)), "add_by_cell")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 4)(address)


@lru_cache(maxsize=8)
def _bounds(columns: int) -> Callable[..., None]:
    module = _BOUNDS.replace("BYTES", str(8 * columns)).replace("ROW", f"<{columns} x i64>")
    [address] = translated(module.replace("KIND", f"v{columns}i64"), "bounds")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(address)


def _rows_of(together: int, columns: int) -> str:
    """The function that adds a piece of rows to the cells of so many features ``together``."""
    return _ROWS.format(
        together=together,
        features="\n".join(_lines(_FEATURE, together)),
        additions="\n".join(_lines(_ADDITION, together)),
        gradient=_GRADIENT if columns else _ONE,
    )


def _lines(text: str, together: int) -> Iterator[str]:
    return (text.replace("#", str(number)).strip("\n") for number in range(together))


_FEATURE = """
  %place# = add i64 %f, #
  %listed# = getelementptr i64, ptr %features, i64 %place#
  %feature# = load i64, ptr %listed#
  %cell_at# = getelementptr i64, ptr %cells, i64 %feature#
  %first# = load i64, ptr %cell_at#
  %first_bytes# = mul i64 %first#, BYTES
  %sums# = getelementptr i8, ptr %sums, i64 %first_bytes#
  %column# = mul i64 %feature#, %feature_step
  %codes# = getelementptr CODE, ptr %codes, i64 %column#
"""

_ADDITION = """
  %code_at# = getelementptr CODE, ptr %codes#, i64 %in_column
  %code# = load CODE, ptr %code_at#
  %bin# = zext CODE %code# to i64
  %sum_bytes# = mul i64 %bin#, BYTES
  %sum_at# = getelementptr i8, ptr %sums#, i64 %sum_bytes#
  %before# = load ROW, ptr %sum_at#, align 8
  %after# = add ROW %before#, %gradient
  store ROW %after#, ptr %sum_at#, align 8
"""

_GRADIENT = """
  %gradient_bytes = mul i64 %number, BYTES
  %gradient_at = getelementptr i8, ptr %gradients, i64 %gradient_bytes
  %gradient = load ROW, ptr %gradient_at, align 8
"""

_ONE = """
  %gradient = insertelement ROW undef, i64 1, i32 0
"""

_ROWS = """
define internal void @rows_{together}(ptr %sums, ptr %codes, ptr %cells, ptr %gradients, ptr %rows,
    ptr %features, i64 %f, i64 %start, i64 %stop, i64 %row_step, i64 %feature_step) {{
entry:
{features}
  br label %row
row:
  %k = phi i64 [%start, %entry], [%next_k, %row]
  %number_at = getelementptr i32, ptr %rows, i64 %k
  %short = load i32, ptr %number_at
  %number = zext i32 %short to i64
  %in_column = mul i64 %number, %row_step
{gradient}
{additions}
  %next_k = add i64 %k, 1
  %more = icmp slt i64 %next_k, %stop
  br i1 %more, label %row, label %end
end:
  ret void
}}
"""

_MODULE = """
SEVERAL
ALONE
define void @add_by_cell(ptr %sums, ptr %codes, ptr %cells, ptr %gradients, ptr %rows,
    ptr %features, i64 %n_rows, i64 %n_features, i64 %row_step, i64 %feature_step) {
entry:
  %none = icmp eq i64 %n_rows, 0
  br i1 %none, label %end, label %piece
piece:
  %start = phi i64 [0, %entry], [%stop, %piece_end]
  %later = add i64 %start, PIECE
  %stop = call i64 @llvm.smin.i64(i64 %later, i64 %n_rows)
  br label %feature
feature:
  %f = phi i64 [0, %piece], [%next_several, %several], [%next_one, %one]
  %left = sub i64 %n_features, %f
  %enough = icmp sge i64 %left, TOGETHER
  br i1 %enough, label %several, label %few
several:
  call void @rows_TOGETHER(ptr %sums, ptr %codes, ptr %cells, ptr %gradients, ptr %rows,
    ptr %features, i64 %f, i64 %start, i64 %stop, i64 %row_step, i64 %feature_step)
  %next_several = add i64 %f, TOGETHER
  br label %feature
few:
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %one, label %piece_end
one:
  call void @rows_1(ptr %sums, ptr %codes, ptr %cells, ptr %gradients, ptr %rows,
    ptr %features, i64 %f, i64 %start, i64 %stop, i64 %row_step, i64 %feature_step)
  %next_one = add i64 %f, 1
  br label %feature
piece_end:
  %more_pieces = icmp slt i64 %stop, %n_rows
  br i1 %more_pieces, label %piece, label %end
end:
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
"""

_BOUNDS = """
define void @bounds(ptr %found, ptr %gradients, ptr %rows, i64 %n_rows) {
entry:
  %none = icmp eq i64 %n_rows, 0
  br i1 %none, label %end, label %row
row:
  %k = phi i64 [0, %entry], [%next_k, %row]
  %least = phi ROW [zeroinitializer, %entry], [%less, %row]
  %most = phi ROW [zeroinitializer, %entry], [%more, %row]
  %number_at = getelementptr i32, ptr %rows, i64 %k
  %short = load i32, ptr %number_at
  %number = zext i32 %short to i64
  %gradient_bytes = mul i64 %number, BYTES
  %gradient_at = getelementptr i8, ptr %gradients, i64 %gradient_bytes
  %gradient = load ROW, ptr %gradient_at, align 8
  %below = call ROW @llvm.smin.KIND(ROW %gradient, ROW zeroinitializer)
  %above = call ROW @llvm.smax.KIND(ROW %gradient, ROW zeroinitializer)
  %less = add ROW %least, %below
  %more = add ROW %most, %above
  %next_k = add i64 %k, 1
  %more_rows = icmp slt i64 %next_k, %n_rows
  br i1 %more_rows, label %row, label %end
end:
  %all_least = phi ROW [zeroinitializer, %entry], [%less, %row]
  %all_most = phi ROW [zeroinitializer, %entry], [%more, %row]
  %most_at = getelementptr i8, ptr %found, i64 BYTES
  store ROW %all_least, ptr %found, align 8
  store ROW %all_most, ptr %most_at, align 8
  ret void
}
declare ROW @llvm.smin.KIND(ROW, ROW)
declare ROW @llvm.smax.KIND(ROW, ROW)
"""
