from __future__ import annotations

import pytest
from gmpy2 import gcd, jacobi

from fedmq.errors import ConfigError
from fedmq.privacy.arithmetic import ou


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


def test_a_key_of_impossible_length_is_refused_by_name_of_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"^key_bits: .*128 bits"):
        ou.generate(128)
