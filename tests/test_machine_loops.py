"""A loop written for many steps at once computes what its single step says."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from fedmq.machine_code import features, translated
from fedmq.machine_loops import Array, Loops, Number

pytestmark = pytest.mark.skipif(not features(), reason="llvmlite is not installed")


def test_numbers_are_computed_as_numpy_does() -> None:
    def write(loops: Loops, out: Array, numbers: Array, count: Number) -> None:
        most = loops.kept(0)
        with loops.each(count) as k:
            number = numbers.read(k)
            most.set(most.get().larger(number & 0xFF))
            out.write(k, (number * 3 - 7 >> 1) & 0xFF | (number.is_below(0) << 9))
            half = (number.floating() * 0.5).rounded().whole()
            out.write(k + count, half.less_if_above(10, 100).more_if_negative(1000))
        out.write(count << 1, most.get())

    found = _ran(write, numbers := np.random.default_rng(1).integers(-50, 50, 1003, np.int32))
    wide = numbers.astype(np.int64)
    np.testing.assert_array_equal(found[:1003], (wide * 3 - 7 >> 1) & 0xFF | (wide < 0) << 9)
    half = np.rint(wide / 2).astype(np.int64)
    half = np.where(half > 10, half - 100, half)
    np.testing.assert_array_equal(found[1003:-1], np.where(half < 0, half + 1000, half))
    assert found[-1] == (wide & 0xFF).max()


def test_what_a_flag_rules_out_does_not_count_whatever_it_is() -> None:
    def write(loops: Loops, out: Array, numbers: Array, count: Number) -> None:
        with loops.each(count) as k:
            out.write(k, numbers.read(k).zero_if_none(numbers.read(k) & 1))
            out.write(k + count, loops.number(1) << (numbers.read(k) & 7))
        out.write(count << 1, loops.number(5))

    found = _ran(write, numbers := np.arange(40, dtype=np.int32))
    np.testing.assert_array_equal(found[:40], np.where(numbers % 2, numbers, 0))
    np.testing.assert_array_equal(found[40:80], 1 << (numbers % 8))


def _ran(write: object, numbers: np.ndarray) -> np.ndarray:
    loops = Loops()
    loops.function("written", ("i64", "i32"), 1, write)  # type: ignore[arg-type]
    [address] = translated(str(loops), "written", as_vectors=True)
    out = np.zeros(2 * len(numbers) + 1, np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    call(out.ctypes.data, numbers.ctypes.data, len(numbers))
    return out
