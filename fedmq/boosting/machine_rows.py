"""Rows of a node, parted without a branch, in the processor's own instructions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated

__all__ = ["FEWEST_ROWS", "can_part", "parted"]

FEWEST_ROWS = 2**17
"""Translating the code takes 20 ms, which 40 nodes of so many rows save."""


def can_part(rows: NDArray[np.integer]) -> bool:
    """Whether `parted` is there, and can part these rows."""
    return rows.dtype == np.int32 and rows.flags.c_contiguous and bool(features())


def parted(
    rows: NDArray[np.int32], left: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ``rows`` that go ``left``, bool (rows,), and the others; both in their order."""
    if left.shape != rows.shape or left.dtype != np.bool_:
        raise ValueError(f"{left.dtype} {left.shape} for {len(rows)} rows")
    left = np.ascontiguousarray(left)
    lefts = int(np.count_nonzero(left))
    # Each row is written to both, and stays where its number is counted: one place more.
    both = [np.empty(count + 1, np.int32) for count in (lefts, len(rows) - lefts)]
    arrays = (*both, rows, left)
    _kernel()(*(array.ctypes.data for array in arrays), len(rows))
    return both[0][:-1], both[1][:-1]


@cache
def _kernel() -> Callable[..., None]:
    [address] = translated(_MODULE, "parted")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(address)


_MODULE = """
define void @parted(ptr noalias %lefts, ptr noalias %rights, ptr noalias %rows,
    ptr noalias %left, i64 %n_rows) {
entry:
  %none = icmp eq i64 %n_rows, 0
  br i1 %none, label %end, label %row
row:
  %k = phi i64 [0, %entry], [%next_k, %row]
  %l = phi i64 [0, %entry], [%next_l, %row]
  %r = sub i64 %k, %l
  %number_at = getelementptr i32, ptr %rows, i64 %k
  %number = load i32, ptr %number_at
  %lefts_at = getelementptr i32, ptr %lefts, i64 %l
  store i32 %number, ptr %lefts_at
  %rights_at = getelementptr i32, ptr %rights, i64 %r
  store i32 %number, ptr %rights_at
  %goes_at = getelementptr i8, ptr %left, i64 %k
  %goes = load i8, ptr %goes_at
  %one = zext i8 %goes to i64
  %next_l = add i64 %l, %one
  %next_k = add i64 %k, 1
  %more = icmp slt i64 %next_k, %n_rows
  br i1 %more, label %row, label %end
end:
  ret void
}
"""
