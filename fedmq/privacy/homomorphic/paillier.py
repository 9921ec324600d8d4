"""The scheme of Paillier, with the noise of Ma, Han and Lei.

- P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes",
  EUROCRYPT 1999: c = (1 + n)^m r^n mod n², decrypted by the Chinese remainder theorem.
- I. Damgård, M. Jurik, J. B. Nielsen, "A generalization of Paillier's public-key system with
  applications to electronic voting", Int. J. Inf. Secur. 9 (2010): for p ≡ q ≡ 3 mod 4 with
  gcd(p-1, q-1) = 2 the noise r^n may be a random power of one n-th power h.
- H. Ma, S. Han, H. Lei, "Optimized Paillier's cryptosystem with fast encryption and decryption",
  ACSAC 2021: p-1 and q-1 have prime factors a and b of twice the strength's bits, and h the order
  ab, so that exponents of noise and decryption are short. Their base is -h; here all noise is
  square, as it is when each of their ciphertexts is squared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gmpy2 import gcd, invert, is_prime, mpz, powmod
from numpy.typing import NDArray
from phe import paillier as phe

from fedmq.errors import ConfigError, DataError, Refused
from fedmq.privacy.homomorphic import scheme
from fedmq.privacy.homomorphic.scheme import (
    PRIMALITY_ROUNDS,
    Crt,
    Prime,
    draw_exponents,
    draw_prime,
    draw_prime_around,
    draw_unit,
    hidden_residues,
    order_bits,
    rough_part,
)

__all__ = [
    "PrivateKey",
    "PublicKey",
    "check_public",
    "generate",
    "public_numbers",
    "public_of",
]

# Shorter keys protect nothing, not even in a test.
_SMALLEST_BITS = 128


class PublicKey(scheme.PublicKey):
    """The modulus n, and the noise."""

    @property
    def adds_plaintexts(self) -> bool:
        return True

    @property
    def modulus(self) -> mpz:
        """n²."""
        return self.n * self.n

    @property
    def plaintext_bits(self) -> int:
        """One bit less than n has, so that the half of [0, n) shows the sign."""
        return int(self.n.bit_length()) - 1

    def draw_noise(self) -> mpz:
        """x^2n mod n² for a random unit x."""
        return powmod(draw_unit(self.n), 2 * self.n, self.modulus)

    def add_plaintexts(self, ciphertexts: Sequence[mpz], plaintexts: Sequence[int]) -> list[mpz]:
        """c (1 + mn) mod n²."""
        n, modulus = self.n, self.modulus
        return [c * (m * n + 1) % modulus for c, m in zip(ciphertexts, plaintexts, strict=True)]

    def to_phe(self) -> phe.PaillierPublicKey:
        """The same key for python-paillier."""
        return phe.PaillierPublicKey(int(self.n))

    def to_phe_numbers(self, ciphertexts: Sequence[mpz]) -> list[phe.EncryptedNumber]:
        """The ciphertexts of integers as python-paillier's numbers, to add and decrypt there."""
        public = self.to_phe()
        return [phe.EncryptedNumber(public, int(ciphertext)) for ciphertext in ciphertexts]

    def from_phe_numbers(self, numbers: Sequence[phe.EncryptedNumber]) -> list[mpz]:
        """The ciphertexts of python-paillier's encrypted integers.

        Raises:
            DataError: a number is under another key, or encrypts a fraction, which phe writes with
                an exponent in the clear.
        """
        for place, number in enumerate(numbers):
            if number.public_key.n != self.n:
                raise DataError(f"number {place} is encrypted under another key")
            if number.exponent != 0:
                raise DataError(
                    f"number {place} has the exponent {number.exponent}; encrypt integers, which "
                    "have none"
                )
        return [mpz(number.ciphertext()) for number in numbers]


@dataclass(frozen=True)
class PrivateKey(scheme.PrivateKey):
    """The primes of n with the orders of the noise, and the noise's base."""

    first: Prime = field(repr=False)
    second: Prime = field(repr=False)
    noise_base: mpz = field(repr=False)
    tabled_noise: bool = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """n = pq."""
        bits = self.first.order.bit_length() + self.second.order.bit_length()
        return PublicKey(self.first.p * self.second.p, self.noise_base, bits)

    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """1 + mn mod n²: *no noise*, anybody reads m."""
        n, modulus = self.public.n, self.public.modulus
        return [(m * n + 1) % modulus for m in plaintexts]

    def _encrypt_from_tables(self, plaintexts: Sequence[int]) -> list[mpz]:
        # (1 + n)^m is (1 + qp)^m modulo p², and (1 + pq)^m modulo q².
        first, second = (
            hidden_residues(
                plaintexts,
                draw_exponents(prime.order, len(plaintexts)),
                base=self.noise_base,
                prime=prime.p,
                slope=other.p,
            )
            for prime, other in ((self.first, self.second), (self.second, self.first))
        )
        squares = _squares(self.first, self.second)
        return [squares.join(*residues) for residues in zip(first, second, strict=True)]

    def decrypt(self, ciphertexts: Sequence[mpz], *, vectors: bool = False) -> list[mpz]:
        """Plaintexts in (-n/2, n/2): m = L(c^a mod p²) / L((1 + n)^a mod p²) mod p, and so mod q.

        a is the order of the noise modulo p².
        """
        p, q = self.first.p, self.second.p
        n, half, halves = p * q, p * q // 2, Crt(p, q)
        # L((1 + n)^a) = aq mod p, so its inverse needs no power.
        residues = zip(
            scheme.discrete_logarithms(
                ciphertexts, self.first, invert(self.first.order * q, p), vectors
            ),
            scheme.discrete_logarithms(
                ciphertexts, self.second, invert(self.second.order * p, q), vectors
            ),
            strict=True,
        )
        plaintexts = (halves.join(*residue) for residue in residues)
        return [m - n if m > half else m for m in plaintexts]

    def to_phe(self) -> phe.PaillierPrivateKey:
        """The same key for python-paillier, which decrypts what this one encrypted."""
        return phe.PaillierPrivateKey(self.public.to_phe(), int(self.first.p), int(self.second.p))

    @classmethod
    def from_phe(cls, key: phe.PaillierPrivateKey) -> PrivateKey:
        """A key of python-paillier; it decrypts what either encrypted.

        phe takes any primes, so that p-1 and q-1 may have small factors and common ones. The order
        of the noise has neither: a part of the noise in a small subgroup would not be covered by
        the powers of one base, and show the key's owner which ciphertexts were added.

        Raises:
            ConfigError: the factors are not prime, n shares a factor with (p-1)(q-1), or too
                little is left of p-1 or q-1.
        """
        p, q = mpz(key.p), mpz(key.q)
        if not all(is_prime(factor, PRIMALITY_ROUNDS) for factor in (p, q)):
            raise ConfigError("key: its factors are not prime; make another key")
        if gcd(p * q, (p - 1) * (q - 1)) != 1:
            raise ConfigError("key: n shares a factor with (p - 1)(q - 1); make another key")
        orders = rough_part(p - 1), rough_part(q - 1)
        while (common := gcd(*orders)) != 1:
            orders = orders[0] // common, orders[1] // common
        for prime, order in zip((p, q), orders, strict=True):
            if order.bit_length() < order_bits((p * q).bit_length(), prime.bit_length()):
                raise ConfigError("key: p - 1 or q - 1 has too many small factors; make another")
        base = _noise_base(Prime(p, orders[0]), Prime(q, orders[1]))
        # Phe's own noise has any order, so that decryption takes the whole of p - 1 and q - 1.
        return cls(Prime.whole(p), Prime.whole(q), base, tabled_noise=True)


def generate(bits: int, *, short_noise: bool = True) -> PrivateKey:
    """A fresh key whose n has exactly ``bits`` bits, from the system's generator.

    p ≡ q ≡ 3 mod 4 and gcd(p-1, q-1) = 2, as the noise asks for; without ``short_noise`` neither
    p-1 nor q-1 has an odd factor below 1000. Raises `ConfigError` for a length that is odd or below
    128.
    """
    if bits < _SMALLEST_BITS or bits % 2:
        raise ConfigError(
            f"key_bits: a Paillier key of {bits} bits cannot be made; take an even number from "
            f"{_SMALLEST_BITS}, and 2048 to be safe"
        )
    half = bits // 2
    while True:
        first, second = (
            draw_prime_around(half, order_bits(bits, half))
            if short_noise
            else Prime.whole(draw_prime(half))
            for _ in range(2)
        )
        p, q = first.p, second.p
        if p != q and gcd(p - 1, q - 1) == 2 and gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PrivateKey(first, second, _noise_base(first, second), short_noise)


def check_public(n: int, base: int, bits: int, smallest_bits: int, owner: str) -> PublicKey:
    """The public key of the party ``owner``; raises `Refused` like the checks of `scheme`."""
    modulus = scheme.check_modulus(n, smallest_bits, owner)
    return PublicKey(modulus, scheme.check_noise(base, bits, modulus * modulus, owner), bits)


def public_numbers(key: PublicKey) -> dict[str, Any]:
    """A ``key`` as it travels: named numbers, as uint8 arrays and an int."""
    return {
        "n": _to_bytes(key.n),
        "noise": _to_bytes(key.noise_base),
        "noise_bits": key.noise_bits,
    }


def public_of(numbers: Mapping[str, Any], smallest_bits: int, owner: str) -> PublicKey:
    """The key of `public_numbers`; Refused if it is malformed, invalid or too short."""
    try:
        n, noise = (int.from_bytes(numbers[name].tobytes(), "little") for name in ("n", "noise"))
        return check_public(n, noise, int(numbers["noise_bits"]), smallest_bits, owner)
    except (KeyError, AttributeError, TypeError, ValueError):
        raise Refused(f"{owner}: its public key is malformed") from None


def _to_bytes(number: mpz) -> NDArray[np.uint8]:
    return np.frombuffer(number.to_bytes(-(-number.bit_length() // 8), "little"), np.uint8)


def _noise_base(first: Prime, second: Prime) -> mpz:
    """A random square modulo n² whose order divides both primes' orders together."""
    root = _squares(first, second).join(first.draw_residue(), second.draw_residue())
    return root * root % (first.p * second.p) ** 2


def _squares(first: Prime, second: Prime) -> Crt:
    return Crt(first.p * first.p, second.p * second.p)
