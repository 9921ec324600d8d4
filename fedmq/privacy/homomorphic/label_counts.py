"""How does a party count ones of a label by the bins of its columns without reading a label?

One ciphertext a row holds 0 or 1. Their product over a bin decrypts to the number of its ones. Bits
above that number are masked before it leaves: ciphertexts of other contents disclose at most as
many bits of a bin as the number of rows has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.group_sums import decrypting, masked_sums
from fedmq.privacy.homomorphic.paillier import PrivateKey, PublicKey
from fedmq.privacy.homomorphic.residues import from_wire, to_wire

__all__ = ["count_ones", "decrypt_counts", "encrypt_labels"]


@computation("EncryptLabels")
def encrypt_labels(key: PrivateKey, ones: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """One ciphertext a row of ``ones`` (rows,), as wire bytes: uint8 (rows, bytes)."""
    return to_wire(key.encrypt(ones.astype(int).tolist()), key.public.modulus)


@computation("CountOnes")
def count_ones(
    public: PublicKey, ciphertexts: NDArray[np.uint8], columns: Sequence[NDArray[np.uint16]]
) -> list[NDArray[np.uint8]]:
    """The encrypted ones by bin of each of ``columns``, uint16 (rows,): uint8 (bins, bytes) each.

    Raises:
        MessageError: the ciphertexts are not one per row under this key.
    """
    numbers, modulus = from_wire(ciphertexts, public.modulus), public.modulus
    counted = []
    for bin_of in columns:
        if len(numbers) != len(bin_of):
            raise MessageError("one ciphertext for each row is needed")
        sums = [mpz(1)] * (int(bin_of.max()) + 1)
        for number, row in zip(bin_of.tolist(), numbers, strict=True):
            sums[number] = sums[number] * row % modulus
        counted.append(to_wire(masked_sums(public, sums, len(numbers).bit_length()), modulus))
    return counted


@computation("DecryptCounts")
def decrypt_counts(
    key: PrivateKey, columns: Sequence[NDArray[np.uint8]], rows: int
) -> list[NDArray[np.int64]]:
    """The ones by bin of each column, int64 (bins,), of so many ``rows``.

    Raises:
        MessageError: ciphertexts do not fit the key.
    """
    own, bits = decrypting(key), rows.bit_length()
    found = []
    for ciphertexts in columns:
        sums = own.decrypt(from_wire(ciphertexts, key.public.modulus))
        counts = [int(masked % key.public.n) % (1 << bits) for masked in sums]
        found.append(np.array(counts, np.int64))
    return found
