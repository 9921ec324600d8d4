"""The scheme of Okamoto and Uchiyama, n = p²q: a third of the plaintext, about thrice the speed.

T. Okamoto, S. Uchiyama, "A new public-key cryptosystem as secure as factoring", EUROCRYPT 1998. A
ciphertext is g^m h^r mod n with g = 1 + tp modulo p² up to (p-1)-th roots of unity, and h an n-th
power. As in J.-S. Coron, D. Naccache, P. Paillier, "Accelerating Okamoto-Uchiyama public-key
cryptosystem", Electronics Letters 35 (1999), p-1 has a prime factor of twice the strength's bits,
and it is the order of h modulo p²: exponents of noise and decryption are short.

Since only the owner encrypts, g stays secret. Where sums are hidden, others add masks, for which
they get a ciphertext of 1: with noise, it is as good as g. The owner computes a ciphertext modulo
p², and draws it at random modulo q, where it holds nothing of the plaintext, as for r of full
length. All noise is square: then quadratic characters, of which q's is public (the Jacobi symbol
modulo n), show nothing.

Never show a decryption to the maker of the ciphertext: the decryption of a plaintext beyond p
betrays p.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gmpy2 import gcd, invert, mpz, powmod

from fedmq.errors import ConfigError
from fedmq.privacy.homomorphic import scheme
from fedmq.privacy.homomorphic.residues import numbers
from fedmq.privacy.homomorphic.scheme import (
    AddedByPowers,
    Crt,
    Prime,
    draw_exponents,
    draw_prime,
    draw_prime_around,
    draw_unit,
    hidden_residues,
    order_bits,
    powers,
)

__all__ = ["PrivateKey", "PublicKey", "check_public", "generate"]

# Shorter keys protect nothing, not even in a test.
_SMALLEST_BITS = 192


@dataclass(frozen=True)
class PublicKey(scheme.PublicKey):
    """The modulus n, and the noise; where plaintexts are added also ``one``, a ciphertext of 1."""

    one: mpz | None = None

    @property
    def adds_plaintexts(self) -> bool:
        return self.one is not None

    @property
    def modulus(self) -> mpz:
        """n."""
        return self.n

    @property
    def plaintext_bits(self) -> int:
        """One bit less than p has, so that the half of [0, p) shows the sign."""
        return _prime_bits(self.n.bit_length()) - 1

    def draw_noise(self) -> mpz:
        """x^2n mod n for a random unit x."""
        return powmod(draw_unit(self.n), 2 * self.n, self.n)

    def add_plaintexts(self, ciphertexts: Sequence[mpz], plaintexts: Sequence[int]) -> list[mpz]:
        """c one^m mod n, whose noise is that of ``one`` as well: re-randomise it."""
        by_powers = self.added_by_powers(plaintexts)
        if by_powers is None:
            return super().add_plaintexts(ciphertexts, plaintexts)
        base, exponents, size, back = by_powers
        added = powers(base, self.n, exponents, size)
        return [c * m % self.n * back % self.n for c, m in zip(ciphertexts, added, strict=True)]

    def added_by_powers(self, plaintexts: Sequence[int]) -> AddedByPowers | None:
        if self.one is None:
            return None
        size = -(-self.plaintext_bits // 8)
        # Exponents of a table of powers are not negative.
        moved = [m + (1 << (self.plaintext_bits - 1)) for m in plaintexts]
        exponents = [m.to_bytes(size, "little") for m in moved]
        back = _inverse_power(self.one, self.plaintext_bits - 1, self.n)
        return AddedByPowers(self.one, exponents, size, back)


@lru_cache(maxsize=2)
def _inverse_power(base: mpz, bits: int, modulus: mpz) -> mpz:
    """The inverse of ``base`` to the power of 2^``bits``."""
    return invert(powmod(base, mpz(1) << bits, modulus), modulus)


@dataclass(frozen=True)
class PrivateKey(scheme.PrivateKey):
    """The primes of n with the order of the noise, the t of g = 1 + tp, and the noise's base."""

    prime: Prime = field(repr=False)
    q: mpz = field(repr=False)
    t: mpz = field(repr=False)
    noise_base: mpz = field(repr=False)
    tabled_noise: bool = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """n = p²q."""
        p, order = self.prime
        return PublicKey(p * p * self.q, self.noise_base, order.bit_length() + self.q.bit_length())

    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """1 + tpm modulo p² and 1 modulo q: *no noise*, and q divides it less 1: it betrays q."""
        p, n = self.prime.p, self.public.n
        slope = _moduli(self.prime, self.q).join(self.t * p, mpz(0))
        return [(m * slope + 1) % n for m in plaintexts]

    def _encrypt_from_tables(self, plaintexts: Sequence[int]) -> list[mpz]:
        residues = hidden_residues(
            plaintexts,
            draw_exponents(self.prime.order, len(plaintexts)),
            base=self.noise_base,
            prime=self.prime.p,
            slope=self.t,
        )
        moduli = _moduli(self.prime, self.q)
        random = _random_squares(self.q, len(residues))
        return [moduli.join(*pair) for pair in zip(residues, random, strict=True)]

    def decrypt(self, ciphertexts: Sequence[mpz], *, vectors: bool = False) -> list[mpz]:
        """Plaintexts in (-p/2, p/2): m = L(c^a mod p²) / L(g^a mod p²).

        a is the order of the noise modulo p².
        """
        p, half = self.prime.p, self.prime.p // 2
        # L((1 + tp)^a) = at mod p.
        scale = invert(self.prime.order * self.t, p)
        residues = scheme.discrete_logarithms(ciphertexts, self.prime, scale, vectors)
        return [m - p if m > half else m for m in residues]


def generate(bits: int, *, short_noise: bool = True) -> PrivateKey:
    """A fresh key whose n has exactly ``bits`` bits and p a third, from the system's generator.

    Raises `ConfigError` for a length below 192.
    """
    if bits < _SMALLEST_BITS:
        raise ConfigError(
            f"key_bits: an Okamoto-Uchiyama key of {bits} bits cannot be made; take at least "
            f"{_SMALLEST_BITS}, and 2048 to be safe"
        )
    p_bits = _prime_bits(bits)
    while True:
        prime = (
            draw_prime_around(p_bits, order_bits(bits, p_bits))
            if short_noise
            else Prime.whole(draw_prime(p_bits))
        )
        p, q = prime.p, draw_prime(bits - 2 * p_bits)
        n = p * p * q
        if n.bit_length() == bits and gcd(p - 1, q - 1) == 2 and gcd(n, (p - 1) * (q - 1)) == 1:
            x = prime.draw_residue()
            base = _moduli(prime, q).join(x * x % (p * p), *_random_squares(q, 1))
            return PrivateKey(prime, q, draw_unit(p), base, short_noise)


def check_public(
    n: int, base: int, bits: int, smallest_bits: int, owner: str, one: int | None = None
) -> PublicKey:
    """The public key of the party ``owner``; raises `Refused` like the checks of `scheme`."""
    modulus = scheme.check_modulus(n, smallest_bits, owner)
    noise = scheme.check_noise(base, bits, modulus, owner)
    unit = None if one is None else scheme.check_noise(one, bits, modulus, owner)
    return PublicKey(modulus, noise, bits, unit)


def _moduli(prime: Prime, q: mpz) -> Crt:
    return Crt(prime.p * prime.p, q)


def _random_squares(q: mpz, count: int) -> list[mpz]:
    """Squares modulo q, 2^-64 from uniform, from the system's generator."""
    width = q.bit_length() // 8 + 9
    return [x * x % q for x in numbers(secrets.token_bytes(count * width), width)]


def _prime_bits(n_bits: int) -> int:
    """The public length of p: a third of n, rounded up."""
    return -(-int(n_bits) // 3)
