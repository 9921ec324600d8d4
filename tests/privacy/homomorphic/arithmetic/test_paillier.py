from __future__ import annotations

import secrets

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from phe import paillier as phe

from fedmq.errors import ConfigError, DataError
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic.histogram import sum_bins

KEY = paillier.generate(384)
PUBLIC = KEY.public
KEY_OF_PHE_PRIMES = paillier.PrivateKey.from_phe(KEY.to_phe())

# A prime p of 192 bits with no factor above 60 in p-1.
SMOOTH = 3950441744182703953429224222355339258639196620032000000001


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


def test_numbers_pass_both_ways() -> None:
    values = [0, 1, -987654321]
    numbers = PUBLIC.to_phe_numbers(KEY.encrypt(values))
    assert [KEY.to_phe().decrypt(number) for number in numbers] == values
    theirs = [PUBLIC.to_phe().encrypt(value) + 1 for value in values]
    back = PUBLIC.from_phe_numbers(theirs)
    assert KEY_OF_PHE_PRIMES.decrypt(back) == [value + 1 for value in values]


def test_sums_are_those_of_phe() -> None:
    public, private = phe.generate_paillier_keypair(n_length=384)
    random = np.random.default_rng(0)
    values = random.integers(-(2**40), 2**40, 30).tolist()
    codes = random.integers(0, 3, (30, 1)).astype(np.uint8)
    theirs = [public.encrypt(value) for value in values]
    ours = paillier.PrivateKey.from_phe(private).public
    histogram = sum_bins(
        ours.from_phe_numbers(theirs),
        codes,
        np.zeros(30, dtype=np.int8),
        nodes=1,
        codes=3,
        modulus=ours.modulus,
    )
    for code, number in enumerate(ours.to_phe_numbers(histogram[0, 0].tolist())):
        added = sum(their for their, of in zip(theirs, codes[:, 0], strict=True) if of == code)
        assert private.decrypt(number) == private.decrypt(added)


def test_a_number_of_another_key_or_a_fraction_is_refused() -> None:
    other, _ = phe.generate_paillier_keypair(n_length=384)
    with pytest.raises(DataError, match="number 1 is encrypted under another key"):
        PUBLIC.from_phe_numbers([PUBLIC.to_phe().encrypt(1), other.encrypt(1)])
    with pytest.raises(DataError, match="number 0 has the exponent -"):
        PUBLIC.from_phe_numbers([PUBLIC.to_phe().encrypt(0.5)])


def prime_with(factor: int, bits: int) -> int:
    """A prime p of ``bits`` bits with ``factor`` in p-1."""
    while True:
        candidate = factor * (secrets.randbits(bits - factor.bit_length()) | 1 << (bits - 8)) + 1
        if gmpy2.is_prime(candidate):
            return candidate


def phe_key(p: int, q: int) -> phe.PaillierPrivateKey:
    return phe.PaillierPrivateKey(phe.PaillierPublicKey(p * q), p, q)


def test_noise_under_a_key_of_phe_has_no_small_and_no_common_factor_in_its_order() -> None:
    common = prime_with(2, 40)
    p, q = (prime_with(2 * 3**4 * 5 * common, 192) for _ in range(2))
    ours = paillier.PrivateKey.from_phe(phe_key(p, q))
    rest = [factor - 1 for factor in (p, q)]
    for small in (2, 3, 5, 7, 11, 13, 997, common):
        rest = [_without(number, small) for number in rest]
    noise = ours.draw_noise(3) + ours.public.rerandomise(ours.encrypt([0]))
    assert all(gmpy2.powmod(c, rest[0] * rest[1], ours.public.modulus) == 1 for c in noise)
    assert len(set(noise)) == 4


def _without(number: int, factor: int) -> int:
    while number % factor == 0:
        number //= factor
    return number


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (prime_with(2, 192), 3 * prime_with(2, 190), "its factors are not prime"),
        (1009, 10 * 1009 + 1, r"n shares a factor with \(p - 1\)\(q - 1\)"),
        (prime_with(2, 192), SMOOTH, "too many small factors"),
    ],
    ids=["not prime", "shared factor", "smooth"],
)
def test_a_key_of_phe_that_hides_nothing_is_refused(p: int, q: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^key: .*{message}"):
        paillier.PrivateKey.from_phe(phe_key(p, q))


def test_a_key_survives_the_trip_to_phe_and_back() -> None:
    back = paillier.PrivateKey.from_phe(KEY.to_phe())
    assert {back.first.p, back.second.p} == {KEY.first.p, KEY.second.p}
    assert back.decrypt(KEY.encrypt([5])) == [5]
