"""Where do random numbers come from? AES-256-CTR, under keys made of seeds of 32 bytes.

A secret seed comes from the system's generator. A computation carries its seed, so that one that
is done again comes to the same numbers.
"""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedmq.privacy.lattice.layout import ERROR_BITS, LIMB_BITS, LIMBS

__all__ = ["SEED_BYTES", "Stream", "draw_secret", "fresh_seed", "public_element"]

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

    def ternary(self, *shape: int) -> NDArray[np.int8]:
        """-1, 0 and 1, each with chance 1/3 but for 2^-64."""
        return (self.words(*shape) % np.uint64(3)).astype(np.int8) - np.int8(1)

    def errors(self, *shape: int) -> NDArray[np.int64]:
        """Centred binomial numbers: the ones among 21 bits less those among 21 others."""
        words = self.words(*shape)
        low = np.uint64((1 << ERROR_BITS) - 1)
        errors: NDArray[np.int64] = np.bitwise_count(words & low).astype(np.int64)
        errors -= np.bitwise_count((words >> np.uint64(ERROR_BITS)) & low)
        return errors


def draw_secret(seed: bytes, degree: int, largest: int) -> NDArray[np.int8]:
    """A ternary ring element of which at most ``largest`` coefficients are other than 0."""
    stream = Stream(seed, "fedmq lattice secret")
    while True:
        secret = stream.ternary(degree)
        if np.count_nonzero(secret) <= largest:
            return secret


def public_element(seed: bytes, number: int, degree: int) -> NDArray[np.int32]:
    """The uniform ring element a_number that both sides make of the public ``seed``.

    Its limbs (6, degree), read as signed, which changes the element by nothing modulo 2^192 once
    they are carried.
    """
    limbs = Stream(seed, f"fedmq lattice a {number}").read(LIMB_BITS // 8 * LIMBS * degree)
    return np.frombuffer(limbs, "<i4").reshape(LIMBS, degree)
