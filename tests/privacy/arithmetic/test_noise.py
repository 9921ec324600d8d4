from __future__ import annotations

from collections import Counter

import pytest
from gmpy2 import mpz, powmod

from fedmq.privacy.arithmetic import noise
from fedmq.privacy.arithmetic.crt import Crt
from fedmq.privacy.arithmetic.lifted import hidden_residues


# Small enough to list whole groups: 3 generates the units modulo 257, 10 those modulo 313.
def powers(base: int, modulus: int) -> set[int]:
    return {pow(base, a, modulus) for a in range(modulus)}


def test_crt_joins_every_pair_of_residues() -> None:
    crt = Crt(mpz(7), mpz(11))
    assert [crt.join(x % crt.first, x % crt.second) for x in map(mpz, range(77))] == [*range(77)]


def test_a_table_gives_the_power_that_its_digits_spell() -> None:
    table = noise._table(mpz(5), mpz(10**9 + 7), 4, 3)
    digits = [6, 0, 7, 3]
    exponent = 6 + 0 * 8 + 7 * 64 + 3 * 512
    assert noise._power(table, digits, mpz(10**9 + 7)) == powmod(5, exponent, 10**9 + 7)


def test_noise_of_others_lies_among_the_powers_of_the_base() -> None:
    modulus = mpz(257 * 313)
    assert set(noise.public_noise(mpz(10), modulus, 100, 200)) <= powers(10, int(modulus))


def test_a_lifted_residue_is_the_power_that_its_digits_spell_times_the_plaintext() -> None:
    prime, base, slope, digits = mpz(1009), mpz(123456), mpz(77), [6, 0, 7, 3]
    exponent = 6 + 0 * 8 + 7 * 64 + 3 * 512
    residues = hidden_residues(
        [0, 5, -3], [digits] * 3, base=base, prime=prime, slope=slope, window=3
    )
    square = prime * prime
    power = powmod(base, exponent, square)
    assert residues == [
        powmod(1 + slope * prime, plaintext, square) * power % square for plaintext in (0, 5, -3)
    ]


def test_hiding_noise_is_uniform_over_a_small_group() -> None:
    drawn = Counter(noise.public_noise(mpz(3), mpz(257), 8, 25600))
    assert len(drawn) == 256
    chi_square = sum((count - 100) ** 2 / 100 for count in drawn.values())
    # 255 degrees of freedom, a standard deviation of 22.6: outside once in a million runs or less.
    assert 140 < chi_square < 405


@pytest.mark.parametrize("window", [6, 8])
def test_digits_use_the_whole_window_and_never_repeat(window: int) -> None:
    rows = noise._draw_digits(200, 64, window)
    assert {digit for row in rows for digit in row} == set(range(2**window))
    assert len({tuple(row) for row in rows}) == 200


def test_an_owners_exponent_is_more_than_twice_as_long_as_the_strength_of_long_keys() -> None:
    strength_of_7680_bits = 192  # NIST SP 800-57 part 1 rev. 5, table 2
    assert 2 * strength_of_7680_bits <= noise.OWNER_EXPONENT_BITS
    assert noise.OWNER_WINDOW * len(noise.owner_digits(1)[0]) == noise.OWNER_EXPONENT_BITS
