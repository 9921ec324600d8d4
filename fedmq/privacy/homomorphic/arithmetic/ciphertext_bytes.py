"""Ciphertext vectors as bytes: one row of fixed width each, little-endian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz, pack, unpack
from numpy.typing import NDArray

from fedmq.errors import MessageError

__all__ = ["from_wire", "numbers", "to_wire", "width"]


def width(modulus: mpz) -> int:
    """Bytes that a ciphertext takes on the wire."""
    return (int(modulus.bit_length()) + 7) // 8


def to_wire(ciphertexts: Sequence[mpz], modulus: mpz) -> NDArray[np.uint8]:
    """Ciphertexts in [0, modulus) as uint8 of shape (count, width)."""
    row = width(modulus)
    shape = (len(ciphertexts), row)
    # One integer of all of them: a copy of limbs, four times faster than row by row.
    joined = pack(list(ciphertexts), 8 * row).to_bytes(shape[0] * row, "little")
    return np.frombuffer(joined, dtype=np.uint8).reshape(shape)


def numbers(data: bytes, size: int) -> list[mpz]:
    """The little-endian numbers, of ``size`` bytes each, that ``data`` is made of."""
    count = len(data) // size
    # Zeros at the end are not unpacked, but of nothing one zero is.
    found: list[mpz] = unpack(mpz.from_bytes(data, "little"), 8 * size)[:count]
    return found + [mpz(0)] * (count - len(found))


def from_wire(rows: NDArray[np.uint8], modulus: mpz) -> list[mpz]:
    """Ciphertexts of a uint8 array of shape (count, width).

    Raises `MessageError` if the shape does not fit the key, or a row is not in (0, modulus).
    """
    row = width(modulus)
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row:
        raise MessageError(
            f"ciphertexts: expected uint8 rows of {row} bytes, got {rows.dtype} of shape "
            f"{rows.shape}; both parties must use the same key"
        )
    if not len(rows):
        return []
    ciphertexts = numbers(rows.tobytes(), row)
    if min(ciphertexts) <= 0 or max(ciphertexts) >= modulus:
        bad = next(i for i, c in enumerate(ciphertexts) if not 0 < c < modulus)
        raise MessageError(
            f"ciphertexts: row {bad} is no residue of the key; both parties must use the same key"
        )
    return ciphertexts
