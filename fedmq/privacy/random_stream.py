"""Where do random bytes come from? AES-256-CTR, under keys made of seeds of 32 bytes.

A secret seed comes from the system's generator. A computation carries its seed, so a repeated
computation draws the same numbers.
"""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["SEED_BYTES", "Stream", "fresh_seed"]

SEED_BYTES = 32


def fresh_seed() -> bytes:
    """A secret seed from the system's generator."""
    return secrets.token_bytes(SEED_BYTES)


class Stream:
    """The bytes of AES-256-CTR from counter 0 under the key SHA-256(``purpose`` ‖ 0 ‖ ``seed``).

    No two streams of one seed may have the same purpose.
    """

    def __init__(self, seed: bytes, purpose: str) -> None:
        key = hashlib.sha256(purpose.encode() + b"\0" + seed).digest()
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        return self._cipher.update(bytes(size))

    def words(self, *shape: int) -> NDArray[np.uint64]:
        """Uniform words of 64 bits."""
        return np.frombuffer(self.read(8 * math.prod(shape)), "<u8").reshape(shape)
