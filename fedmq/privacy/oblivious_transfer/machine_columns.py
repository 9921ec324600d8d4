"""Columns of bits, summed and turned into rows, in the processor's own instructions.

Each function does what `seeds` and `extension` do array by array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, reduce
from operator import xor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.machine_code import features, translated
from fedmq.machine_loops import Array, Loops, Number

__all__ = ["FEWEST_BYTES", "is_translated", "is_worth", "rows_of", "sum_streams"]

FEWEST_BYTES = 2**14
"""Of a column. Translating the code takes as long as some fifteen times so many rows save."""

_COLUMNS, _BYTE = 128, 8
_STREAMS = 16


def is_worth(width: int) -> bool:
    """Whether these functions are there, and columns of ``width`` bytes worth a translation."""
    return bool(features()) and (width >= FEWEST_BYTES or is_translated())


def is_translated() -> bool:
    """Whether they are there already."""
    return bool(_functions.cache_info().currsize)


def rows_of(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Columns (128, width) as rows of 128 bits: uint8 (8 * width, 16)."""
    width = columns.shape[1]
    if columns.shape != (_COLUMNS, width) or columns.dtype != np.uint8:
        raise ValueError(f"{columns.dtype} {columns.shape}, not uint8 ({_COLUMNS}, {width})")
    rows = np.empty((_BYTE * width, _COLUMNS // _BYTE), np.uint8)
    if width:
        turn, _ = _functions()
        squares = np.empty((_COLUMNS // _BYTE, width), np.uint64)
        arrays = (rows, squares, np.ascontiguousarray(columns))
        turn(*(array.ctypes.data for array in arrays), width)
    return rows


def sum_streams(streams: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Of ``streams`` (groups, 16, words) the sums by bit of the place, and the total of each group.

    uint64 (groups, 4, words), the highest bit first, and (groups, words).
    """
    groups, _, words = streams.shape
    if streams.shape[1] != _STREAMS or streams.dtype != np.uint64:
        raise ValueError(f"{streams.dtype} {streams.shape}, not {_STREAMS} streams a group")
    sums, totals = np.empty((groups, 4, words), np.uint64), np.empty((groups, words), np.uint64)
    if streams.size:
        _, add = _functions()
        arrays = (sums, totals, np.ascontiguousarray(streams))
        add(*(array.ctypes.data for array in arrays), groups, words)
    return sums, totals


# The code, which is translated once in a process


@cache
def _functions() -> tuple[Callable[..., None], Callable[..., None]]:
    loops = Loops()
    loops.function("turned", ("u64", "u64", "u8"), 1, _write_turned)
    loops.function("summed", ("u64", "u64", "u64"), 2, _write_summed)
    turned, summed = translated(str(loops), "turned", "summed", as_vectors=True)
    pointers: list[Any] = [ctypes.c_void_p] * 3
    return (
        ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(turned),
        ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64)(summed),
    )


def _write_turned(loops: Loops, rows: Array, squares: Array, columns: Array, width: Number) -> None:
    """Eight by eight bits at a time (Warren, Hacker's Delight, 7-3), then bytes into words."""
    groups = _COLUMNS // _BYTE
    with loops.each(groups) as group, loops.each(width) as place:
        square = _turned_square(columns, group * width * _BYTE + place, width)
        squares.write(group * width + place, square)
    with loops.each(2 * _BYTE) as word, loops.each(width) as place:
        # Of row number word // 2, whose byte is in each square, half the groups.
        down = loops.number(_BYTE * (_BYTE - 1)) - (word >> 1) * _BYTE
        first = (word & 1) * width * _BYTE + place
        found = loops.number(0)
        for number in range(_BYTE):
            byte = squares.read(first + width * number).unsigned_shift(down) & 0xFF
            found = found | (byte << (_BYTE * number))
        rows.write(place * (2 * _BYTE) + word, found)


def _turned_square(columns: Array, place: Number, width: Number) -> Number:
    """Bits of eight columns at ``place``: a row in each byte, the first in the highest."""
    square = columns.read(place) << (_BYTE * (_BYTE - 1))
    for column in range(1, _BYTE):
        bits = columns.read(place + width * column) << (_BYTE * (_BYTE - 1 - column))
        square = square | bits
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        swapped = (square.unsigned_shift(shift) ^ square) & mask
        square = square ^ swapped ^ (swapped << shift)
    return square


def _write_summed(
    loops: Loops, sums: Array, totals: Array, streams: Array, groups: Number, words: Number
) -> None:
    with loops.each(groups) as group, loops.each(words) as word:
        of_group = [
            streams.read((group * _STREAMS + place) * words + word) for place in range(_STREAMS)
        ]
        bit = 0
        while len(of_group) > 1:
            half = len(of_group) // 2
            low, high = of_group[:half], of_group[half:]
            sums.write((group * 4 + bit) * words + word, reduce(xor, high))
            of_group = [one ^ other for one, other in zip(low, high, strict=True)]
            bit += 1
        totals.write(group * words + word, of_group[0])
