from __future__ import annotations

import pytest
from gmpy2 import mpz
from phe import paillier as phe

from fedmq.errors import ConfigError
from fedmq.privacy.homomorphic.arithmetic import paillier

KEY = paillier.generate(384)
PUBLIC = KEY.public


@pytest.mark.parametrize("bits", [0, -2, 64, 513])
def test_a_key_of_impossible_length_is_refused_by_name_of_the_setting(bits: int) -> None:
    with pytest.raises(ConfigError, match=rf"^key_bits: .*{bits} bits"):
        paillier.generate(bits)


def test_a_raw_ciphertext_is_readable_without_the_key() -> None:
    (c,) = KEY.raw_encrypt([5])
    assert (c - 1) // PUBLIC.n == 5


def test_phe_decrypts_our_ciphertexts() -> None:
    private = KEY.to_phe()
    for value, c in zip([0, 1, -987654321], KEY.encrypt([0, 1, -987654321]), strict=True):
        assert private.decrypt(phe.EncryptedNumber(PUBLIC.to_phe(), int(c))) == value


def test_we_decrypt_what_phe_encrypted() -> None:
    public, private = phe.generate_paillier_keypair(n_length=384)
    ours = paillier.PrivateKey.from_phe(private)
    values = [0, 1, -987654321]
    theirs = [mpz(public.encrypt(v).ciphertext()) for v in values]
    assert ours.public.n == public.n
    assert ours.decrypt(theirs) == values


def test_a_key_survives_the_trip_to_phe_and_back() -> None:
    back = paillier.PrivateKey.from_phe(KEY.to_phe())
    assert {back.first.p, back.second.p} == {KEY.first.p, KEY.second.p}
    assert back.decrypt(KEY.encrypt([5])) == [5]
