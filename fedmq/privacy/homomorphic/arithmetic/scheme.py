"""What every additively homomorphic scheme offers, whatever its arithmetic.

Ciphertexts are units modulo a public number. The product of two decrypts to the sum of their
plaintexts, and a ciphertext of zero, the *noise*, is a random power of one base. A scheme is a
file that fills in the abstract methods; sums, packing and the wire form take its ciphertexts as
they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gmpy2 import f_divmod, gcd, is_prime, is_square, mpz, powmod_sec

from fedmq.errors import DataError, MessageError, Refused
from fedmq.privacy.homomorphic.arithmetic.noise import SeededBytes, public_noise
from fedmq.privacy.homomorphic.arithmetic.primes import Prime
from fedmq.privacy.homomorphic.vectors.machine_code import is_available
from fedmq.privacy.homomorphic.vectors.residues import residues_of

__all__ = [
    "MOST_BITS",
    "PrivateKey",
    "PublicKey",
    "check_modulus",
    "check_noise",
    "discrete_logarithms",
]


# Ciphertexts: eight places, of which some are empty, take less time than so many one by one.
_FEWEST_AT_ONCE = 3


@dataclass(frozen=True)
class PublicKey(ABC):
    """What everybody may know: enough to add ciphertexts and to hide what was added.

    ``noise_base`` is a ciphertext of zero that has fewer than 2^``noise_bits`` powers, and these
    are the noise.
    """

    n: mpz
    noise_base: mpz
    noise_bits: int

    adds_plaintexts: ClassVar[bool] = False
    """Whether `add` works: then several rows may share a ciphertext."""

    @property
    @abstractmethod
    def modulus(self) -> mpz:
        """Ciphertexts are units modulo this number."""

    @property
    @abstractmethod
    def plaintext_bits(self) -> int:
        """Plaintexts below 2^(this - 1) in absolute value decrypt to themselves."""

    @abstractmethod
    def draw_noise(self) -> mpz:
        """A ciphertext of zero as the scheme was first published, from a full power."""

    def add_plaintexts(self, ciphertexts: Sequence[mpz], plaintexts: Sequence[int]) -> list[mpz]:
        """The sums of ciphertexts and plaintexts, under the noise that was there.

        Raises `MessageError` unless `adds_plaintexts`.
        """
        raise MessageError("rows that share a ciphertext, under a scheme that cannot mask them")

    def rerandomise(
        self, ciphertexts: Sequence[mpz], random: SeededBytes | None = None
    ) -> list[mpz]:
        """The same plaintexts under fresh noise, hidden even from the key's owner.

        The new noise is uniform among the powers of the base up to 2^-64, so that the owner, who
        knows the noise of every row, cannot tell which rows were summed. ``random`` makes it again
        for whoever knows its seed.
        """
        modulus, count = self.modulus, len(ciphertexts)
        noise = public_noise(self.noise_base, modulus, self.noise_bits, count, random)
        return [c * r % modulus for c, r in zip(ciphertexts, noise, strict=True)]


class PrivateKey(ABC):
    """What one party alone knows: enough to decrypt, and to encrypt fast."""

    tabled_noise: bool
    """Whether noise comes from tables of powers of the public base."""

    @property
    @abstractmethod
    def public(self) -> PublicKey:
        """The half to show to others."""

    @abstractmethod
    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Ciphertexts *without noise*: they hide nothing, and may betray the key."""

    @abstractmethod
    def decrypt(self, ciphertexts: Sequence[mpz], *, vectors: bool = False) -> list[mpz]:
        """The plaintexts, signed, exact; with ``vectors`` eight at once, if the processor can.

        Ciphertexts must lie in (0, modulus), as `ciphertext_bytes.from_wire` makes sure of. Raises
        `MessageError` for one that cannot be a product of this key's ciphertexts and noise.
        """

    def draw_noise(self, count: int) -> list[mpz]:
        """``count`` fresh ciphertexts of zero, each to be used once.

        A key with ``tabled_noise`` takes them from tables (see `noise`), any other key as the
        scheme was first published, a hundred times slower.
        """
        if self.tabled_noise:
            return self._encrypt_from_tables([0] * count)
        return [self.public.draw_noise() for _ in range(count)]

    def encrypt(self, plaintexts: Sequence[int], noise: Sequence[mpz] = ()) -> list[mpz]:
        """One ciphertext for each integer, each under fresh noise.

        ``noise``: of `draw_noise`, made ahead for the first of them; nothing else may have used it.
        Raises `DataError` for a plaintext that would not decrypt to itself.
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
        ahead = len(noise)
        rest = plaintexts[ahead:]
        if self.tabled_noise:
            return self._under(plaintexts[:ahead], noise) + self._encrypt_from_tables(rest)
        return self._under(plaintexts, [*noise, *self.draw_noise(len(rest))])

    def _under(self, plaintexts: Sequence[int], noise: Sequence[mpz]) -> list[mpz]:
        modulus = self.public.modulus
        raw = self.raw_encrypt(plaintexts)
        return [c * r % modulus for c, r in zip(raw, noise, strict=True)]

    @abstractmethod
    def _encrypt_from_tables(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Ciphertexts under random powers of the noise base."""


def discrete_logarithms(
    ciphertexts: Sequence[mpz], prime: Prime, scale: mpz, vectors: bool
) -> Iterator[mpz]:
    """L(c^order mod p²) · scale mod p with L(1 + px) = x: what plaintexts are modulo the prime.

    The exponent is a secret, so the power takes the time of its length, not of its bits. Raises
    `MessageError` where noise is left.
    """
    p, square = prime.p, prime.p * prime.p
    for power in _powers(ciphertexts, prime.order, square, vectors):
        lifted, left = f_divmod(power, p)
        if left != 1:
            raise MessageError("a sum that was not made of this key's ciphertexts")
        yield lifted * scale % p


def _powers(
    ciphertexts: Sequence[mpz], exponent: mpz, modulus: mpz, vectors: bool
) -> Iterable[mpz]:
    if not (vectors and is_available() and len(ciphertexts) >= _FEWEST_AT_ONCE):
        return (powmod_sec(c, exponent, modulus) for c in ciphertexts)
    residues = residues_of(modulus)
    rows = residues.from_numbers([c % modulus for c in ciphertexts])
    return residues.to_numbers(residues.power(rows, exponent))


MOST_BITS = 16_384
"""Of a modulus: nobody needs more, and a test of one takes half a second."""


def check_modulus(n: int, smallest_bits: int, owner: str) -> mpz:
    """The n of the public key of the party ``owner``, if it can be one and is long enough.

    Raises `Refused` for an n that is not positive, even, a prime or a square (nothing is hidden
    under it, or nothing decrypts), or has fewer than ``smallest_bits`` bits or more than 16,384.
    """
    candidate = mpz(n)
    if candidate.bit_length() > MOST_BITS:  # to look at it would take hours
        raise Refused(
            f"{owner}: its public key has {candidate.bit_length()} bits, {MOST_BITS} is the most"
        )
    if candidate <= 0 or candidate.is_even() or is_prime(candidate) or is_square(candidate):
        raise Refused(f"{owner}: its public key is no product of odd primes; make a new key")
    if candidate.bit_length() < smallest_bits:
        raise Refused(
            f"{owner}: its public key has {candidate.bit_length()} bits, and {smallest_bits} is "
            "the least accepted here; make a longer key, or set allow_weak_keys for a trial"
        )
    return candidate


def check_noise(base: int, bits: int, modulus: mpz, owner: str) -> mpz:
    """The noise base of the public key of the party ``owner``, if it can be one.

    Raises `Refused` for one that is no unit, has no powers to speak of, or more powers than
    there are units.
    """
    candidate = mpz(base)
    if not 1 < candidate < modulus - 1 or gcd(candidate, modulus) != 1:
        raise Refused(f"{owner}: the noise of its public key hides nothing; make a new key")
    if not 0 < bits <= modulus.bit_length():
        raise Refused(f"{owner}: noise of {bits} bits does not fit its public key; make a new key")
    return candidate
