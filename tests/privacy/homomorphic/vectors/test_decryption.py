from __future__ import annotations

import secrets
from typing import Any

import pytest
from gmpy2 import mpz

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic import okamoto_uchiyama, paillier

KEYS = [
    scheme.generate(bits, short_noise=short)
    for scheme, bits in ((okamoto_uchiyama, 576), (paillier, 384))
    for short in (True, False)
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("count", [0, 2, 3, 8, 9, 30])
def test_eight_at_once_decrypt_to_the_same_numbers(key: Any, count: int) -> None:
    half = 1 << (key.public.plaintext_bits - 1)
    plaintexts = [0, half - 1, 1 - half, *(secrets.randbelow(half) for _ in range(27))][:count]
    ciphertexts = key.public.rerandomise(key.encrypt(plaintexts))
    assert key.decrypt(ciphertexts, vectors=True) == plaintexts


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("key", KEYS)
def test_what_no_rows_could_make_is_refused_alike(key: Any, vectors: bool) -> None:
    prime = key.prime if hasattr(key, "prime") else key.first
    strange = [x for x in range(2, 9) if pow(x, int(prime.order), int(prime.p)) != 1]
    for number in (prime.p, prime.p**2, *map(mpz, strange)):
        ciphertexts = [*key.encrypt([1] * 9), number]
        with pytest.raises(MessageError, match="not made of this key's ciphertexts"):
            key.decrypt(ciphertexts, vectors=vectors)
