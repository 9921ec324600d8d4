"""Which hash stays random although its inputs differ by one secret? TMMO over AES.

H(x, t) = P(P(x) ⊕ t) ⊕ P(x), where P is AES-128 under a public key of the session: circular and
tweakable correlation robust if AES is ideal (Guo, Katz, Wang and Yu, "Efficient and Secure
Multiparty Computation from Fixed-Key Block Ciphers", IEEE S&P 2020, section 7.4). A key of its own
for each session keeps bounds good for many sessions (Guo, Katz, Wang, Weng and Yu, CRYPTO 2020).
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["BLOCK_BYTES", "BLOCK_WORDS", "Permutation", "hashed"]

BLOCK_BYTES = 16
BLOCK_WORDS = 2

_ROOM = BLOCK_BYTES - 1  # that the library asks for behind what it writes


class Permutation:
    """P: AES-128 under a key made of the session's ``public_seed``, on blocks of 16 bytes."""

    def __init__(self, public_seed: bytes) -> None:
        self._public_seed = public_seed
        key = hashlib.sha256(b"fedmq fixed permutation\0" + public_seed).digest()[:BLOCK_BYTES]
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def __reduce__(self) -> tuple[type[Permutation], tuple[bytes]]:
        return Permutation, (self._public_seed,)  # a cipher cannot be pickled

    @staticmethod
    def space(words: int) -> NDArray[np.uint64]:
        """An array into which `into` can write ``words`` words; it may write behind them."""
        return np.empty(words + BLOCK_WORDS, np.uint64)

    def into(self, blocks: NDArray[np.uint64], space: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """P of contiguous ``blocks`` in the first words of ``space``, in the blocks' shape."""
        end = blocks.nbytes + _ROOM
        self._cipher.update_into(
            blocks.reshape(-1).view(np.uint8).data, space.view(np.uint8)[:end].data
        )
        return space[: blocks.size].reshape(blocks.shape)

    def __call__(self, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """P of contiguous ``blocks``."""
        return self.into(blocks, self.space(blocks.size))


def hashed(
    permutation: Permutation, blocks: NDArray[np.uint64], numbers: NDArray[np.uint64], count: int
) -> NDArray[np.uint64]:
    """``count`` hashes of each block: uint64 (n, count, 2) of blocks (n, 2).

    ``numbers`` uint64 (n,) as `Tweaks.spend` gave them. The tweak is the number beside the place.
    """
    permuted = permutation(np.ascontiguousarray(blocks))
    tweaked = np.empty((len(blocks), count, BLOCK_WORDS), np.uint64)
    tweaked[..., 0] = permuted[:, np.newaxis, 0] ^ np.arange(count, dtype=np.uint64)
    tweaked[..., 1] = (permuted[:, 1] ^ numbers)[:, np.newaxis]
    result = permutation(tweaked)
    result ^= permuted[:, np.newaxis]
    return result
