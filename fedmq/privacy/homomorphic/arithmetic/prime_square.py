"""Encryption modulo the square of a secret prime, at half the price of its products.

Every unit modulo p² is y·(1 + ps) with y < p, and factors of the second kind multiply by adding
their s. So a power from a table (see `noise`) is a product of numbers *half* as long as p², and a
sum: ∏ y_i(1 + ps_i) = ∏ y_i · (1 + p∑s_i). The plaintext, which is such an s, is added for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gmpy2 import invert, mpz

from fedmq.privacy.homomorphic.arithmetic.noise import powers_of

__all__ = ["hidden_residues"]


def hidden_residues(
    plaintexts: Sequence[int],
    exponents: Sequence[bytes],
    *,
    base: mpz,
    prime: mpz,
    slope: mpz,
) -> list[mpz]:
    """(1 + slope·prime)^m · base^a modulo prime², for each m of ``plaintexts``.

    The ``exponents`` a are bytes of one length, the lowest first.
    """
    square = prime * prime
    units, logarithms = _table(base % square, prime, len(exponents[0]) if exponents else 0)
    residues = []
    for m, exponent in zip(plaintexts, exponents, strict=True):
        logarithm = m * slope
        product = mpz(1)
        for place_units, place_logarithms, digit in zip(units, logarithms, exponent, strict=True):
            product = product * place_units[digit] % square
            logarithm += place_logarithms[digit]
        residues.append(product * (logarithm % prime * prime + 1) % square)
    return residues


# Four tables serve two keys of two primes each.
@lru_cache(maxsize=4)
def _table(
    base: mpz, prime: mpz, places: int
) -> tuple[tuple[list[mpz], ...], tuple[list[mpz], ...]]:
    """The y and the s of the powers base^(d·256^i) for each place i and byte d."""
    square = prime * prime
    units, logarithms = [], []
    for row in powers_of(base, square, places):
        below = [power % prime for power in row]
        units.append(below)
        inverses = _inverses(below, prime)
        logarithms.append(
            [
                (power // prime) * inverse % prime
                for power, inverse in zip(row, inverses, strict=True)
            ]
        )
    return tuple(units), tuple(logarithms)


def _inverses(units: Sequence[mpz], prime: mpz) -> list[mpz]:
    """One modular inverse for all: Montgomery's trick, Math. Comp. 48 (1987)."""
    prefixes = [mpz(1)]
    for unit in units:
        prefixes.append(prefixes[-1] * unit % prime)
    inverse = invert(prefixes[-1], prime)
    inverses = []
    for prefix, unit in zip(reversed(prefixes[:-1]), reversed(units), strict=True):
        inverses.append(inverse * prefix % prime)
        inverse = inverse * unit % prime
    return inverses[::-1]
