from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from gmpy2 import gcd, jacobi, mpz

from fedmq.errors import ConfigError
from fedmq.privacy.homomorphic import okamoto_uchiyama as ou


@pytest.mark.parametrize("bits", range(256, 262))
def test_everybody_knows_the_length_of_p_from_that_of_n(bits: int) -> None:
    key = ou.generate(bits)
    p = key.prime.p
    assert p.bit_length() == key.public.plaintext_bits + 1
    assert p * p * key.q == key.public.n


def test_ciphertexts_are_half_as_long_as_those_of_paillier() -> None:
    key = ou.generate(256)
    assert key.public.modulus == key.public.n


def test_a_raw_ciphertext_betrays_the_key() -> None:
    key = ou.generate(256)
    (c,) = key.raw_encrypt([5])
    assert gcd(c - 1, key.public.n) == key.prime.p * key.q


def test_an_encrypted_value_does_not_betray_the_key() -> None:
    key = ou.generate(256)
    assert all(gcd(c - 1, key.public.n) == 1 for c in key.encrypt([0, 1, 5] * 10))


def test_the_noise_of_all_parties_is_square_so_that_no_character_tells_rows_apart() -> None:
    key = ou.generate(256)
    ciphertexts = [*key.encrypt([0, 1, 5] * 10), key.public.noise_base, key.public.draw_noise()]
    for prime in (key.prime.p, key.q):
        assert {jacobi(c, prime) for c in ciphertexts} == {1}


def logarithm(x: int, p: int) -> int:
    """Okamoto and Uchiyama's logarithm of x = 1 mod p, modulo p²."""
    assert x % p == 1
    return (x - 1) // p


def test_a_ciphertext_decrypts_by_the_definition_of_the_scheme() -> None:
    key = ou.generate(384)
    p, square = int(key.prime.p), int(key.prime.p) ** 2
    g = 1 + int(key.t) * p
    for m in (0, 1, 12345, p // 5):
        [c] = map(int, key.encrypt([m]))
        found = (
            logarithm(pow(c, p - 1, square), p)
            * pow(logarithm(pow(g, p - 1, square), p), -1, p)
            % p
        )
        assert found == m


def test_a_ciphertext_made_by_the_definition_of_the_scheme_decrypts() -> None:
    key = ou.generate(384, short_noise=False)
    p, n = int(key.prime.p), int(key.public.n)
    square = p * p
    random = Random(0)
    g = next(g for g in iter(lambda: random.randrange(2, n), 0) if pow(g, p - 1, square) != 1)
    h = pow(g, n, n)
    # The key knows g = 1 + tp up to roots of unity: t is its logarithm.
    t = mpz(logarithm(pow(g, p - 1, square), p)) * pow(p - 1, -1, p) % p
    own = replace(key, t=t)
    for m in (0, 1, 12345, p // 5):
        c = pow(g, m, n) * pow(h, random.randrange(n), n) % n
        assert own.decrypt([mpz(c)]) == [m]


def test_a_key_of_impossible_length_is_refused_by_name_of_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"^key_bits: .*128 bits"):
        ou.generate(128)
