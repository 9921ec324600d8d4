"""How do arrays travel from one half to the other? One after the other, cut into pieces.

Both halves know which arrays come next, and of which shape: nothing but their bytes travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.extension import Extended
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values

__all__ = [
    "Unpacked",
    "extended_bytes",
    "extension_arrays",
    "packed_bits",
    "pieces_of",
    "take_bits",
    "take_extension",
]


def pieces_of(*arrays: NDArray[Any]) -> list[Values]:
    """A parcel of ``arrays``: at least one piece, of `LARGEST_PIECE_BYTES` at most."""
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    joined = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
    return [
        {"bytes": joined[start : start + LARGEST_PIECE_BYTES]}
        for start in range(0, max(1, len(joined)), LARGEST_PIECE_BYTES)
    ]


class Unpacked:
    """The arrays of a parcel, one after the other.

    Raises:
        MessageError: ``parcel`` has other pieces than bytes.
    """

    def __init__(self, parcel: Sequence[Values] | NDArray[np.uint64]) -> None:
        self._taken = 0
        if isinstance(parcel, np.ndarray):
            self._data = parcel.view(np.uint8)
            return
        parts = [np.empty(0, np.uint8)]
        for piece in parcel:
            part = piece.get("bytes")
            if len(piece) != 1 or not isinstance(part, np.ndarray) or part.dtype != np.uint8:
                raise MessageError("a parcel of other pieces than bytes")
            parts.append(part.reshape(-1))
        self._data = np.concatenate(parts)

    def take(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """The next array. Raises `MessageError` if it is missing."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        part = self._data[self._taken : self._taken + size]
        if len(part) < size:
            raise MessageError(f"a parcel of {len(self._data):,} bytes, which is too short")
        self._taken += size
        return np.frombuffer(part, dtype).reshape(shape)

    def end(self) -> None:
        """Raise `MessageError` unless all bytes are taken."""
        if self._taken < len(self._data):
            raise MessageError(f"a parcel of {len(self._data):,} bytes, which is too long")


def packed_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bits of any shape for `take_bits`."""
    return np.packbits(bits.reshape(-1))


def take_bits(parcel: Unpacked, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The next bits of a parcel, of this shape."""
    count = int(np.prod(shape))
    packed = parcel.take(np.uint8, (-(-count // 8),))
    return np.unpackbits(packed, count=count).reshape(shape).astype(np.bool_)


def extension_arrays(sent: Extended) -> Iterator[NDArray[np.uint8]]:
    """The arrays that the receiver of transfers sends."""
    yield from (sent.sums, sent.proof, sent.columns, sent.choice_hash, sent.column_hashes)


def take_extension(parcel: Unpacked, count: int) -> Extended:
    """The next extension of a parcel, of ``count`` transfers."""
    return Extended(*(parcel.take(np.uint8, shape) for shape in Extended.shapes(count).values()))


def extended_bytes(count: int) -> int:
    """Bytes of an extension of ``count`` transfers."""
    return sum(int(np.prod(shape)) for shape in Extended.shapes(count).values())
