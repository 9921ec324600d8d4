"""How does one party learn all of 16 seeds but one, which the other cannot name? By four transfers.

For 32 groups of 16 seeds, by four of the transfers of `base_transfers` each. One party grows a tree
of hashes whose leaves are the seeds (Goldreich, Goldwasser and Micali, J. ACM 33, 1986). Of each
level it sums the left children, and the right ones, and sends both sums, hidden by the two seeds of
a transfer. The other party reads the sum of the side that does not lead to its secret place. From
the top down it thus learns every node beside the path to that place (Schoppmann, Gascón, Reichert
and Raykova, CCS 2019). A proof shows that the sums are those of one tree, whatever the secret place
is (Roy, SoftSpokenOT, CRYPTO 2022, section 6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.machine_columns import is_worth, sum_streams
from fedmq.privacy.random_stream import Stream

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_WORDS",
    "GROUPS",
    "GROUP_BITS",
    "PROOF_BYTES",
    "SUMS_BYTES",
    "GrowSeeds",
    "OneWay",
    "PunctureSeeds",
    "check_proof",
    "expanded",
    "proof_of",
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


PROOF_BYTES = GROUPS * 2 * 32


def proof_of(seeds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What shows that `PunctureSeeds` finds these ``seeds``: uint8 (32, 2, 32).

    Of each group the sum of the hashes of its seeds, and the hash of them all.
    """
    return np.stack([_proof(hashes) for hashes in _hashes(seeds)])


def check_proof(
    seeds: NDArray[np.uint8], choices: NDArray[np.bool_], proof: NDArray[np.uint8]
) -> None:
    """Check ``seeds`` as `PunctureSeeds` found them by ``choices``.

    A party that sent other sums is caught unless it guesses the secret places that would find it.

    Raises:
        MessageError: they are not those of the ``proof``.
    """
    found = _hashes(seeds)
    places = np.arange(1 << GROUP_BITS)
    weights = 1 << np.arange(GROUP_BITS)[::-1]
    secret = ~choices.reshape(GROUPS, GROUP_BITS) @ weights
    for hashes, shown, place in zip(found, proof, secret, strict=True):
        hashes[0] = shown[0] ^ np.bitwise_xor.reduce(hashes[1:], axis=0)
        if not np.array_equal(_proof(hashes[places ^ place]), shown):
            raise MessageError("seeds of transfers that are not those of one tree")


def _hashes(seeds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    hashed = b"".join(
        hashlib.sha256(b"fedmq transfer proof\0" + seed.tobytes()).digest()
        for seed in seeds.reshape(-1, _BYTES)
    )
    return np.frombuffer(hashed, np.uint8).reshape(*seeds.shape[:2], 32).copy()


def _proof(hashes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    together = hashlib.sha256(hashes.tobytes()).digest()
    return np.stack([np.bitwise_xor.reduce(hashes, axis=0), np.frombuffer(together, np.uint8)])


# How do seeds become bits for any number of transfers? By x ⊕ AES(x) under a public key.
#
# It is correlation robust (Guo, Katz, Wang and Yu, IEEE S&P 2020).


BLOCK_BYTES = 16
"""Bytes of a block of AES."""

BLOCK_WORDS = 2

_BLOCKS_AT_ONCE = 128  # of each seed: 8,192 rows, which stay in a fast cache


class OneWay:
    """x ⊕ AES(x), where the public key is SHA-256 of ``purpose``."""

    def __init__(self, purpose: bytes) -> None:
        key = hashlib.sha256(purpose).digest()
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def __call__(self, blocks: NDArray[Any]) -> NDArray[np.uint64]:
        """Of contiguous blocks of 16 bytes: uint64 (words,)."""
        words = blocks.reshape(-1).view(np.uint64)
        hashed = self.permuted(words, np.empty(len(words) + BLOCK_WORDS, np.uint64))
        hashed ^= words
        return hashed

    def permuted(self, blocks: NDArray[Any], memory: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """AES(x) alone: uint64 (words,) in ``memory``, which is longer by a block."""
        words = blocks.reshape(-1).view(np.uint64)
        self._cipher.update_into(words.data.cast("B"), memory.data.cast("B"))
        return memory[: len(words)]


def expanded(
    seeds: NDArray[np.uint8], expanding: OneWay, width: int
) -> Iterator[tuple[slice, NDArray[np.uint8], NDArray[np.uint8]]]:
    """Expand each seed to ``width`` bytes, by parts: the part, sums by bit of the place, the total.

    uint8 (128, bytes) and (32, bytes). The first seed of a group enters only the total.
    """
    summed = sum_streams if is_worth(width) else _summed
    lanes = seeds.view("<u8")
    blocks_of_each = -(-width // BLOCK_BYTES)
    # Reused memory is still in a cache, and needs no new pages.
    blocks = np.empty((*seeds.shape[:2], min(_BLOCKS_AT_ONCE, blocks_of_each), 2), "<u8")
    blocks[..., 0] = lanes[..., :1] ^ np.arange(blocks.shape[2], dtype=np.uint64)
    blocks[..., 1] = lanes[..., 1:]
    memory = np.empty(blocks.size + BLOCK_WORDS, np.uint64)
    # Of x ⊕ AES(x), x is added to the sums: numbers of blocks cancel out there, for all sums are of
    # 8 or 16 places, and seeds are the same in each block.
    known, known_total = _summed(np.tile(lanes, blocks.shape[2]))
    for start in range(0, blocks_of_each, _BLOCKS_AT_ONCE):
        stop = min(start + _BLOCKS_AT_ONCE, blocks_of_each)
        if start:
            blocks[..., 0] ^= np.uint64(start ^ (start - _BLOCKS_AT_ONCE))
        if stop - start < blocks.shape[2]:
            blocks = np.ascontiguousarray(blocks[:, :, : stop - start])
        streams = expanding.permuted(blocks, memory).reshape(*seeds.shape[:2], -1)
        sums, total = summed(streams)
        sums ^= known[..., : sums.shape[-1]]
        total ^= known_total[..., : total.shape[-1]]
        part = slice(start * BLOCK_BYTES, min(stop * BLOCK_BYTES, width))
        held = part.stop - part.start
        yield (
            part,
            sums.view(np.uint8).reshape(GROUPS * GROUP_BITS, -1)[:, :held],
            total.view(np.uint8)[:, :held],
        )


def _summed(streams: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """As `sum_streams`; ``streams`` are used up."""
    sums = np.empty((GROUPS, GROUP_BITS, streams.shape[-1]), np.uint64)
    for bit in range(GROUP_BITS):
        low, high = np.split(streams, 2, axis=1)
        np.bitwise_xor.reduce(high, axis=1, out=sums[:, bit])
        low ^= high
        streams = low
    return sums, streams[:, 0]
