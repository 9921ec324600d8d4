"""The scheme of Okamoto and Uchiyama, n = p²q: a third of the plaintext, about thrice the speed.

T. Okamoto, S. Uchiyama, "A new public-key cryptosystem as secure as factoring", EUROCRYPT 1998. A
ciphertext is g^m h^r mod n with g = 1 + tp modulo p² up to (p-1)-th roots of unity, and h an n-th
power. Since only the owner encrypts, g and h stay at home: the owner computes the ciphertext modulo
p², and modulo q, where nothing is said, draws it at random: so it would be for r of full length,
and so it may be for a short one. All noise is square, so that no quadratic character, of which q's
is public (the Jacobi symbol modulo n), tells anything.

Never show a decryption to whoever made the ciphertext: of a plaintext beyond p it tells p.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from gmpy2 import gcd, invert, mpz, powmod, powmod_sec, unpack

from fedmq.errors import ConfigError
from fedmq.privacy.arithmetic import scheme
from fedmq.privacy.arithmetic.crt import Crt
from fedmq.privacy.arithmetic.lifted import hidden_residues
from fedmq.privacy.arithmetic.noise import OWNER_WINDOW
from fedmq.privacy.arithmetic.primes import draw_prime, draw_unit

__all__ = ["PrivateKey", "PublicKey", "check_public", "generate"]

# Below this nothing is left to protect, not even in a test.
_SMALLEST_BITS = 192


@dataclass(frozen=True)
class PublicKey(scheme.PublicKey):
    """The modulus n; it is all that travels."""

    n: mpz

    @property
    def modulus(self) -> mpz:
        """n."""
        return self.n

    @property
    def plaintext_bits(self) -> int:
        """One bit less than p has, so that the sign is told by the half of [0, p)."""
        return _prime_bits(self.n.bit_length()) - 1

    @property
    def noise_order_bits(self) -> int:
        """Powers of h are the square n-th residues modulo n, (p-1)(q-1)/4 at most."""
        return int(self.n.bit_length()) - _prime_bits(self.n.bit_length())

    def draw_noise_base(self) -> mpz:
        """h = x^2n mod n for a random unit x of one's own."""
        return powmod(draw_unit(self.n), 2 * self.n, self.n)


@dataclass(frozen=True)
class PrivateKey(scheme.PrivateKey):
    """The primes of n, the t of g = 1 + tp, and the base of the owner's noise."""

    p: mpz = field(repr=False)
    q: mpz = field(repr=False)
    t: mpz = field(repr=False)
    noise_base: mpz = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """n = p²q."""
        return PublicKey(self.p * self.p * self.q)

    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """1 + tpm modulo p² and 1 modulo q: *no noise*, and q divides it less 1: it betrays q."""
        p, t, moduli = self.p, self.t, Crt(self.p * self.p, self.q)
        one = mpz(1)
        return [moduli.join(m * t % p * p + 1, one) for m in plaintexts]

    def _encrypt_under(
        self, plaintexts: Sequence[int], digits: Sequence[Sequence[int]]
    ) -> list[mpz]:
        said = hidden_residues(
            plaintexts,
            digits,
            base=self.noise_base,
            prime=self.p,
            slope=self.t,
            window=OWNER_WINDOW,
        )
        moduli = Crt(self.p * self.p, self.q)
        unsaid = _random_squares(self.q, len(said))
        return [moduli.join(*residues) for residues in zip(said, unsaid, strict=True)]

    def decrypt(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Plaintexts in (-p/2, p/2): m = L(c^(p-1) mod p²) / L(g^(p-1) mod p²).

        The exponent is the key, so the power takes the time of its length, not of its bits.
        """
        p, half, p_square = self.p, self.p // 2, self.p * self.p
        # L((1 + tp)^(p-1)) = (p-1)t = -t mod p.
        scale = invert(-self.t, p)
        plaintexts = []
        for c in ciphertexts:
            m = (powmod_sec(c, p - 1, p_square) - 1) // p * scale % p
            plaintexts.append(m - p if m > half else m)
        return plaintexts


def generate(bits: int) -> PrivateKey:
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
        p, q = draw_prime(p_bits), draw_prime(bits - 2 * p_bits)
        n = p * p * q
        if n.bit_length() == bits and gcd(p - 1, q - 1) == 2 and gcd(n, (p - 1) * (q - 1)) == 1:
            return PrivateKey(p, q, draw_unit(p), PublicKey(n).draw_noise_base())


def check_public(n: int, smallest_bits: int, owner: str) -> PublicKey:
    """The public key of the party ``owner``; raises `Refused` like `scheme.check_modulus`."""
    return PublicKey(scheme.check_modulus(n, smallest_bits, owner))


def _random_squares(q: mpz, count: int) -> list[mpz]:
    """Squares modulo q, 2^-64 from uniform, from the system's generator."""
    width = q.bit_length() // 8 + 9
    drawn = unpack(mpz.from_bytes(secrets.token_bytes(count * width), "little"), 8 * width)
    return [x * x % q for x in drawn] + [mpz(1)] * (count - len(drawn))


def _prime_bits(n_bits: int) -> int:
    """Length of p, which everybody has to know: a third of n, rounded up."""
    return -(-int(n_bits) // 3)
