"""What every additively homomorphic scheme offers, whatever its arithmetic.

Ciphertexts are units modulo a public number. The product of two decrypts to the sum of their
plaintexts, and a ciphertext of zero, the *noise*, is a random power of one base. A scheme is a
file that fills in the abstract methods; sums, packing and the wire form take its ciphertexts as
they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gmpy2 import is_prime, is_square, mpz

from fedmq.errors import DataError, Refused
from fedmq.privacy.arithmetic.noise import owner_digits, public_noise

__all__ = ["PrivateKey", "PublicKey", "check_modulus"]


class PublicKey(ABC):
    """What everybody may know: enough to add ciphertexts and to hide what was added."""

    n: mpz

    @property
    @abstractmethod
    def modulus(self) -> mpz:
        """Ciphertexts are units modulo this number."""

    @property
    @abstractmethod
    def plaintext_bits(self) -> int:
        """Plaintexts below 2^(this - 1) in absolute value decrypt to themselves."""

    @property
    @abstractmethod
    def noise_order_bits(self) -> int:
        """There are fewer than 2^this different powers of a noise base."""

    @abstractmethod
    def draw_noise_base(self) -> mpz:
        """A fresh random ciphertext of zero; keep it for a session, its powers are the noise."""

    def rerandomise(self, ciphertexts: Sequence[mpz], base: mpz) -> list[mpz]:
        """The same plaintexts under fresh noise, hidden even from the key's owner.

        ``base`` is one's own, from `draw_noise_base`. The new noise is uniform among its powers up
        to 2^-64, so that the owner, who knows the noise of every row, cannot tell which rows were
        summed.
        """
        modulus = self.modulus
        noise = public_noise(base, modulus, self.noise_order_bits, len(ciphertexts))
        return [c * r % modulus for c, r in zip(ciphertexts, noise, strict=True)]


class PrivateKey(ABC):
    """What one party alone knows: enough to decrypt, and to encrypt fast."""

    noise_base: mpz

    @property
    @abstractmethod
    def public(self) -> PublicKey:
        """The half to show to others."""

    @abstractmethod
    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Ciphertexts *without noise*: they hide nothing, and may betray the key."""

    @abstractmethod
    def decrypt(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """The plaintexts, signed, exact.

        Ciphertexts must lie in (0, modulus), as `wire.from_wire` makes sure of.
        """

    def encrypt(self, plaintexts: Sequence[int], *, short_noise: bool = True) -> list[mpz]:
        """One ciphertext for each integer, each under fresh noise.

        ``short_noise``: from tables (see `noise`); otherwise as the scheme was first published, a
        hundred times slower. Raises `DataError` for a plaintext that would not decrypt to itself.
        """
        public = self.public
        bound = 1 << (public.plaintext_bits - 1)
        for row, plaintext in enumerate(plaintexts):
            if not -bound < plaintext < bound:
                raise DataError(
                    f"row {row}: a number of {int(plaintext).bit_length()} bits does not fit the "
                    f"key; use fewer fraction bits, or a key of more than {public.n.bit_length()} "
                    "bits"
                )
        if not short_noise:
            modulus = public.modulus
            raw = self.raw_encrypt(plaintexts)
            return [c * public.draw_noise_base() % modulus for c in raw]
        return self._encrypt_under(plaintexts, owner_digits(len(plaintexts)))

    @abstractmethod
    def _encrypt_under(
        self, plaintexts: Sequence[int], digits: Sequence[Sequence[int]]
    ) -> list[mpz]:
        """Ciphertexts under the noise that random exponents, given by their digits, make."""


def check_modulus(n: int, smallest_bits: int, owner: str) -> mpz:
    """The n of the public key of the party ``owner``, if it can be one and is long enough.

    Raises `Refused` for an n that is not positive, even, a prime or a square (nothing is hidden
    under it, or nothing decrypts), or has fewer than ``smallest_bits`` bits.
    """
    candidate = mpz(n)
    if candidate <= 0 or candidate.is_even() or is_prime(candidate) or is_square(candidate):
        raise Refused(f"{owner}: its public key is no product of odd primes; make a new key")
    if candidate.bit_length() < smallest_bits:
        raise Refused(
            f"{owner}: its public key has {candidate.bit_length()} bits, and {smallest_bits} is "
            "the least accepted here; make a longer key, or set allow_weak_keys for a trial"
        )
    return candidate
