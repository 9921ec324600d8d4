"""How does the label holder learn directions of rows without naming them? One transfer for each.

The extension of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003) makes any number of transfers of
128, against parties that follow the protocol. Here the label holder chooses, row by row, whether
it gets the direction: where the row stands in the node.

It holds two seeds for each of 128 columns, the feature holder the one of its choice s_j. Both
expand them to a bit a row: t_j and t_j ⊕ u_j ⊕ chosen. Row by row the feature holder then knows
q_i = t_i, or t_i ⊕ s where the row was chosen, and hides its direction by a hash of q_i ⊕ s, which
for chosen rows is t_i. The hash is x ⊕ AES(x) under a public key of the session, which is
correlation robust (Guo, Katz, Wang and Yu, IEEE S&P 2020).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.base_transfers import TRANSFERS
from fedmq.privacy.lattice.sampling import Stream
from fedmq.privacy.plan import PIECE_BYTES, Values

__all__ = ["ChooseRows", "HideDirections", "read_choice"]

_BYTES_AT_ONCE = 4096  # of a column: eight times as many rows
_PIECE_WIDTH = PIECE_BYTES // TRANSFERS


@dataclass(frozen=True, eq=False)
class ChooseRows:
    """The choice of ``rows`` in pieces, and the pads of all rows: bool (count,).

    ``seeds`` uint8 (128, 2, 32). ``purpose`` must never choose any other rows: the difference of
    two choices under one would be bare.
    """

    label: ClassVar[str] = "ChooseRows"
    count: int
    purpose: str
    hash_key: bytes
    rows: NDArray[np.integer] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)

    def run(self) -> tuple[list[Values], NDArray[np.bool_]]:
        chosen = np.zeros(self.count, np.bool_)
        chosen[self.rows] = True
        first = _expanded(self.seeds[:, 0], self.purpose, self.count)
        columns = _expanded(self.seeds[:, 1], self.purpose, self.count)
        columns ^= first
        columns ^= np.packbits(chosen)
        pieces: list[Values] = [
            {"choice": np.ascontiguousarray(columns[:, start : start + _PIECE_WIDTH])}
            for start in range(0, columns.shape[1], _PIECE_WIDTH)
        ]
        return pieces, _pads(first, self.count, self.hash_key)


@dataclass(frozen=True, eq=False)
class HideDirections:
    """``left`` (bool, all rows), readable for chosen rows only: bool of the same length.

    ``seeds`` uint8 (128, 32): those of ``choices``, bool (128,). Raises `MessageError` for a
    malformed choice in ``pieces``.
    """

    label: ClassVar[str] = "HideDirections"
    pieces: Sequence[Values]
    purpose: str
    hash_key: bytes
    left: NDArray[np.bool_] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)
    choices: NDArray[np.bool_] = field(repr=False)

    def run(self) -> NDArray[np.bool_]:
        count = len(self.left)
        columns = _expanded(self.seeds, self.purpose, count)
        chosen = read_choice(self.pieces, count)
        columns[self.choices] ^= chosen[self.choices]
        pads = _pads(columns, count, self.hash_key, np.packbits(self.choices))
        hidden: NDArray[np.bool_] = pads ^ self.left
        return hidden


def read_choice(pieces: Sequence[Values], count: int) -> NDArray[np.uint8]:
    """The columns of a choice among ``count`` rows, a bit a row: uint8 (128, bytes).

    Raises:
        MessageError: the pieces are of another kind, or not of so many rows.
    """
    width = -(-count // 8)
    parts = [np.empty((TRANSFERS, 0), np.uint8)]
    for piece in pieces:
        part = piece.get("choice")
        if (
            set(piece) == {"choice"}
            and isinstance(part, np.ndarray)
            and part.dtype == np.uint8
            and part.ndim == 2
            and len(part) == TRANSFERS
        ):
            parts.append(part)
    if len(parts) != len(pieces) + 1 or sum(part.shape[1] for part in parts) != width:
        raise MessageError(f"a choice of rows that is not uint8 ({TRANSFERS}, {width})")
    return np.concatenate(parts, axis=1)


def _expanded(seeds: NDArray[np.uint8], purpose: str, count: int) -> NDArray[np.uint8]:
    """A bit a row from each seed: uint8 (seeds, bytes)."""
    width = -(-count // 8)
    columns = np.empty((len(seeds), width), np.uint8)
    for column, seed in zip(columns, seeds, strict=True):
        stream = Stream(seed.tobytes(), f"fedmq lattice transfer rows {purpose}")
        column[:] = np.frombuffer(stream.read(width), np.uint8)
    return columns


def _pads(
    columns: NDArray[np.uint8],
    count: int,
    hash_key: bytes,
    offset: NDArray[np.uint8] | None = None,
) -> NDArray[np.bool_]:
    """A bit of the hash of each row of 128 bits, plus ``offset`` (16,): bool (count,)."""
    key = hashlib.sha256(b"fedmq lattice transfer hash\0" + hash_key).digest()
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # a public permutation
    parts = [np.empty(0, np.uint8)]
    for start in range(0, columns.shape[1], _BYTES_AT_ONCE):
        rows = _transposed(columns[:, start : start + _BYTES_AT_ONCE])
        if offset is not None:
            rows ^= offset
        permuted = np.frombuffer(cipher.update(rows.tobytes()), np.uint8).reshape(rows.shape)
        parts.append(permuted[:, 0] ^ rows[:, 0])
    pads: NDArray[np.bool_] = (np.concatenate(parts)[:count] & 1).astype(np.bool_)
    return pads


def _transposed(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits (128 columns, 8 rows a byte) as rows of 128 bits: uint8 (rows, 16).

    In blocks of eight by eight bits, each a number of 64 bits (Warren, Hacker's Delight, 7-3).
    """
    groups, width = len(columns) // 8, columns.shape[1]
    blocks = np.ascontiguousarray(columns.reshape(groups, 8, width).transpose(2, 0, 1))
    bits = blocks.view(">u8").astype(np.uint64)
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        swapped = (bits ^ (bits >> np.uint64(shift))) & np.uint64(mask)
        bits ^= swapped ^ (swapped << np.uint64(shift))
    by_row = bits.astype(">u8").view(np.uint8).reshape(width, groups, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(by_row).reshape(8 * width, groups)
