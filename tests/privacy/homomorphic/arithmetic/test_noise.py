from __future__ import annotations

from collections import Counter

import pytest
from gmpy2 import mpz, powmod

from fedmq.privacy.homomorphic import scheme as noise
from fedmq.privacy.homomorphic.scheme import Crt, hidden_residues


# Small enough to list whole groups: 3 generates the units modulo 257, 10 those modulo 313.
def powers(base: int, modulus: int) -> set[int]:
    return {pow(base, a, modulus) for a in range(modulus)}


def test_crt_joins_every_pair_of_residues() -> None:
    crt = Crt(mpz(7), mpz(11))
    assert [crt.join(x % crt.first, x % crt.second) for x in map(mpz, range(77))] == [*range(77)]


def test_a_table_gives_the_power_that_its_bytes_spell() -> None:
    exponent = bytes([6, 0, 255, 3])
    table = noise._table(mpz(5), mpz(10**9 + 7), 4)
    power = powmod(5, int.from_bytes(exponent, "little"), 10**9 + 7)
    assert noise._power(table, exponent, mpz(10**9 + 7)) == power


def test_noise_of_others_lies_among_the_powers_of_the_base() -> None:
    modulus = mpz(257 * 313)
    assert set(noise.public_noise(mpz(10), modulus, 100, 200)) <= powers(10, int(modulus))


def test_a_lifted_residue_is_the_power_that_its_bytes_spell_times_the_plaintext() -> None:
    prime, base, slope, exponent = mpz(1009), mpz(123456), mpz(77), bytes([6, 0, 255, 3])
    residues = hidden_residues([0, 5, -3], [exponent] * 3, base=base, prime=prime, slope=slope)
    square = prime * prime
    power = powmod(base, int.from_bytes(exponent, "little"), square)
    assert residues == [
        powmod(1 + slope * prime, plaintext, square) * power % square for plaintext in (0, 5, -3)
    ]


def test_hiding_noise_is_uniform_over_a_small_group() -> None:
    drawn = Counter(noise.public_noise(mpz(3), mpz(257), 8, 25600))
    assert len(drawn) == 256
    chi_square = sum((count - 100) ** 2 / 100 for count in drawn.values())
    # 255 degrees of freedom, a standard deviation of 22.6: outside once in a million runs or less.
    assert 140 < chi_square < 405


def test_exponents_are_uniform_below_the_order_and_as_long_as_it() -> None:
    drawn = noise.draw_exponents(mpz(300), 30_000)
    assert {len(exponent) for exponent in drawn} == {2}
    counts = Counter(int.from_bytes(exponent, "little") for exponent in drawn)
    assert max(counts) == 299
    chi_square = sum((count - 100) ** 2 / 100 for count in counts.values())
    # 299 degrees of freedom, a standard deviation of 24.5: outside once in a million runs or less.
    assert 175 < chi_square < 460


@pytest.mark.parametrize(("key_bits", "strength"), [(2048, 112), (3072, 128), (7680, 192)])
def test_the_order_of_the_noise_is_at_least_twice_as_long_as_the_strength_of_the_key(
    key_bits: int, strength: int
) -> None:
    # NIST SP 800-57 part 1 rev. 5, table 2
    assert noise.order_bits(key_bits, key_bits // 3) >= 2 * strength
