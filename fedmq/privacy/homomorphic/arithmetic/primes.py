"""The primes that keys are made of, and units modulo their products."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from gmpy2 import gcd, is_prime, mpz, powmod, primorial

__all__ = [
    "PRIMALITY_ROUNDS",
    "Prime",
    "draw_prime",
    "draw_prime_around",
    "draw_unit",
    "rough_part",
]

# (p-1)/2 shares no factor with it, so that noise has no part in a small subgroup. Such a part would
# distinguish ciphertexts, and the powers of one base often cannot cover it.
_SMALL_PRIMES = primorial(1000)

# GMP runs Baillie-PSW first, and Miller-Rabin with random bases for the rounds beyond 24.
PRIMALITY_ROUNDS = 24 + 40


class Prime(NamedTuple):
    """A secret prime, and an exponent that makes the noise vanish modulo its square."""

    p: mpz
    order: mpz

    @classmethod
    def whole(cls, p: mpz) -> Prime:
        """All p-th powers are noise."""
        return cls(p, p - 1)

    def draw_residue(self) -> mpz:
        """A random p-th power modulo p² whose order divides ``order``, the identity aside."""
        square = self.p * self.p
        exponent = self.p * ((self.p - 1) // self.order)
        while (residue := powmod(draw_unit(self.p), exponent, square)) == 1:
            pass
        return residue


def draw_prime(bits: int) -> mpz:
    """A prime p ≡ 3 mod 4 of exactly ``bits`` bits, from the system's generator.

    p-1 has no odd factor below 1000. The two top bits of p are set, so that the product of two such
    primes is as long as both together.
    """
    top = mpz(3) << (bits - 2)
    while True:
        candidate = mpz(secrets.randbits(bits)) | top | 3
        smooth = gcd(candidate >> 1, _SMALL_PRIMES) != 1
        if not smooth and is_prime(candidate, PRIMALITY_ROUNDS):
            return candidate


def draw_prime_around(bits: int, order_bits: int) -> Prime:
    """A prime p = 2·order·r + 1 of ``bits`` bits around a random prime order of ``order_bits``.

    r is odd, so that p ≡ 3 mod 4; the two top bits of p are set, and those of the order.
    """
    order = draw_prime(order_bits)
    least = (mpz(3) << (bits - 2)) // (2 * order) + 1
    beyond = (mpz(1) << bits) // (2 * order)
    while True:
        r = (least + secrets.randbelow(int(beyond - least))) | 1
        candidate = 2 * order * r + 1
        if candidate.bit_length() == bits and is_prime(candidate, PRIMALITY_ROUNDS):
            return Prime(candidate, order)


def rough_part(number: mpz) -> mpz:
    """``number`` without its prime factors below 1000."""
    while (smooth := gcd(number, _SMALL_PRIMES)) != 1:
        number //= smooth
    return number


def draw_unit(n: mpz) -> mpz:
    """A uniform unit modulo ``n``, from the system's generator."""
    while True:
        unit = mpz(secrets.randbelow(int(n)))
        if gcd(unit, n) == 1:
            return unit
