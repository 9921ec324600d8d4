"""Bins of many values by a search without branches, in the processor's own instructions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated

__all__ = ["FEWEST_VALUES", "can_bin", "write_codes"]

FEWEST_VALUES = 2**20
"""Translating the code takes 20 ms, which the search of so many values saves."""


def can_bin(values: NDArray[np.float32]) -> bool:
    """Whether `write_codes` is there, and can read these values."""
    return values.dtype == np.float32 and bool(features())


def write_codes(
    codes: NDArray[np.unsignedinteger],
    values: NDArray[np.float32],
    thresholds: NDArray[np.float32],
) -> None:
    """The bin of each of ``values`` (rows,) into ``codes`` (rows,), in one piece.

    It is the number of ascending ``thresholds`` (cuts,) below the value, and one more than the last
    bin where it is missing.
    """
    if codes.shape != values.shape or not codes.flags.c_contiguous:
        raise ValueError(f"{codes.shape} codes of {values.shape} values")
    thresholds = np.ascontiguousarray(thresholds, np.float32)
    arrays = (codes, values, thresholds)
    _kernel(8 * codes.itemsize)(
        *(array.ctypes.data for array in arrays), len(values), values.strides[0], len(thresholds)
    )


@lru_cache(maxsize=2)
def _kernel(bits: int) -> Callable[..., None]:
    [address] = translated(_MODULE.replace("CODE", f"i{bits}"), "write_codes")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3)(address)


_MODULE = """
define void @write_codes(ptr noalias %codes, ptr noalias %values, ptr noalias %thresholds,
    i64 %n, i64 %step, i64 %cuts) {
entry:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %value
value:
  %i = phi i64 [0, %entry], [%next_i, %coded]
  %place = mul i64 %i, %step
  %value_at = getelementptr i8, ptr %values, i64 %place
  %x = load float, ptr %value_at, align 1
  br label %search
search:
  %base = phi i64 [0, %value], [%next_base, %halve]
  %count = phi i64 [%cuts, %value], [%rest, %halve]
  %found = icmp eq i64 %count, 0
  br i1 %found, label %coded, label %halve
halve:
  %more = add i64 %count, 1
  %half = lshr i64 %more, 1
  %last = add i64 %base, %half
  %before = sub i64 %last, 1
  %cut_at = getelementptr float, ptr %thresholds, i64 %before
  %cut = load float, ptr %cut_at
  %above = fcmp olt float %cut, %x
  %next_base = select i1 %above, i64 %last, i64 %base, !unpredictable !0
  %low = sub i64 %half, 1
  %high = sub i64 %count, %half
  %rest = select i1 %above, i64 %high, i64 %low, !unpredictable !0
  br label %search
coded:
  %missing = fcmp uno float %x, %x
  %no_value = add i64 %cuts, 1
  %bin = select i1 %missing, i64 %no_value, i64 %base
  %code = trunc i64 %bin to CODE
  %code_at = getelementptr CODE, ptr %codes, i64 %i
  store CODE %code, ptr %code_at
  %next_i = add i64 %i, 1
  %again = icmp slt i64 %next_i, %n
  br i1 %again, label %value, label %end
end:
  ret void
}
!0 = !{}
"""
