"""The hash is that of the paper, and its tweaks count."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedmq.privacy.oblivious_transfer.extension import Permutation, hashed

BLOCKS = np.random.default_rng(0).integers(0, 2**64, (5, 2), np.uint64)
NUMBERS = np.arange(7, 12, dtype=np.uint64)


def aes(block: bytes) -> bytes:
    key = hashlib.sha256(b"fedmq fixed permutation\0seed").digest()[:16]
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(left, right, strict=True))


def test_a_hash_is_tmmo() -> None:
    found = hashed(Permutation(b"seed"), BLOCKS, NUMBERS, 3)
    for block, number, hashes in zip(BLOCKS, NUMBERS, found, strict=True):
        permuted = aes(block.tobytes())
        for place, value in enumerate(hashes):
            tweak = place.to_bytes(8, "little") + int(number).to_bytes(8, "little")
            wanted = exclusive_or(aes(exclusive_or(permuted, tweak)), permuted)
            assert value.tobytes() == wanted


def test_numbers_places_and_keys_give_other_hashes() -> None:
    found = [
        hashed(Permutation(seed), np.zeros((5, 2), np.uint64), NUMBERS, 3)
        for seed in (b"one", b"two")
    ]
    assert len({value.tobytes() for hashes in found for value in hashes.reshape(-1, 2)}) == 30


def test_threads_that_hash_at_the_same_time_disturb_no_other() -> None:
    """Halves of a chain share the session's permutation."""
    permutation = Permutation(b"seed")
    blocks = np.arange(2**18, dtype=np.uint64).reshape(-1, 2)
    wanted = permutation(blocks)
    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(permutation, [blocks] * 16):
            np.testing.assert_array_equal(found, wanted)
