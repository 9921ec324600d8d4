"""Lengths in steps, so that they tell an observer less.

A body is filled up to the next multiple of a step: of 256 bytes, or of a 16th of the power of two
below its length, but 8 KiB at most, so that the largest payload still fits into a message. Above
4 KiB that is at most 6.25 % more, for a full message at most 0.8 %.
"""

from __future__ import annotations

import struct

__all__ = ["pad", "padded_length", "unpad"]

_LENGTH = struct.Struct(">I")
_SMALLEST, _LARGEST = 256, 8 * 1024


def padded_length(length: int) -> int:
    """The length in bytes under which a body of ``length`` bytes travels."""
    total = length + _LENGTH.size
    step = min(max(_SMALLEST, 1 << max(total.bit_length() - 5, 0)), _LARGEST)
    return -(-total // step) * step


def pad(body: bytes) -> bytes:
    """``body`` behind its length, filled up with zeros."""
    zeros = padded_length(len(body)) - _LENGTH.size - len(body)
    return b"".join((_LENGTH.pack(len(body)), body, bytes(zeros)))


def unpad(padded: bytes) -> memoryview:
    """Undo ``pad``, without a copy; ValueError where it never was padded."""
    (length,) = _LENGTH.unpack_from(padded) if len(padded) >= _LENGTH.size else (-1,)
    if not 0 <= length <= len(padded) - _LENGTH.size:
        raise ValueError("no padded body")
    return memoryview(padded)[_LENGTH.size : _LENGTH.size + length]
