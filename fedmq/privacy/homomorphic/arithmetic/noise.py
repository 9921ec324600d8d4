"""Noise: random powers of one base, from tables of its powers.

A table holds base^(d·256^i) for every byte d and every place i, so that a power costs one product
per byte of its exponent and no squaring (Brickell, Gordon, McCurley, Wilson, "Fast exponentiation
with precomputation", EUROCRYPT 1992). Exponents are bytes, the lowest first.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import lru_cache

from gmpy2 import mpz, powmod

__all__ = [
    "SeededBytes",
    "draw_exponents",
    "exponent_bytes",
    "has_table",
    "order_bits",
    "powers_of",
    "public_noise",
]

# Exponents exceed the order of the noise by so many bits before they are reduced by it, or where it
# is not known: they are 2^-64 from uniform.
_STATISTICAL_BITS = 64

# Bytes of a table. Its length follows from somebody else's key: beyond this it is done without, as
# for keys above 4096 bits whose noise is as long as they are.
_MOST_TABLE = 160_000_000


@dataclass(frozen=True, slots=True)
class SeededBytes:
    """Random bytes that whoever knows the ``seed`` (32 bytes) draws again.

    SHAKE-256 (FIPS 202) of seed, number and purpose: without the seed nobody can tell them apart.
    ``first`` is the number of the first ciphertext at hand. A fresh seed unless one is given.
    """

    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    first: int = 0

    def draw(self, purpose: bytes, index: int, size: int) -> bytes:
        """``size`` bytes for ciphertext ``index`` of those at hand."""
        number = (self.first + index).to_bytes(8, "big")
        return hashlib.shake_256(self.seed + number + purpose).digest(size)


def order_bits(key_bits: int, prime_bits: int) -> int:
    """How many bits the order of the noise has modulo a secret prime of an n of ``key_bits``.

    Giant steps find a logarithm in 2^(bits/2), and factor n in as many (Coron, Joux, Mandal,
    Naccache, Tibouchi, PKC 2011). So it is twice the strength that n has: 112, 128, 192 and 256
    bits for an n of 2048, 3072, 7680 and 15360 (NIST SP 800-57 part 1 rev. 5, table 2).
    """
    strengths = ((2048, 112), (3072, 128), (7680, 192))
    safe = 2 * next((strength for most, strength in strengths if key_bits <= most), 256)
    return min(safe, prime_bits // 2)  # less only for toys


def draw_exponents(order: mpz, count: int) -> list[bytes]:
    """``count`` exponents below ``order``, 2^-64 from uniform, from the system's generator."""
    size = -(-order.bit_length() // 8)
    width = size + _STATISTICAL_BITS // 8
    drawn = secrets.token_bytes(count * width)
    return [
        (mpz.from_bytes(drawn[start : start + width], "little") % order).to_bytes(size, "little")
        for start in range(0, len(drawn), width)
    ]


def exponent_bytes(base_order_bits: int) -> int:
    """Bytes of a random exponent that is uniform up to 2^-64 below 2^``base_order_bits``."""
    return -(-(base_order_bits + _STATISTICAL_BITS) // 8)


def has_table(modulus: mpz, places: int) -> bool:
    """Whether a table of so many places may be made, or would take too much memory."""
    return bool(places * 256 * -(-modulus.bit_length() // 8) <= _MOST_TABLE)


def public_noise(
    base: mpz, modulus: mpz, base_order_bits: int, count: int, random: SeededBytes | None = None
) -> list[mpz]:
    """``count`` random powers of ``base``, for one who knows only the whole modulus.

    They are uniform among its powers up to 2^-64 if it has fewer than 2^``base_order_bits``.
    """
    random = random or SeededBytes()
    size = exponent_bytes(base_order_bits)
    drawn = (random.draw(b"noise", index, size) for index in range(count))
    if not has_table(modulus, size):
        return [powmod(base, mpz.from_bytes(digits, "little"), modulus) for digits in drawn]
    table = _table(base, modulus, size)
    return [_power(table, digits, modulus) for digits in drawn]


def _power(table: tuple[list[mpz], ...], exponent: bytes, modulus: mpz) -> mpz:
    product = table[0][exponent[0]]
    for place, digit in zip(table[1:], exponent[1:], strict=True):
        product = product * place[digit] % modulus
    return product


@lru_cache(maxsize=2)
def _table(base: mpz, modulus: mpz, places: int) -> tuple[list[mpz], ...]:
    return tuple(powers_of(base, modulus, places))


def powers_of(base: mpz, modulus: mpz, places: int) -> list[list[mpz]]:
    """base^(d·256^i) for each place i and each byte d."""
    rows = []
    step = base
    for _ in range(places):
        row = [mpz(1)]
        power = row[0]
        for _ in range(255):
            power = power * step % modulus
            row.append(power)
        rows.append(row)
        step = power * step % modulus
    return rows
