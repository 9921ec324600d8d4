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

from collections.abc import Sequence
from dataclasses import dataclass, field

from gmpy2 import gcd, invert, mpz, powmod
from phe import paillier as phe

from fedmq.errors import ConfigError
from fedmq.privacy.homomorphic.arithmetic import scheme
from fedmq.privacy.homomorphic.arithmetic.crt import Crt
from fedmq.privacy.homomorphic.arithmetic.noise import draw_exponents, order_bits
from fedmq.privacy.homomorphic.arithmetic.prime_square import hidden_residues
from fedmq.privacy.homomorphic.arithmetic.primes import (
    Prime,
    draw_prime,
    draw_prime_around,
    draw_unit,
)

__all__ = ["PrivateKey", "PublicKey", "check_public", "generate"]

# Below this nothing is left to protect, not even in a test.
_SMALLEST_BITS = 128


class PublicKey(scheme.PublicKey):
    """The modulus n, and the noise."""

    @property
    def modulus(self) -> mpz:
        """n²."""
        return self.n * self.n

    @property
    def plaintext_bits(self) -> int:
        """One bit less than n has, so that the sign is told by the half of [0, n)."""
        return int(self.n.bit_length()) - 1

    def draw_noise(self) -> mpz:
        """x^2n mod n² for a random unit x."""
        return powmod(draw_unit(self.n), 2 * self.n, self.modulus)

    def to_phe(self) -> phe.PaillierPublicKey:
        """The same key for python-paillier."""
        return phe.PaillierPublicKey(int(self.n))


@dataclass(frozen=True)
class PrivateKey(scheme.PrivateKey):
    """The primes of n with the orders of the noise, and the noise's base."""

    first: Prime = field(repr=False)
    second: Prime = field(repr=False)
    noise_base: mpz = field(repr=False)
    short_noise: bool = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """n = pq."""
        bits = self.first.order.bit_length() + self.second.order.bit_length()
        return PublicKey(self.first.p * self.second.p, self.noise_base, bits)

    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """1 + mn mod n²: *no noise*, anybody reads m."""
        n, modulus = self.public.n, self.public.modulus
        return [(m * n + 1) % modulus for m in plaintexts]

    def _encrypt_short(self, plaintexts: Sequence[int]) -> list[mpz]:
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

    def decrypt(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Plaintexts in (-n/2, n/2): m = L(c^a mod p²) / L((1 + n)^a mod p²) mod p, and so mod q.

        a is the order of the noise modulo p².
        """
        p, q = self.first.p, self.second.p
        n, half, halves = p * q, p * q // 2, Crt(p, q)
        # L((1 + n)^a) = aq mod p, so its inverse needs no power.
        residues = zip(
            scheme.discrete_logarithms(ciphertexts, self.first, invert(self.first.order * q, p)),
            scheme.discrete_logarithms(ciphertexts, self.second, invert(self.second.order * p, q)),
            strict=True,
        )
        plaintexts = (halves.join(*residue) for residue in residues)
        return [m - n if m > half else m for m in plaintexts]

    def to_phe(self) -> phe.PaillierPrivateKey:
        """The same key for python-paillier, which decrypts what this one encrypted."""
        return phe.PaillierPrivateKey(self.public.to_phe(), int(self.first.p), int(self.second.p))

    @classmethod
    def from_phe(cls, key: phe.PaillierPrivateKey) -> PrivateKey:
        """A key of python-paillier, to decrypt what was encrypted under it."""
        return _with_noise(Prime.whole(mpz(key.p)), Prime.whole(mpz(key.q)), short_noise=False)


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
            return _with_noise(first, second, short_noise=short_noise)


def check_public(n: int, base: int, bits: int, smallest_bits: int, owner: str) -> PublicKey:
    """The public key of the party ``owner``; raises `Refused` like the checks of `scheme`."""
    modulus = scheme.check_modulus(n, smallest_bits, owner)
    return PublicKey(modulus, scheme.check_noise(base, bits, modulus * modulus, owner), bits)


def _with_noise(first: Prime, second: Prime, *, short_noise: bool) -> PrivateKey:
    root = _squares(first, second).join(first.draw_residue(), second.draw_residue())
    return PrivateKey(first, second, root * root % (first.p * second.p) ** 2, short_noise)


def _squares(first: Prime, second: Prime) -> Crt:
    return Crt(first.p * first.p, second.p * second.p)
