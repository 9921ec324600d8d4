"""How does a party add people's numbers by group without reading them?

One ciphertext for each person holds in slots side by side: is the label 1, is the person selected,
both at once, and the score in fixed point. Their product by group decrypts to the sums. Bits above
the slots are masked before a sum leaves: ciphertexts of other contents disclose at most
:func:`sum_bits` bits of a group.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz, powmod
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.paillier import PrivateKey, PublicKey, generate
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.privacy.homomorphic.scheme import Prime, draw_unit

__all__ = [
    "GroupFigures",
    "add_by_group",
    "decrypt_group_sums",
    "decrypting",
    "encrypt_people",
    "make_group_key",
    "sum_bits",
]

SCORE_BITS = 16
"""Bits of a score's fraction: a mean is exact to 2^-17."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The counts of one group (label 1, selected, both), and the sum of its scores."""

    ones: int
    selected: int
    selected_ones: int
    score: float


@computation("MakeGroupKey")
def make_group_key(bits: int) -> PrivateKey:
    """A key of ``bits`` bits for one question."""
    return generate(bits)


@computation("EncryptPeople")
def encrypt_people(
    key: PrivateKey,
    ones: NDArray[np.bool_],
    selected: NDArray[np.bool_],
    score: NDArray[np.float64],
) -> NDArray[np.uint8]:
    """One ciphertext a person, as wire bytes: uint8 (people, bytes).

    ``ones`` and ``selected`` bool (people,), ``score`` float64 (people,) in [0, 1].
    """
    slot = len(ones).bit_length()
    fixed = np.rint(score * 2**SCORE_BITS).astype(np.int64)
    plaintexts = [
        (((whole << slot | int(one and chosen)) << slot | int(chosen)) << slot) | int(one)
        for one, chosen, whole in zip(ones.tolist(), selected.tolist(), fixed.tolist(), strict=True)
    ]
    return to_wire(key.encrypt(plaintexts), key.public.modulus)


@computation("DecryptGroupSums")
def decrypt_group_sums(
    key: PrivateKey, ciphertexts: NDArray[np.uint8], people: int
) -> tuple[GroupFigures, ...]:
    """The figures by group, from the sums over groups of ``people`` people: uint8 (groups, bytes).

    Raises MessageError if ciphertexts do not fit the key.
    """
    public, slot = key.public, people.bit_length()
    sums = decrypting(key).decrypt(from_wire(ciphertexts, public.modulus))
    found = []
    for masked in sums:
        joined = int(masked % public.n) % (1 << sum_bits(people))
        ones, selected, both = (joined >> place * slot & (1 << slot) - 1 for place in range(3))
        score = (joined >> 3 * slot) / 2**SCORE_BITS
        found.append(GroupFigures(ones, selected, both, score))
    return tuple(found)


def decrypting(key: PrivateKey) -> PrivateKey:
    """The same key for noise of any order, as sums by group have it."""
    primes = Prime.whole(key.first.p), Prime.whole(key.second.p)
    return PrivateKey(*primes, key.noise_base, key.tabled_noise)


def sum_bits(people: int) -> int:
    """Bits of the sums of a group of at most ``people`` people."""
    return 4 * people.bit_length() + SCORE_BITS


def add_by_group(
    public: PublicKey, ciphertexts: NDArray[np.uint8], group_of: NDArray[np.integer]
) -> NDArray[np.uint8]:
    """Sums by group, masked above their bits and under fresh noise: uint8 (groups, bytes).

    ``ciphertexts`` uint8 (people, bytes), ``group_of`` (people,) from 0 on.

    Raises:
        MessageError: the ciphertexts are not one per person under this key, or the key is too
            short.
    """
    numbers, modulus = from_wire(ciphertexts, public.modulus), public.modulus
    if len(numbers) != len(group_of):
        raise MessageError("one ciphertext for each person is needed")
    sums = [mpz(1)] * (int(group_of.max()) + 1)
    for group, number in zip(group_of.tolist(), numbers, strict=True):
        sums[group] = sums[group] * number % modulus
    return to_wire(_masked_sums(public, sums, sum_bits(len(numbers))), modulus)


def _masked_sums(public: PublicKey, sums: Sequence[mpz], bits: int) -> list[mpz]:
    """Encrypted ``sums``, masked above their ``bits`` and under fresh noise.

    Raises:
        MessageError: the key is too short.
    """
    masks, modulus = int(public.n >> bits), public.modulus
    if masks < 2**40:
        raise MessageError("the key is too short for sums of so many people")
    # The mask fills the key above the bits, so that the decryption is uniform there.
    masked = public.add_plaintexts(sums, [secrets.randbelow(masks) << bits for _ in sums])
    # Full noise: the key owner could craft its short noise to show which people were added.
    noise = [powmod(draw_unit(public.n), public.n, modulus) for _ in sums]
    return [c * r % modulus for c, r in zip(masked, noise, strict=True)]
