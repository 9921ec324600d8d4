"""How is a sum over slots encrypted, multiplied by what a passive party knows, and read?

Ring learning with errors (Lyubashevsky, Peikert and Regev, 2010), with plaintexts as Brakerski
(CRYPTO 2012) and Fan and Vercauteren (2012) scale them: ``c0 = e - a·s + round(q/t · m)`` with a
secret s, an error e, and an a that follows from a seed. A passive party multiplies both by the
plaintext b of its zeros and ones, so that slots become products:

    c1' = a·b + a'·u + e''          c0' = c0·b + p·u + R + round(q/t · d)

(a', p) is a public key, u and e'' are the passive party's own. c1' is another sample of learning
with errors, of secret u: it looks random, whatever a and b are, for a' follows from a seed. R is
uniform modulo q. So nothing is left of the product and of its errors but what the party that
knows R takes out again:

- Of the last passive party only the coefficients travel whose transform are the sums of blocks of
  slots. With d it makes R's part in the sum over the blocks of each row and output zero. An answer
  is uniform but for one number modulo t a row and output, whatever was asked.
- A passive party before it sends all coefficients. The next one makes R again from a seed of theirs
  that the active party does not have, and takes it out by its own d.

Errors reach a plaintext where R stands next to the border of one, once in 2^36. The active party
sees where that may be; what it reads is exact, but for a chance of 2^-64 a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, isqrt, log
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Inexact, MessageError
from fedmq.privacy.lattice.parameters import ERROR_BITS
from fedmq.privacy.lattice.ring import (
    Transform,
    draw_errors,
    draw_secret,
    draw_ternary,
    transformed,
)
from fedmq.privacy.random_stream import SEED_BYTES, Stream
from fedmq.privacy.sealed_scores.modulus import (
    Limbs,
    decrypted,
    factor_transforms,
    from_slots,
    packed,
    product,
    reduced,
    rounded,
    scaled,
    ternary_product,
    to_slots,
    transforms_of,
    uniform,
)
from fedmq.privacy.sealed_scores.packing import Packing
from fedmq.privacy.sealed_scores.parameters import (
    BLOCK_SLOTS,
    BLOCKS,
    DEGREE,
    MODULUS_BITS,
    PRIME,
    SENT_BITS,
)

__all__ = [
    "LARGEST_SECRET",
    "AnswerQuery",
    "Answered",
    "Blank",
    "Ciphertext",
    "MakeKey",
    "PublicKey",
    "blank",
    "farthest",
    "filled",
    "open_answer",
    "read_plaintexts",
    "sealed",
]

LARGEST_SECRET = 3 * DEGREE // 4
"""The most coefficients of a secret other than 0; one with more is drawn again."""


@dataclass(frozen=True)
class PublicKey:
    """``seed`` of a', and p as packed words, uint64 (2, N)."""

    seed: bytes
    words: bytes

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES or len(self.words) != 16 * DEGREE:
            raise MessageError("a key of sealed scores that has another size")


@dataclass(frozen=True, eq=False)
class Ciphertext:
    """``seed`` of a, and c0 as packed words, uint64 (2, N)."""

    seed: bytes
    words: NDArray[np.uint64]

    def __post_init__(self) -> None:
        if (
            len(self.seed) != SEED_BYTES
            or self.words.dtype != np.uint64
            or self.words.shape != (2, DEGREE)
        ):
            raise MessageError("a ciphertext of sealed scores that has another size")


@dataclass(frozen=True, eq=False)
class Answered:
    """c1' and c0' modulo 2^80: uint16 (5, N), and (5, N), or (5, blocks) of the last party."""

    masks: NDArray[np.uint16]
    numbers: NDArray[np.uint16]

    def check(self, count: int) -> None:
        """Raise MessageError unless these are ``count`` numbers."""
        for part, size in ((self.masks, DEGREE), (self.numbers, count)):
            if part.dtype != np.uint16 or part.shape != (SENT_BITS // 16, size):
                raise MessageError("an answer of sealed scores that has another size")


# The active party encrypts


@lru_cache(maxsize=4)
def _secret(seed: bytes) -> Transform:
    return transformed(draw_secret(seed, DEGREE, LARGEST_SECRET))


def _mask_of(seed: bytes) -> Transform:
    return transforms_of(Stream(seed, "fedmq sealed scores a").words(2, DEGREE))


@dataclass(frozen=True, eq=False)
class MakeKey:
    """The `PublicKey` of the secret that follows from ``secret``; ``seed`` is published."""

    label: ClassVar[str] = "MakeSealedKey"
    seed: bytes
    secret: bytes = field(repr=False)

    def run(self) -> PublicKey:
        limbs = -ternary_product(_mask_of(self.seed), _secret(self.secret))
        limbs[0] += draw_errors(Stream(self.secret, "fedmq sealed scores key"), DEGREE)
        return PublicKey(self.seed, packed(limbs).tobytes())


def sealed(
    plaintexts: NDArray[np.int64], secret: bytes, seeds: Sequence[tuple[bytes, bytes]]
) -> list[Ciphertext]:
    """``plaintexts`` int64 (n, N) modulo t, encrypted.

    ``seeds``: of each, one that is published and one for errors. None may ever be used again.
    """
    return [
        filled(blank(secret, public, hidden), plaintext)
        for plaintext, (public, hidden) in zip(plaintexts, seeds, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Blank:
    """An encryption of nothing: ``seed`` of a, and the limbs of e - a·s, int64 (4, N)."""

    seed: bytes
    limbs: Limbs = field(repr=False)


def blank(secret: bytes, public: bytes, hidden: bytes) -> Blank:
    """A blank, of which something may be made once; the seeds are as those of `sealed`."""
    limbs = -ternary_product(_mask_of(public), _secret(secret))
    limbs[0] += draw_errors(Stream(hidden, "fedmq sealed scores error"), DEGREE)
    return Blank(public, limbs)


def filled(blank: Blank, plaintext: NDArray[np.int64]) -> Ciphertext:
    """``plaintext`` (N,) modulo t, encrypted by ``blank``."""
    return Ciphertext(blank.seed, packed(scaled(plaintext) + blank.limbs))


# A passive party multiplies


@lru_cache(maxsize=4)
def _key_transforms(key: PublicKey) -> tuple[Transform, Transform]:
    words = np.frombuffer(key.words, "<u8").reshape(2, DEGREE)
    return _mask_of(key.seed), transforms_of(words)


@dataclass(frozen=True, eq=False)
class AnswerQuery:
    """The product of ``query`` and the slots that ``allowed``, bool (rows, slots), has.

    ``before`` and ``after`` are the seeds of the masks between the party before this one, or after
    it, and this one: None where there is none. ``seed`` must be fresh.
    """

    query: Sequence[Ciphertext]
    key: PublicKey
    packing: Packing
    allowed: NDArray[np.bool_]
    seed: bytes = field(repr=False)
    before: bytes | None = field(default=None, repr=False)
    after: bytes | None = field(default=None, repr=False)

    def for_slots(self, allowed: NDArray[np.bool_]) -> AnswerQuery:
        """The same query, once the ``allowed`` slots are known."""
        return replace(self, allowed=allowed)

    def answers(self) -> list[Answered]:
        """The answer to each ciphertext of the query.

        Raises:
            MessageError: the query has another number of ciphertexts than the slots need.
        """
        slots = self.packing.laid_out(self.allowed.astype(np.int64))
        if len(slots) != len(self.query):
            raise MessageError(f"{len(self.query)} ciphertexts, not {len(slots)}")
        earlier = [
            to_slots(reduced(_shared_mask(self.before, number))) * slots[number] % PRIME
            for number in range(len(slots))
            if self.before is not None
        ]
        factors = from_slots(slots)
        masks, added = self._masked(earlier)
        return [
            self._multiplied(number, factors[number], masks[number], added[number])
            for number in range(len(slots))
        ]

    def _masked(
        self, earlier: Sequence[NDArray[np.int64]]
    ) -> tuple[list[Limbs], list[NDArray[np.int64]]]:
        """R and d of each ciphertext; ``earlier``: what is to be taken out, by slot."""
        count = len(self.query)
        if self.after is not None:
            masks = [_shared_mask(self.after, number) for number in range(count)]
            none = np.zeros(DEGREE, np.int64)
            return masks, [from_slots(-slots % PRIME) for slots in earlier] or [none] * count
        fresh = Stream(self.seed, "fedmq sealed scores last mask")
        masks = [uniform(fresh, BLOCKS) for _ in range(count)]
        blocks = np.concatenate([to_slots(reduced(mask)) for mask in masks]) * BLOCK_SLOTS
        added = np.zeros(len(blocks), np.int64)
        for number, slots in enumerate(earlier):
            taken = slots.reshape(BLOCK_SLOTS, BLOCKS).sum(axis=0)
            added[number * BLOCKS : (number + 1) * BLOCKS] -= taken
        # The first block of each row and output takes what the others leave.
        runs = self.packing.runs(len(self.allowed))
        used, first = np.unique(runs, return_index=True)
        left = np.zeros(int(runs.max()) + 2, np.int64)
        np.add.at(left, runs, blocks % PRIME)
        added[first[used >= 0]] -= left[used[used >= 0]]
        inverse = pow(BLOCK_SLOTS, -1, PRIME)
        parts = (added % PRIME * inverse % PRIME).reshape(count, BLOCKS)
        return masks, [from_slots(part) for part in parts]

    def _multiplied(
        self, number: int, factor: NDArray[np.int64], mask: Limbs, added: NDArray[np.int64]
    ) -> Answered:
        own = Stream(self.seed, f"fedmq sealed scores answer {number}")
        turned = transformed(draw_ternary(own, DEGREE))
        public, published = _key_transforms(self.key)
        twice = factor_transforms(factor)
        query = self.query[number]
        masks = product(_mask_of(query.seed), twice, public * turned)
        masks[0] += draw_errors(own, DEGREE)
        numbers = product(transforms_of(query.words), twice, published * turned, mask.shape[1])
        numbers += mask
        numbers += scaled(added)
        return Answered(rounded(masks), rounded(numbers))


def _shared_mask(seed: bytes, number: int) -> Limbs:
    return uniform(Stream(seed, f"fedmq sealed scores mask {number}"))


# The active party reads


def farthest() -> int:
    """How far errors carry a number modulo 2^80, but for a chance of 2^-64.

    Errors of the query times b, of N centred binomial numbers, each of variance ERROR_BITS / 2,
    which are sub-Gaussian: their sum, weighted by up to t / 2, exceeds x with a chance of at most
    2 exp(-x² / (N ERROR_BITS (t / 2)²)). In the worst case: what rounding the plaintext leaves,
    times b; errors of the key times u, those of c1' times the secret; and what rounding c1' leaves
    times the secret.
    """
    largest = PRIME // 2
    drawn = isqrt(ceil(65 * log(2) * DEGREE * ERROR_BITS)) + 1
    within = drawn * largest + DEGREE * (largest // 2) + 2 * ERROR_BITS * DEGREE
    return (within >> (MODULUS_BITS - SENT_BITS)) + LARGEST_SECRET // 2 + 4


def read_plaintexts(answers: Sequence[Answered], secret: bytes) -> NDArray[np.int64]:
    """The numbers modulo t of each answer: (answers, n).

    Raises:
        Inexact: one is in doubt.
    """
    key, found = _secret(secret), []
    for answer in answers:
        numbers, doubtful = decrypted(answer.masks, answer.numbers, key, farthest())
        if doubtful.any():
            raise Inexact(
                "a sealed score is in doubt, which happens to one question of 10 million by "
                "chance; ask again"
            )
        found.append(numbers)
    return np.stack(found)


def open_answer(
    answers: Sequence[Answered], secret: bytes, packing: Packing, rows: int
) -> NDArray[np.int64]:
    """The signed sums of the last party's answers: int64 (rows, outputs).

    Raises:
        Inexact: one is in doubt.
    """
    blocks = to_slots(read_plaintexts(answers, secret)) * BLOCK_SLOTS % PRIME
    return packing.sums(blocks.ravel(), rows)
