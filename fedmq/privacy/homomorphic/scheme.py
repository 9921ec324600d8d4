"""The interface of additively homomorphic schemes, and the parts of their keys and noise.

Ciphertexts are units modulo a public number. First come the primes of keys, residues modulo two of
them, random powers of one base as noise, and encryption modulo the square of a secret prime.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gmpy2 import f_divmod, gcd, invert, is_prime, is_square, mpz, powmod, powmod_sec, primorial

from fedmq.errors import DataError, MessageError, Refused
from fedmq.privacy.homomorphic import MOST_KEY_BITS
from fedmq.privacy.homomorphic.instructions import is_available
from fedmq.privacy.homomorphic.residues import residues_of

__all__ = [
    "PRIMALITY_ROUNDS",
    "AddedByPowers",
    "Crt",
    "Prime",
    "PrivateKey",
    "PublicKey",
    "SeededBytes",
    "check_modulus",
    "check_noise",
    "discrete_logarithms",
    "draw_exponents",
    "draw_prime",
    "draw_prime_around",
    "draw_unit",
    "exponent_bytes",
    "has_table",
    "hidden_residues",
    "order_bits",
    "powers",
    "powers_of",
    "public_noise",
    "rough_part",
]

# (p-1)/2 shares no factor with this number, so that noise has no part in a small subgroup. Such a
# part would distinguish ciphertexts, and the powers of one base often cannot cover it.
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


@dataclass(frozen=True)
class Crt:
    """The Chinese remainder theorem for two coprime moduli, which are secret here."""

    first: mpz = field(repr=False)
    second: mpz = field(repr=False)

    def join(self, residue: mpz, other: mpz) -> mpz:
        """The number in [0, first·second) that is ``residue`` mod first and ``other`` mod second.

        Garner's formula; both residues are taken as reduced.
        """
        first, second = self.first, self.second
        return residue + first * ((other - residue) * _inverse(first, second) % second)


@lru_cache(maxsize=8)
def _inverse(first: mpz, second: mpz) -> mpz:
    return invert(first, second)


# Noise: random powers of one base, from tables of its powers.
#
# A table holds base^(d·256^i) for every byte d and every place i, so that a power costs one product
# per byte of its exponent and no squaring (Brickell, Gordon, McCurley, Wilson, "Fast exponentiation
# with precomputation", EUROCRYPT 1992). Exponents are bytes, the lowest first.


# Exponents exceed the order of the noise by so many bits before they are reduced by it, or where it
# is not known: they are 2^-64 from uniform.
_STATISTICAL_BITS = 64

# Bytes of a table. Another party's key decides its length: beyond this limit there is no table, as
# for keys above 4096 bits whose noise is as long as the key.
_MOST_TABLE = 160_000_000


@dataclass(frozen=True, slots=True)
class SeededBytes:
    """Random bytes that the ``seed`` (32 bytes) reproduces.

    SHAKE-256 (FIPS 202) of seed, number and purpose: indistinguishable from random without the
    seed. ``first`` is the number of the first ciphertext at hand. A fresh seed unless one is given.
    """

    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    first: int = 0

    def draw(self, purpose: bytes, index: int, size: int) -> bytes:
        """``size`` bytes for ciphertext ``index`` of those at hand."""
        number = (self.first + index).to_bytes(8, "big")
        return hashlib.shake_256(self.seed + number + purpose).digest(size)


def order_bits(key_bits: int, prime_bits: int) -> int:
    """The bits of the order of the noise modulo a secret prime of an n of ``key_bits``.

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
    """Whether a table of ``places`` places fits the memory limit."""
    return bool(places * 256 * -(-modulus.bit_length() // 8) <= _MOST_TABLE)


def public_noise(
    base: mpz, modulus: mpz, base_order_bits: int, count: int, random: SeededBytes | None = None
) -> list[mpz]:
    """``count`` random powers of ``base``, from the modulus alone.

    They are uniform among its powers up to 2^-64 if it has fewer than 2^``base_order_bits``.
    """
    random = random or SeededBytes()
    size = exponent_bytes(base_order_bits)
    drawn = [random.draw(b"noise", index, size) for index in range(count)]
    return powers(base, modulus, drawn, size)


def powers(base: mpz, modulus: mpz, exponents: Sequence[bytes], size: int) -> list[mpz]:
    """``base`` to the power of each of the ``exponents``, ``size`` bytes, the lowest first."""
    if not has_table(modulus, size):
        return [powmod(base, mpz.from_bytes(digits, "little"), modulus) for digits in exponents]
    table = _table(base, modulus, size)
    return [_power(table, digits, modulus) for digits in exponents]


def _power(table: tuple[list[mpz], ...], exponent: bytes, modulus: mpz) -> mpz:
    product = table[0][exponent[0]]
    for place, digit in zip(table[1:], exponent[1:], strict=True):
        product = product * place[digit] % modulus
    return product


# The tables of noise and of plaintexts.
@lru_cache(maxsize=4)
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


# Encryption modulo the square of a secret prime, at half the price of its products.
#
# Every unit modulo p² is y·(1 + ps) with y < p, and factors of the second kind multiply by adding
# their s. So a power from a table (see `powers_of`) is a product of numbers *half* as long as p²,
# and a sum: ∏ y_i(1 + ps_i) = ∏ y_i · (1 + p∑s_i). The plaintext, which is such an s, is added for
# nothing.


def hidden_residues(
    plaintexts: Sequence[int],
    exponents: Sequence[bytes],
    *,
    base: mpz,
    prime: mpz,
    slope: mpz,
) -> list[mpz]:
    """(1 + slope·prime)^m · base^a modulo prime², for each m of ``plaintexts``.

    The ``exponents`` a are bytes of one length, the lowest first.
    """
    square = prime * prime
    units, logarithms = _powers_modulo_square(
        base % square, prime, len(exponents[0]) if exponents else 0
    )
    residues = []
    for m, exponent in zip(plaintexts, exponents, strict=True):
        logarithm = m * slope
        product = mpz(1)
        for place_units, place_logarithms, digit in zip(units, logarithms, exponent, strict=True):
            product = product * place_units[digit] % square
            logarithm += place_logarithms[digit]
        residues.append(product * (logarithm % prime * prime + 1) % square)
    return residues


# Four tables serve two keys of two primes each.
@lru_cache(maxsize=4)
def _powers_modulo_square(
    base: mpz, prime: mpz, places: int
) -> tuple[tuple[list[mpz], ...], tuple[list[mpz], ...]]:
    """The y and the s of the powers base^(d·256^i) for each place i and byte d."""
    square = prime * prime
    units, logarithms = [], []
    for row in powers_of(base, square, places):
        below = [power % prime for power in row]
        units.append(below)
        inverses = _inverses(below, prime)
        logarithms.append(
            [
                (power // prime) * inverse % prime
                for power, inverse in zip(row, inverses, strict=True)
            ]
        )
    return tuple(units), tuple(logarithms)


def _inverses(units: Sequence[mpz], prime: mpz) -> list[mpz]:
    """One modular inverse for all: Montgomery's trick, Math. Comp. 48 (1987)."""
    prefixes = [mpz(1)]
    for unit in units:
        prefixes.append(prefixes[-1] * unit % prime)
    inverse = invert(prefixes[-1], prime)
    inverses = []
    for prefix, unit in zip(reversed(prefixes[:-1]), reversed(units), strict=True):
        inverses.append(inverse * prefix % prime)
        inverse = inverse * unit % prime
    return inverses[::-1]


# The interface of every additively homomorphic scheme, whatever its arithmetic.
#
# Ciphertexts are units modulo a public number. The product of two decrypts to the sum of their
# plaintexts, and a ciphertext of zero, the *noise*, is a random power of one base. A scheme is a
# file that fills in the abstract methods; sums, packing and the wire form take its ciphertexts as
# they are.


# Ciphertexts: eight places, of which some are empty, take less time than so many one by one.
_FEWEST_AT_ONCE = 3


class AddedByPowers(NamedTuple):
    """A plaintext is added by ``back`` and a power of ``base``.

    ``exponents``: of ``size`` bytes each, the lowest first.
    """

    base: mpz
    exponents: Sequence[bytes]
    size: int
    back: mpz


@dataclass(frozen=True)
class PublicKey(ABC):
    """The public half of a key: enough to add ciphertexts and to hide their origin.

    ``noise_base`` is a ciphertext of zero that has fewer than 2^``noise_bits`` powers, and these
    are the noise.
    """

    n: mpz
    noise_base: mpz
    noise_bits: int

    @property
    def adds_plaintexts(self) -> bool:
        """Whether `add_plaintexts` works: masks need it."""
        return False

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
        """The sums of ciphertexts and plaintexts, under the same noise.

        Raises `MessageError` unless `adds_plaintexts`.
        """
        raise MessageError("masks, under a scheme that adds no plaintexts")

    def added_by_powers(self, plaintexts: Sequence[int]) -> AddedByPowers | None:
        """The powers by which ``plaintexts`` are added; None if they are added without."""
        return None

    def rerandomise(
        self, ciphertexts: Sequence[mpz], random: SeededBytes | None = None
    ) -> list[mpz]:
        """The same plaintexts under fresh noise, hidden even from the key's owner.

        The new noise is uniform among the powers of the base up to 2^-64, so that the owner, who
        knows the noise of every row, cannot tell which rows were summed. The seed of ``random``
        reproduces the noise.
        """
        modulus, count = self.modulus, len(ciphertexts)
        noise = public_noise(self.noise_base, modulus, self.noise_bits, count, random)
        return [c * r % modulus for c, r in zip(ciphertexts, noise, strict=True)]


class PrivateKey(ABC):
    """The secret half of a key: enough to decrypt, and to encrypt fast."""

    tabled_noise: bool
    """Whether noise comes from tables of powers of the public base."""

    @property
    @abstractmethod
    def public(self) -> PublicKey:
        """The public half."""

    @abstractmethod
    def raw_encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Ciphertexts *without noise*: they hide nothing, and may betray the key."""

    @abstractmethod
    def decrypt(self, ciphertexts: Sequence[mpz], *, vectors: bool = False) -> list[mpz]:
        """The plaintexts, signed, exact; with ``vectors`` eight at once, if the processor can.

        Ciphertexts must lie in (0, modulus), as `residues.from_wire` makes sure of. Raises
        `MessageError` for one that cannot be a product of this key's ciphertexts and noise.
        """

    def draw_noise(self, count: int) -> list[mpz]:
        """``count`` fresh ciphertexts of zero, each to be used once.

        A key with ``tabled_noise`` takes them from tables (see `powers_of`), any other key as the
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


def check_modulus(n: int, smallest_bits: int, owner: str) -> mpz:
    """The n of the public key of the party ``owner``, if it can be one and is long enough.

    Raises `Refused` for an n that is not positive, even, a prime or a square (nothing is hidden
    under it, or nothing decrypts), or has fewer than ``smallest_bits`` bits or more than 16,384.
    """
    candidate = mpz(n)
    if candidate.bit_length() > MOST_KEY_BITS:  # the checks would take hours
        raise Refused(
            f"{owner}: its public key has {candidate.bit_length()} bits, "
            f"{MOST_KEY_BITS} is the most"
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
