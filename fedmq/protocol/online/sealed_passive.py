"""What does a passive party answer where online scores are sealed? It keeps nothing in between.

Masks hide an answer of all but the last party from the active party, and the next party takes them
out again. Nothing is kept of a question, so masks follow from what it says, from what is answered
about it, and from a seed that the two parties share. The same question has the same answer; where
anything else is asked, or a person's values have changed, all masks are others. The next party
finds a mask by its name, which the active party hands on, and by the people whom both are asked
about: a name is of no use with the bits of other people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import DataError, MessageError, ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.inference import SealedTerms
from fedmq.messages.online import MASK_BYTES, OnlineProducts, OnlineSealed
from fedmq.privacy.sealed_scores.ciphertexts import AnswerQuery, Ciphertext
from fedmq.privacy.sealed_scores.machine_ring import is_translated
from fedmq.protocol.sealed_sums import MultipliedShare, neighbours

__all__ = ["MaskSeeds", "SealedShare", "name_of_seed"]

_NAME_BYTES = 16  # of a seed; the rest of a mask's name is from what it masks


@dataclass(frozen=True, slots=True)
class MaskSeeds:
    """A party's ``own`` secret of a session, and the seeds that it shares with its neighbours.

    32 bytes each.

    ``before``: with the party before it, ``after``: with the next; None where there is none.
    """

    own: bytes
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class SealedShare:
    """A deployed share that multiplies; the parties ``previous`` and ``following`` in the chain.

    ``parts`` is the same where sums are parts of parties; None if there are too many slots.
    """

    share: MultipliedShare
    parts: MultipliedShare | None
    previous: str
    following: str

    @classmethod
    def of(cls, share: PassiveShare, terms: SealedTerms) -> Self:
        """The share on these ``terms``; Refused if they do not fit it."""
        made = MultipliedShare.of(share, terms)
        try:
            parts = made.telling_parts()
        except DataError:
            parts = None
        return cls(made, parts, *neighbours(share.party, terms.chain))

    def of_question(self, asked: OnlineSealed) -> MultipliedShare:
        """What ``asked`` is multiplied by.

        Raises:
            ProtocolError: it asks for parts, and there are too many slots.
        """
        if not asked.reasons:
            return self.share
        if self.parts is None:
            raise ProtocolError(f"sealed question {asked.hop} asks for reasons of too many slots")
        return self.parts

    @staticmethod
    def is_brief(asked: OnlineSealed) -> bool:
        """Whether `products` takes less than a millisecond."""
        return is_translated() and len(asked.seeds) == 1

    def check(self, asked: OnlineSealed) -> str:
        """Check that ``asked`` fits; returns the name of the seed that it needs, "" if none.

        Raises:
            ProtocolError: it does not.
        """
        self._query(asked)
        if len(asked.mask) != (MASK_BYTES if self.previous else 0):
            raise ProtocolError(f"sealed question {asked.hop} has a mask that is none")
        return asked.mask[:_NAME_BYTES].hex()

    def products(
        self,
        asked: OnlineSealed,
        values: NDArray[np.float32],
        unknown: NDArray[np.bool_],
        seeds: MaskSeeds,
    ) -> OnlineProducts:
        """The answer to ``asked``, which was checked, about rows with these ``values``.

        ``values`` (ids, features); ``unknown`` bool (ids,): ids whose values are all missing.
        """
        share = self.of_question(asked)
        allowed = share.allowed(values)
        label = _label(seeds, asked, allowed)
        answers = AnswerQuery(
            self._query(asked),
            share.key,
            share.packing,
            allowed,
            _hash(seeds.own, b"answer", label),
            None if seeds.before is None else _mask(seeds.before, asked.mask[_NAME_BYTES:], asked),
            None if seeds.after is None else _mask(seeds.after, label, asked),
        ).answers()
        mask = b"" if seeds.after is None else bytes.fromhex(name_of_seed(seeds.after)) + label
        return OnlineProducts(
            batch=asked.batch,
            hop=asked.hop,
            mask=mask,
            masks=Array.of(np.stack([answer.masks for answer in answers])),
            numbers=Array.of(np.stack([answer.numbers for answer in answers])),
            unknown=Array.of(np.flatnonzero(unknown).astype(np.uint32)),
        )

    def _query(self, asked: OnlineSealed) -> list[Ciphertext]:
        packing, words = self.of_question(asked).packing, asked.words.values
        if len(asked.ids) > packing.rows or len(set(asked.ids)) < len(asked.ids):
            raise ProtocolError(f"sealed question {asked.hop} has too many ids, or one twice")
        if not len(asked.seeds) == len(words) == packing.ciphertexts(len(asked.ids)):
            raise ProtocolError(f"sealed question {asked.hop}: not the ciphertexts of its ids")
        try:
            return [Ciphertext(*parts) for parts in zip(asked.seeds, words, strict=True)]
        except MessageError as error:
            raise ProtocolError(f"sealed question {asked.hop}: {error}") from error


def name_of_seed(seed: bytes) -> str:
    """Names a ``seed`` of masks without telling it: 16 bytes in hexadecimal digits."""
    return _hash(seed, b"name")[:_NAME_BYTES].hex()


def _label(seeds: MaskSeeds, asked: OnlineSealed, allowed: NDArray[np.bool_]) -> bytes:
    """Another one for everything else that is asked or answered; it tells nothing of either.

    So it does not even tell whether somebody's values have changed since another batch.
    """
    return _hash(
        seeds.own,
        b"label",
        asked.batch.to_bytes(8),
        asked.hop.to_bytes(8),
        asked.model.encode(),
        asked.key,
        asked.mask,
        bytes([asked.reasons]),
        seeds.after or b"",
        _hashed_ids(asked.ids),
        *asked.seeds,
        asked.words.data,
        np.packbits(allowed).tobytes(),
    )


def _mask(seed: bytes, label: bytes, asked: OnlineSealed) -> bytes:
    return _hash(seed, b"mask", label, asked.model.encode(), _hashed_ids(asked.ids))


def _hashed_ids(ids: Sequence[str]) -> bytes:
    return _hash(b"", *(name.encode() for name in ids))


def _hash(key: bytes, *parts: bytes) -> bytes:
    """32 bytes that follow from all ``parts``, each taken with its length."""
    digest = hashlib.blake2b(digest_size=32, key=key)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
