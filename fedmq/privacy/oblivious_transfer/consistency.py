"""Did the receiver of an extension make the same choices in all columns?

The check of Keller, Orsini and Scholl (CRYPTO 2015, ePrint 2015/546 as mended in 2022), column by
column as Roy has it (SoftSpokenOT, CRYPTO 2022, section 5). Both sides compress columns by a linear
hash whose key is drawn once the columns are fixed: here from the columns themselves, so that no
message more is needed (Fiat and Shamir). The hash is GHASH, the polynomial over GF(2^128) in
AES-GCM: two columns that differ collide with chance (blocks + 1) / 2^128.

A receiver that cheats in a column is caught unless it guesses that bit of the sender's secret.
Whoever finds a receiver cheating ends the session, and never uses the secret again.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["HASH_BYTES", "LinearHash"]

HASH_BYTES = 16

_NONCE = bytes(12)  # a key is used for one extension only, and nothing is encrypted


class LinearHash:
    """GHASH of columns of ``width`` bytes: the hash of a XOR is the XOR of hashes.

    The key is SHA-256 of ``purpose`` and all that the receiver sent, uint8 (columns, width).
    """

    def __init__(self, sent: NDArray[np.uint8], purpose: str) -> None:
        digest = hashlib.sha256(f"fedmq consistency {purpose} {sent.shape}\0".encode())
        digest.update(np.ascontiguousarray(sent).data)
        self._key = digest.digest()[:HASH_BYTES]
        # A tag is linear in the data but for a constant: that of zeros.
        self._constant = self._tag(np.zeros(sent.shape[1], np.uint8))

    def __call__(self, columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Of contiguous ``columns`` (n, width): uint8 (n, 16)."""
        return np.stack([self._tag(column) for column in columns]) ^ self._constant

    def _tag(self, column: NDArray[np.uint8]) -> NDArray[np.uint8]:
        gcm = Cipher(algorithms.AES(self._key), modes.GCM(_NONCE)).encryptor()
        gcm.authenticate_additional_data(column.data)
        gcm.finalize()
        return np.frombuffer(gcm.tag, np.uint8)
