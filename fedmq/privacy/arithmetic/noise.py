"""Noise: random powers of one base, from tables of its powers.

A table holds base^(d·2^(wi)) for every digit d of w bits and every place i, so that a power costs
one product per digit and no squaring (Brickell, Gordon, McCurley, Wilson, "Fast exponentiation
with precomputation", EUROCRYPT 1992). The digits are drawn, not the exponent: uniform digits are a
uniform exponent.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

__all__ = ["OWNER_EXPONENT_BITS", "OWNER_WINDOW", "owner_digits", "powers_of", "public_noise"]

# Length of the exponents by which a key's owner hides values from everybody else. Short noise
# exponents are Damgård, Jurik, Nielsen 2010; theirs have half the bits of n. Ours lean on the
# short-exponent discrete logarithm (Koshiba, Kurosawa, PKC 2004), best attacked by Pollard's
# kangaroos in 2^(bits/2) steps (van Oorschot, Wiener, EUROCRYPT 1996). Twice the security strength
# is the least (NIST SP 800-56A rev. 3): 448 bits cover a strength of 224, while keys of
# 2048 bits have 112, and those of 7680 bits 192.
OWNER_EXPONENT_BITS = 448

# Exponents of others exceed the order of the noise by so many bits: it is 2^-64 from uniform.
_STATISTICAL_BITS = 64

# Windows, by measurement at 2048 bits. For the owner, 7 bits: wider ones need tables that fall out
# of the cache, and win nothing. For others, who hide few ciphertexts with a four times longer
# exponent, 6 bits: 13 MB, built in 0.08 s.
OWNER_WINDOW = 7
_PUBLIC_WINDOW = 6


def owner_digits(count: int) -> list[list[int]]:
    """Random exponents of a key's owner, as digits of `OWNER_WINDOW` bits."""
    return _draw_digits(count, -(-OWNER_EXPONENT_BITS // OWNER_WINDOW), OWNER_WINDOW)


def public_noise(base: mpz, modulus: mpz, order_bits: int, count: int) -> list[mpz]:
    """``count`` random powers of ``base``, for one who knows only the whole modulus.

    They are uniform among its powers up to 2^-64 if it has fewer than 2^``order_bits``. Short
    exponents would not do here: a key's owner knows the exponents in its own ciphertexts, and takes
    logarithms modulo the factors, which are much smaller numbers.
    """
    places = -(-(order_bits + _STATISTICAL_BITS) // _PUBLIC_WINDOW)
    table = _table(base, modulus, places, _PUBLIC_WINDOW)
    return [
        _power(table, digits, modulus) for digits in _draw_digits(count, places, _PUBLIC_WINDOW)
    ]


def _draw_digits(count: int, places: int, window: int) -> list[list[int]]:
    """Rows of ``places`` digits below 2^window (at most 8 bits), from the system's generator."""
    drawn = np.frombuffer(secrets.token_bytes(count * places), dtype=np.uint8)
    digits: list[list[int]] = (drawn & (2**window - 1)).reshape(count, places).tolist()
    return digits


def _power(table: tuple[list[mpz], ...], digits: list[int], modulus: mpz) -> mpz:
    product = table[0][digits[0]]
    for place, digit in zip(table[1:], digits[1:], strict=True):
        product = product * place[digit] % modulus
    return product


@lru_cache(maxsize=4)
def _table(base: mpz, modulus: mpz, places: int, window: int) -> tuple[list[mpz], ...]:
    return tuple(powers_of(base, modulus, places, window))


def powers_of(base: mpz, modulus: mpz, places: int, window: int) -> list[list[mpz]]:
    """base^(d·2^(window·i)) for each place i and each digit d below 2^window."""
    rows = []
    step = base
    for _ in range(places):
        row = [mpz(1)]
        power = row[0]
        for _ in range(2**window - 1):
            power = power * step % modulus
            row.append(power)
        rows.append(row)
        step = power * step % modulus
    return rows
