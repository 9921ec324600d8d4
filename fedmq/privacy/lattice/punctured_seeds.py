"""How does one party learn all seeds of a group but one, which the other cannot name?

For 32 groups of 16 seeds, by four of the transfers of `base_transfers` each. The label holder grows
a tree of hashes whose leaves are the seeds (Goldreich, Goldwasser and Micali, J. ACM 33, 1986). Of
each level it sums the left children, and the right ones, and sends both sums, hidden by the two
seeds of a transfer. The feature holder reads one of them: that of the side which does not lead to
its secret place. From the top down it so learns every node beside the path to that place
(Schoppmann, Gascón, Reichert and Raykova, CCS 2019).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.random_stream import Stream

__all__ = ["GROUPS", "GROUP_BITS", "SUMS_BYTES", "GrowSeeds", "PunctureSeeds"]

GROUP_BITS = 4
"""A place within a group has so many bits, a transfer for each."""

GROUPS = TRANSFERS // GROUP_BITS

_BYTES = 16  # of a seed

SUMS_BYTES = TRANSFERS * 2 * _BYTES
"""Of the sums that are sent."""


@dataclass(frozen=True, eq=False)
class GrowSeeds:
    """All seeds, uint8 (32, 16, 16), and the sums that are sent: uint8 (128, 2, 16).

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

    That of the secret place comes first, and is 0; seed i is that of the place ``i ^ secret``. The
    bits of the secret places, the highest first, are those that ``choices``, bool (128,), are not.
    ``seeds`` uint8 (128, 32): those of the choices. Raises `MessageError` for malformed ``sums``.
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
