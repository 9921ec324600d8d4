"""How does the active party learn directions of rows without naming them? One transfer for each.

First, one party learns all seeds of a group but one, which the other cannot name: for 32 groups of
16 seeds, by four of the transfers of `base_transfers` each. The active party grows a tree of hashes
whose leaves are the seeds (Goldreich, Goldwasser and Micali, J. ACM 33, 1986). Of each level it
sums the left children, and the right ones, and sends both sums, hidden by the two seeds of a
transfer. The passive party reads the sum of the side that does not lead to its secret place. From
the top down it thus learns every node beside the path to that place (Schoppmann, Gascón, Reichert
and Raykova, CCS 2019).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import SizeLimit
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.extension import transposed
from fedmq.privacy.plan import PIECE_BYTES, Values
from fedmq.privacy.random_stream import Stream

__all__ = [
    "GROUPS",
    "GROUP_BITS",
    "SUMS_BYTES",
    "ChooseRows",
    "GrowSeeds",
    "HideDirections",
    "PunctureSeeds",
    "choice_limit",
    "read_choice",
]

GROUP_BITS = 4
"""Bits of a place within a group, one transfer each."""

GROUPS = TRANSFERS // GROUP_BITS

_BYTES = 16  # of a seed

SUMS_BYTES = TRANSFERS * 2 * _BYTES
"""Bytes of the sent sums."""


@dataclass(frozen=True, eq=False)
class GrowSeeds:
    """All seeds, uint8 (32, 16, 16), and the sums to send: uint8 (128, 2, 16).

    ``pairs`` uint8 (128, 2, 32): both seeds of each transfer.
    """

    label: ClassVar[str] = "GrowSeeds"
    pairs: NDArray[np.uint8] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        roots = Stream(self.seed, "fedmq lattice transfer roots").read(GROUPS * _BYTES)
        nodes = np.frombuffer(roots, np.uint8).reshape(GROUPS, 1, _BYTES)
        sums = self.pairs[:, :, :_BYTES].reshape(GROUPS, GROUP_BITS, 2, _BYTES).copy()
        for level in range(GROUP_BITS):
            below = _children(nodes)
            sums[:, level] ^= np.bitwise_xor.reduce(below, axis=1)
            nodes = below.reshape(GROUPS, -1, _BYTES)
        return nodes, sums.reshape(TRANSFERS, 2, _BYTES)


@dataclass(frozen=True, eq=False)
class PunctureSeeds:
    """All seeds but one of each group: uint8 (32, 16, 16).

    The seed of the secret place comes first, and is 0; seed i is that of the place ``i ^ secret``.
    The bits of the secret places, the highest first, are the inverse of ``choices``, bool (128,).
    ``seeds`` uint8 (128, 32): the chosen ones. Raises `MessageError` for malformed ``sums``.
    """

    label: ClassVar[str] = "PunctureSeeds"
    sums: object
    seeds: NDArray[np.uint8] = field(repr=False)
    choices: NDArray[np.bool_] = field(repr=False)

    def run(self) -> NDArray[np.uint8]:
        sums, shape = self.sums, (TRANSFERS, 2, _BYTES)
        if not isinstance(sums, np.ndarray) or sums.dtype != np.uint8 or sums.shape != shape:
            raise MessageError(f"sums of seeds that are not uint8 {shape}")
        sums = sums.reshape(GROUPS, GROUP_BITS, 2, _BYTES)
        groups = np.arange(GROUPS)
        sides = self.choices.reshape(GROUPS, GROUP_BITS).astype(np.intp)
        keys = self.seeds[:, :_BYTES].reshape(GROUPS, GROUP_BITS, _BYTES)
        nodes = np.zeros((GROUPS, 1, _BYTES), np.uint8)
        path = np.zeros(GROUPS, np.intp)
        for level in range(GROUP_BITS):
            below = _children(nodes)
            below[groups, path] = 0
            side = sides[:, level]
            learned = sums[groups, level, side] ^ keys[:, level]
            beside = np.bitwise_xor.reduce(below, axis=1)[groups, side]
            below[groups, path, side] = learned ^ beside
            nodes = below.reshape(GROUPS, -1, _BYTES)
            path = 2 * path + 1 - side
        places = np.arange(nodes.shape[1])[np.newaxis] ^ path[:, np.newaxis]
        moved: NDArray[np.uint8] = nodes[groups[:, np.newaxis], places]
        return moved


def _children(nodes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Both children of each node (groups, nodes, 16): uint8 (groups, nodes, 2, 16)."""
    hashed = b"".join(
        hashlib.sha256(b"fedmq lattice transfer node\0" + node.tobytes()).digest()
        for node in nodes.reshape(-1, _BYTES)
    )
    return np.frombuffer(hashed, np.uint8).reshape(*nodes.shape[:2], 2, _BYTES).copy()


# How does the active party learn directions of rows without naming them? One transfer for each.
#
# An extension makes any number of transfers of 128, against parties that follow the protocol: that
# of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003), in the form of Roy (SoftSpokenOT, CRYPTO
# 2022), which sends a quarter of the bits. Here the active party chooses, row by row, whether it
# gets the direction: where the row stands in the node.
#
# It holds 16 seeds in each of 32 groups; the passive party all but one of them, that of its secret
# place s. All are expanded to a bit a row. The active party sends u ⊕ chosen, where u is the sum of
# a group's bits, and keeps t_i, the sum over the places whose bit i is set. Row by row the passive
# party then knows q = t, or t ⊕ s where the row was chosen, and hides its direction by a hash of q
# ⊕ s, which for chosen rows is t. Expansion and hash are x ⊕ AES(x) under a public key of the node,
# which is correlation robust (Guo, Katz, Wang and Yu, IEEE S&P 2020).


_BLOCK_BYTES = 16  # of AES
_BLOCK_WORDS = 2
_BLOCKS_AT_ONCE = 128  # of each seed: 8,192 rows, which stay in a fast cache
_PIECE_WIDTH = PIECE_BYTES // GROUPS


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
        hashing = _Permutation(self.public_seed, "hash", self.purpose)
        pads = [np.empty(0, np.uint8)]
        for part, sums, total in _expanded(self.seeds, self.public_seed, self.purpose, len(packed)):
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
        hashing = _Permutation(self.public_seed, "hash", self.purpose)
        offsets = np.where(self.secret, np.uint8(255), np.uint8(0)).reshape(GROUPS, GROUP_BITS, 1)
        pads = [np.empty(0, np.uint8)]
        for part, sums, _ in _expanded(self.seeds, self.public_seed, self.purpose, chosen.shape[1]):
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


class _Permutation:
    """x ⊕ AES(x) under a public key for one purpose."""

    def __init__(self, public_seed: bytes, use: str, purpose: str) -> None:
        label = f"fedmq lattice transfer {use} {purpose}".encode()
        key = hashlib.sha256(label + b"\0" + public_seed).digest()
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def __call__(
        self, blocks: NDArray[Any], memory: NDArray[np.uint64] | None = None
    ) -> NDArray[np.uint64]:
        """Permute contiguous blocks of 16 bytes: uint64 (words,), in ``memory`` if given.

        ``memory`` must be longer by a block.
        """
        words = blocks.reshape(-1).view(np.uint64)
        memory = np.empty(len(words) + _BLOCK_WORDS, np.uint64) if memory is None else memory
        self._cipher.update_into(words.data.cast("B"), memory.data.cast("B"))
        permuted = memory[: len(words)]
        permuted ^= words
        return permuted


def _expanded(
    seeds: NDArray[np.uint8], public_seed: bytes, purpose: str, width: int
) -> Iterator[tuple[slice, NDArray[np.uint8], NDArray[np.uint8]]]:
    """Expand each seed to ``width`` bytes, by parts: the part, sums by bit of the place, the total.

    uint8 (128, bytes) and (32, bytes). The first seed of a group enters only the total.
    """
    expanding = _Permutation(public_seed, "rows", purpose)
    lanes = seeds.view("<u8")
    blocks_of_each = -(-width // _BLOCK_BYTES)
    # Reused memory is still in a cache, and needs no new pages.
    blocks = np.empty((*seeds.shape[:2], min(_BLOCKS_AT_ONCE, blocks_of_each), 2), "<u8")
    memory = np.empty(blocks.size + _BLOCK_WORDS, np.uint64)
    for start in range(0, blocks_of_each, _BLOCKS_AT_ONCE):
        stop = min(start + _BLOCKS_AT_ONCE, blocks_of_each)
        if stop - start < blocks.shape[2]:
            blocks = np.empty((*seeds.shape[:2], stop - start, 2), "<u8")
        blocks[..., 0] = lanes[..., :1] ^ np.arange(start, stop, dtype=np.uint64)
        blocks[..., 1] = lanes[..., 1:]
        streams = expanding(blocks, memory).reshape(*seeds.shape[:2], -1)
        sums = np.empty((GROUPS, GROUP_BITS, streams.shape[-1]), np.uint64)
        for bit in range(GROUP_BITS):
            low, high = np.split(streams, 2, axis=1)
            np.bitwise_xor.reduce(high, axis=1, out=sums[:, bit])
            low ^= high
            streams = low
        part = slice(start * _BLOCK_BYTES, min(stop * _BLOCK_BYTES, width))
        held = part.stop - part.start
        yield (
            part,
            sums.view(np.uint8).reshape(GROUPS * GROUP_BITS, -1)[:, :held],
            streams[:, 0].view(np.uint8)[:, :held],
        )


def _pads(rows: NDArray[np.uint8], hashing: _Permutation) -> NDArray[np.uint8]:
    """A byte of the hash of each row of 128 bits."""
    return hashing(rows).view(np.uint8)[::_BLOCK_BYTES]


def _first(pads: Sequence[NDArray[np.uint8]], count: int) -> NDArray[np.bool_]:
    """A bit of each of the first ``count`` pads."""
    bits: NDArray[np.bool_] = (np.concatenate(pads)[:count] & 1).astype(np.bool_)
    return bits
