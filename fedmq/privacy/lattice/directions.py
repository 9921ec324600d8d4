"""How does the active party learn directions of rows without naming them? One transfer for each.

An extension makes any number of transfers of 128, against parties that follow the protocol: that
of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003), in the form of Roy (SoftSpokenOT, CRYPTO
2022), which sends a quarter of the bits. Here the active party chooses, row by row, whether it
gets the direction: where the row stands in the node.

It holds 16 seeds in each of 32 groups; the passive party all but one of them, that of its secret
place s. All are expanded to a bit a row. The active party sends u ⊕ chosen, where u is the sum of
a group's bits, and keeps t_i, the sum over the places whose bit i is set. Row by row the passive
party then knows q = t, or t ⊕ s where the row was chosen, and hides its direction by a hash of q
⊕ s, which for chosen rows is t. Expansion and hash are x ⊕ AES(x) under a public key of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import SizeLimit
from fedmq.privacy.oblivious_transfer.extension import transposed
from fedmq.privacy.oblivious_transfer.seeds import (
    BLOCK_BYTES,
    GROUP_BITS,
    GROUPS,
    OneWay,
    expanded,
)
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values

__all__ = [
    "ChooseRows",
    "HideDirections",
    "choice_limit",
    "read_choice",
]


_PIECE_WIDTH = LARGEST_PIECE_BYTES // GROUPS


@dataclass(frozen=True, eq=False)
class ChooseRows:
    """The choice of ``rows`` in pieces, and the pads of all rows: bool (count,).

    ``seeds`` uint8 (32, 16, 16). ``purpose`` must be unique to these rows: a second choice under it
    would disclose their difference.
    """

    label: ClassVar[str] = "ChooseRows"
    count: int
    purpose: str
    public_seed: bytes
    rows: NDArray[np.integer] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)

    def run(self) -> tuple[list[Values], NDArray[np.bool_]]:
        chosen = np.zeros(self.count, np.bool_)
        chosen[self.rows] = True
        packed = np.packbits(chosen)
        columns = np.empty((GROUPS, len(packed)), np.uint8)
        expanding = _one_way(self.public_seed, "rows", self.purpose)
        hashing = _one_way(self.public_seed, "hash", self.purpose)
        pads = [np.empty(0, np.uint8)]
        for part, sums, total in expanded(self.seeds, expanding, len(packed)):
            columns[:, part] = total ^ packed[part]
            pads.append(_pads(transposed(sums), hashing))
        pieces: list[Values] = [
            {"choice": np.ascontiguousarray(columns[:, start : start + _PIECE_WIDTH])}
            for start in range(0, columns.shape[1], _PIECE_WIDTH)
        ]
        return pieces, _first(pads, self.count)


@dataclass(frozen=True, eq=False)
class HideDirections:
    """``left`` (bool, all rows), readable for chosen rows only: bool of the same length.

    ``seeds`` uint8 (32, 16, 16) as `PunctureSeeds` has them; ``secret`` bool (128,): the bits of
    the secret places. Raises `MessageError` for a malformed choice in ``pieces``.
    """

    label: ClassVar[str] = "HideDirections"
    pieces: Sequence[Values]
    purpose: str
    public_seed: bytes
    left: NDArray[np.bool_] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)
    secret: NDArray[np.bool_] = field(repr=False)

    def run(self) -> NDArray[np.bool_]:
        chosen = read_choice(self.pieces, len(self.left))
        expanding = _one_way(self.public_seed, "rows", self.purpose)
        hashing = _one_way(self.public_seed, "hash", self.purpose)
        offsets = np.where(self.secret, np.uint8(255), np.uint8(0)).reshape(GROUPS, GROUP_BITS, 1)
        pads = [np.empty(0, np.uint8)]
        for part, sums, _ in expanded(self.seeds, expanding, chosen.shape[1]):
            # q ⊕ s is the sum itself where a row was chosen, and its sum with s elsewhere.
            elsewhere = ~chosen[:, np.newaxis, part] & offsets
            pads.append(_pads(transposed(sums ^ elsewhere.reshape(len(sums), -1)), hashing))
        hidden: NDArray[np.bool_] = _first(pads, len(self.left)) ^ self.left
        return hidden


def choice_limit(count: int) -> SizeLimit:
    """The size of the pieces of a choice among ``count`` rows."""
    return SizeLimit.of(-(-count // 8), GROUPS, _PIECE_WIDTH)


def read_choice(pieces: Sequence[Values], count: int) -> NDArray[np.uint8]:
    """The columns of a choice among ``count`` rows, a bit a row: uint8 (32, bytes).

    Raises:
        MessageError: the pieces are of another kind, or not of ``count`` rows.
    """
    width = -(-count // 8)
    parts = [np.empty((GROUPS, 0), np.uint8)]
    for piece in pieces:
        part = piece.get("choice")
        if (
            set(piece) == {"choice"}
            and isinstance(part, np.ndarray)
            and part.dtype == np.uint8
            and part.ndim == 2
            and len(part) == GROUPS
        ):
            parts.append(part)
    if len(parts) != len(pieces) + 1 or sum(part.shape[1] for part in parts) != width:
        raise MessageError(f"a choice of rows that is not uint8 ({GROUPS}, {width})")
    return np.concatenate(parts, axis=1)


def _one_way(public_seed: bytes, use: str, purpose: str) -> OneWay:
    label = f"fedmq lattice transfer {use} {purpose}".encode()
    return OneWay(label + b"\0" + public_seed)


def _pads(rows: NDArray[np.uint8], hashing: OneWay) -> NDArray[np.uint8]:
    """A byte of the hash of each row of 128 bits."""
    return hashing(rows).view(np.uint8)[::BLOCK_BYTES]


def _first(pads: Sequence[NDArray[np.uint8]], count: int) -> NDArray[np.bool_]:
    """A bit of each of the first ``count`` pads."""
    bits: NDArray[np.bool_] = (np.concatenate(pads)[:count] & 1).astype(np.bool_)
    return bits
