"""The scheme of Paillier, with the noise of Damgård, Jurik and Nielsen.

- P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes",
  EUROCRYPT 1999: c = (1 + n)^m r^n mod n², decrypted by the Chinese remainder theorem.
- I. Damgård, M. Jurik, J. B. Nielsen, "A generalization of Paillier's public-key system with
  applications to electronic voting", Int. J. Inf. Secur. 9 (2010): for p ≡ q ≡ 3
  mod 4 with gcd(p-1, q-1) = 2 and a random unit x, the noise r^n is a random power of
  h_s = (-x²)^n mod n².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gmpy2 import gcd, invert, mpz, powmod, powmod_sec
from phe import paillier as phe

from fedmq.errors import ConfigError
from fedmq.privacy.arithmetic import scheme
from fedmq.privacy.arithmetic.crt import Crt
from fedmq.privacy.arithmetic.lifted import hidden_residues
from fedmq.privacy.arithmetic.noise import OWNER_WINDOW
from fedmq.privacy.arithmetic.primes import draw_prime, draw_unit

__all__ = ["PrivateKey", "PublicKey", "check_public", "generate"]

# Below this nothing is left to protect, not even in a test.
_SMALLEST_BITS = 128


@dataclass(frozen=True)
class PublicKey(scheme.PublicKey):
    """The modulus n; it is all that travels."""

    n: mpz

    @property
    def modulus(self) -> mpz:
        """n²."""
        return self.n * self.n

    @property
    def plaintext_bits(self) -> int:
        """One bit less than n has, so that the sign is told by the half of [0, n)."""
        return int(self.n.bit_length()) - 1

    @property
    def noise_order_bits(self) -> int:
        """Powers of h_s are the n-th residues modulo n², (p-1)(q-1)/2 at most."""
        return int(self.n.bit_length())

    def draw_noise_base(self) -> mpz:
        """h_s = (-x²)^n mod n² for a random unit x of one's own."""
        x = draw_unit(self.n)
        return powmod(-x * x, self.n, self.modulus)

    def to_phe(self) -> phe.PaillierPublicKey:
        """The same key for python-paillier."""
        return phe.PaillierPublicKey(int(self.n))


@dataclass(frozen=True)
class PrivateKey(scheme.PrivateKey):
    """The primes of n, and the base of the owner's noise."""

    p: mpz = field(repr=False)
    q: mpz = field(repr=False)
    noise_base: mpz = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """n = pq."""
        return PublicKey(self.p * self.q)

    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """1 + mn mod n²: *no noise*, anybody reads m."""
        n, modulus = self.public.n, self.public.modulus
        return [(m * n + 1) % modulus for m in plaintexts]

    def _encrypt_under(
        self, plaintexts: Sequence[int], digits: Sequence[Sequence[int]]
    ) -> list[mpz]:
        # (1 + n)^m is (1 + qp)^m modulo p², and (1 + pq)^m modulo q².
        first, second = (
            hidden_residues(
                plaintexts,
                digits,
                base=self.noise_base,
                prime=prime,
                slope=other,
                window=OWNER_WINDOW,
            )
            for prime, other in ((self.p, self.q), (self.q, self.p))
        )
        squares = Crt(self.p * self.p, self.q * self.q)
        return [squares.join(*residues) for residues in zip(first, second, strict=True)]

    def decrypt(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Plaintexts in (-n/2, n/2): m = L(c^(p-1) mod p²) / L(g^(p-1) mod p²) mod p, and so mod q.

        The exponents are the key, so the powers take the time of their length, not of their bits.
        """
        p, q = self.p, self.q
        n, half, halves = p * q, p * q // 2, Crt(p, q)
        p_square, q_square = p * p, q * q
        # L((1 + n)^(p-1)) = (p-1)q = -q mod p, so its inverse needs no power.
        p_scale, q_scale = invert(-q, p), invert(-p, q)
        plaintexts = []
        for c in ciphertexts:
            modulo_p = (powmod_sec(c, p - 1, p_square) - 1) // p * p_scale % p
            modulo_q = (powmod_sec(c, q - 1, q_square) - 1) // q * q_scale % q
            m = halves.join(modulo_p, modulo_q)
            plaintexts.append(m - n if m > half else m)
        return plaintexts

    def to_phe(self) -> phe.PaillierPrivateKey:
        """The same key for python-paillier, which decrypts what this one encrypted."""
        return phe.PaillierPrivateKey(self.public.to_phe(), int(self.p), int(self.q))

    @classmethod
    def from_phe(cls, key: phe.PaillierPrivateKey) -> PrivateKey:
        """A key of python-paillier, to decrypt what was encrypted under it.

        Its primes are any primes, so make keys to encrypt with by `generate`.
        """
        p, q = mpz(key.p), mpz(key.q)
        return cls(p, q, PublicKey(p * q).draw_noise_base())


def generate(bits: int) -> PrivateKey:
    """A fresh key whose n has exactly ``bits`` bits, from the system's generator.

    p ≡ q ≡ 3 mod 4 and gcd(p-1, q-1) = 2, as the noise asks for, and neither p-1 nor q-1 has an odd
    factor below 1000. Raises `ConfigError` for a length that is odd or below 128.
    """
    if bits < _SMALLEST_BITS or bits % 2:
        raise ConfigError(
            f"key_bits: a Paillier key of {bits} bits cannot be made; take an even number from "
            f"{_SMALLEST_BITS}, and 2048 to be safe"
        )
    while True:
        p, q = draw_prime(bits // 2), draw_prime(bits // 2)
        if p != q and gcd(p - 1, q - 1) == 2 and gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PrivateKey(p, q, PublicKey(p * q).draw_noise_base())


def check_public(n: int, smallest_bits: int, owner: str) -> PublicKey:
    """The public key of the party ``owner``; raises `Refused` like `scheme.check_modulus`."""
    return PublicKey(scheme.check_modulus(n, smallest_bits, owner))
