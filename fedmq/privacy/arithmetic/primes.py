"""The primes that keys are made of, and units modulo their products."""

from __future__ import annotations

import secrets

from gmpy2 import gcd, is_prime, mpz, primorial

__all__ = ["draw_prime", "draw_unit"]

# (p-1)/2 shares no factor with it: then the powers of hardly any noise base miss a part of the
# noise, and there are no small subgroups to tell noise apart in.
_SMALL_PRIMES = primorial(1000)

# GMP runs Baillie-PSW first, and Miller-Rabin with random bases for the rounds beyond 24.
_PRIMALITY_ROUNDS = 24 + 40


def draw_prime(bits: int) -> mpz:
    """A prime p ≡ 3 mod 4 of exactly ``bits`` bits, from the system's generator.

    p-1 has no odd factor below 1000. The two top bits of p are set, so that the product of two such
    primes is as long as both together.
    """
    top = mpz(3) << (bits - 2)
    while True:
        candidate = mpz(secrets.randbits(bits)) | top | 3
        smooth = gcd(candidate >> 1, _SMALL_PRIMES) != 1
        if not smooth and is_prime(candidate, _PRIMALITY_ROUNDS):
            return candidate


def draw_unit(n: mpz) -> mpz:
    """A uniform unit modulo ``n``, from the system's generator."""
    while True:
        unit = mpz(secrets.randbelow(int(n)))
        if gcd(unit, n) == 1:
            return unit
