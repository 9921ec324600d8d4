"""How is a sum of leaves that nobody learns asked for, multiplied and read?

The arithmetic of sealed scores, in files and online. The active party encrypts what each slot of
leaves adds to a row, and each passive party multiplies that by its own zeros and ones: whether its
splits allow the slot to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import Player
from fedmq.boosting.model.leaf_slots import LeafSlots, SlotRanges
from fedmq.boosting.model.party_parts import (
    PartyParts,
    in_coalitions,
    part_counts,
    side_by_side,
)
from fedmq.boosting.model.served_forest import RecordPlaces
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.computation import computation
from fedmq.errors import DataError, MessageError, Refused
from fedmq.messages.array import Array
from fedmq.messages.inference import SealedTerms
from fedmq.privacy.random_stream import Stream, fresh_seed
from fedmq.privacy.sealed_scores.ciphertexts import (
    Answered,
    AnswerQuery,
    Blank,
    Ciphertext,
    MakeKey,
    PublicKey,
    blank,
    filled,
    open_answer,
    read_plaintexts,
    sealed,
)
from fedmq.privacy.sealed_scores.modulus import from_slots
from fedmq.privacy.sealed_scores.packing import MOST_SLOTS, FixedPoint, Packing

__all__ = [
    "MultipliedShare",
    "PartScores",
    "SealedModel",
    "SealedRows",
    "answer_sealed",
    "neighbours",
    "open_sums",
    "prepare_sealed",
    "score_parts",
    "score_sums",
    "seal_again",
    "seal_rows",
]

_MOST_SPLITS = 50_000  # of one party, at 16 bytes each: below 1 MiB
_MOST_PASSIVE = 16  # in reasons: each of them doubles the slots


# The active party asks and reads


@dataclass(frozen=True, eq=False)
class SealedModel:
    """What stays the same for all rows; ``secret`` of 32 bytes reads what ``key`` hides.

    ``chain``: the passive parties, in the order in which each question comes to them. With
    ``parts`` the sums are not scores, but each party's part in them.
    """

    parties: tuple[str, ...]
    chain: tuple[str, ...]
    params: TrainParams
    slots: LeafSlots
    packing: Packing
    point: FixedPoint
    key: PublicKey
    secret: bytes = field(repr=False)
    parts: PartyParts | None = None

    @classmethod
    def of(cls, share: ActiveShare, secret: bytes, reasons: bool = False) -> Self:
        """The slots of ``share``, and the key of ``secret``; with ``reasons`` those of parts.

        Raises:
            DataError: it has too many leaves, or too many splits of one party.
            ConfigError: ``reasons``, and leaves are vectors.
        """
        slots = LeafSlots.of(share)
        for owner, ranges in slots.ranges.items():
            if len(ranges.record) > _MOST_SPLITS:
                raise DataError(
                    f"{share.parties[owner]} has {len(ranges.record):,} splits; mode 'sealed' "
                    f"takes {_MOST_SPLITS:,} of a party: use mode 'hop'"
                )
        counts = slots.counts * max(1, share.params.vector_outputs)
        key = MakeKey(_drawn(secret, "key"), secret).run()
        point = FixedPoint.for_sums(slots.largest, len(share.used_trees))
        model = cls(
            share.parties, share.asked, share.params, slots, Packing(counts), point, key, secret
        )
        return model.telling_parts(share) if reasons else model

    def telling_parts(self, share: ActiveShare) -> Self:
        """The same with each party's part in scores of ``share``.

        Raises:
            DataError: it has too many leaves for so many parties.
            ConfigError: leaves are vectors.
        """
        parts = PartyParts.of(share, self.slots)
        counts = part_counts(self.slots.counts, len(self.chain))
        if sum(counts) > MOST_SLOTS:
            raise DataError(
                f"{self.packing.slots:,} leaves and {len(self.chain) + 1} parties: reasons in mode "
                f"'sealed' take {sum(counts):,} slots of a row, and {MOST_SLOTS:,} are allowed"
            )
        point = FixedPoint.for_sums(parts.largest, max(counts))
        return replace(self, packing=Packing(counts), point=point, parts=parts)

    @property
    def players(self) -> tuple[Player, ...]:
        """The parties, in the order of their parts."""
        return tuple(Player(party, None) for party in (self.parties[0], *self.chain))

    def numbers(
        self, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each slot adds to rows with these ``values``, and what they get in the clear.

        (rows, slots), and (rows, sums).
        """
        if self.parts is not None:
            numbers, clear = self.parts.numbers(values)
            return side_by_side(numbers, self.slots.counts), clear.reshape(len(values), -1)
        weights, clear = self.slots.weights(values)
        if weights.ndim == 3:  # vector leaves: output by output
            weights = weights.swapaxes(1, 2).reshape(len(values), -1)
        return weights, clear

    def blank(self) -> Blank:
        """A fresh encryption of nothing."""
        return blank(self.secret, fresh_seed(), fresh_seed())

    def terms(self, peer: str) -> SealedTerms:
        """What ``peer`` has to know."""
        ranges = self.slots.ranges[self.parties.index(peer)]
        records, starts, middles, ends = (
            Array.of(part.astype(np.uint32))
            for part in (ranges.record, ranges.start, ranges.middle, ranges.end)
        )
        return SealedTerms(
            slots=self.slots.counts,
            copies=max(1, self.params.vector_outputs),
            reasons=self.parts is not None,
            chain=self.chain,
            records=records,
            starts=starts,
            middles=middles,
            ends=ends,
            key_seed=self.key.seed,
            key=self.key.words,
        )


@computation("PrepareSealedScores")
def prepare_sealed(share: ActiveShare, secret: bytes, reasons: bool = False) -> SealedModel:
    """`SealedModel.of`."""
    return SealedModel.of(share, secret, reasons)


@dataclass(frozen=True, eq=False)
class SealedRows:
    """Questions about neighbouring rows: their ciphertexts, and what rows get in the clear."""

    questions: Sequence[Sequence[Ciphertext]]
    clear: NDArray[np.float64]


@computation("SealRows")
def seal_rows(
    model: SealedModel,
    values: NDArray[np.float32],
    fresh: bytes,
    first: int,
    blanks: Sequence[Blank] = (),
) -> SealedRows:
    """Questions from number ``first`` on about rows with these ``values`` (rows, features).

    ``fresh``: 32 secret bytes, under which no number is ever used again. ``blanks``: ciphertexts of
    the first question that were made ahead, as far as there are any.
    """
    weights, clear = model.numbers(values)
    numbers = model.point.of(weights)
    most = model.packing.rows
    questions = [
        _encrypted(
            from_slots(model.packing.laid_out(numbers[start : start + most])),
            model.secret,
            (fresh, first + place, 0),
            () if place else blanks,
        )
        for place, start in enumerate(range(0, len(numbers), most))
    ]
    return SealedRows(questions, clear)


def _encrypted(
    plaintexts: NDArray[np.int64],
    secret: bytes,
    question: tuple[bytes, int, int],
    blanks: Sequence[Blank],
) -> list[Ciphertext]:
    fresh, number, place = question
    ahead = [filled(*parts) for parts in zip(blanks, plaintexts, strict=False)]
    seeds = [
        (
            _drawn(fresh, "question", number, place, piece),
            _drawn(fresh, "error", number, place, piece),
        )
        for piece in range(len(ahead), len(plaintexts))
    ]
    return [*ahead, *sealed(plaintexts[len(ahead) :], secret, seeds)]


@computation("SealAgain")
def seal_again(
    model: SealedModel,
    answers: Sequence[Answered],
    fresh: bytes,
    number: int,
    place: int,
    blanks: Sequence[Blank] = (),
) -> list[Ciphertext]:
    """The question that the party at ``place`` gets: what the one before it has answered.

    ``fresh``, ``number`` and ``blanks`` as in `seal_rows`.

    Raises:
        Inexact: an answer is in doubt.
    """
    plaintexts = read_plaintexts(answers, model.secret)
    return _encrypted(plaintexts, model.secret, (fresh, number, place), blanks)


@computation("OpenSealedSums")
def open_sums(model: SealedModel, answers: Sequence[Answered], rows: int) -> NDArray[np.float64]:
    """The sums of the last party's answers about so many ``rows``: (rows, outputs).

    Raises:
        Inexact: an answer is in doubt.
    """
    return model.point.read(open_answer(answers, model.secret, model.packing, rows))


@computation("SealedScores")
def score_sums(
    params: TrainParams, sums: NDArray[np.float64], base_margin: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Margins and predictions of rows with these ``sums`` (rows, outputs); NaN stays NaN.

    ``base_margin`` float32 (rows,) or (rows, classes): where rows start, not at the base score.
    """
    objective = objective_of(params)
    if base_margin is None:
        assert params.base_score is not None  # of a finished model
        first = objective.first_margin(params.base_score)
        shape: tuple[int, ...] = (len(sums), *np.shape(first))
        base_margin = np.full(shape, first, np.float32)
    margins = (base_margin + sums.reshape(base_margin.shape)).astype(np.float32)
    blank = np.isnan(margins).any(axis=tuple(range(1, margins.ndim)))
    predictions = objective.predictions(np.where(np.isnan(margins), np.float32(0), margins))
    predictions[blank] = np.nan
    return margins, predictions


PartScores = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""Margins, predictions, and the parts of parties."""


@computation("SealedParts")
def score_parts(
    params: TrainParams,
    expected: NDArray[np.float64],
    sums: NDArray[np.float64],
    base_margin: NDArray[np.float32] | None,
) -> PartScores:
    """As `score_sums`, of sums that are parts by output and party, and as the third the parts.

    Those are float32 (rows, outputs, parties + 1), the bias last: where rows start, and what is
    ``expected`` (outputs,) of one of which nothing is known.
    """
    parts = sums.reshape(len(sums), len(expected), -1)
    scores = score_sums(params, parts.sum(axis=-1) + expected, base_margin)
    assert params.base_score is not None  # of a finished model
    first = np.broadcast_to(
        objective_of(params).first_margin(params.base_score)
        if base_margin is None
        else base_margin.reshape(len(sums), -1),
        parts.shape[:2],
    )
    bias = np.where(np.isnan(parts[..., 0]), np.nan, expected + first)
    return *scores, np.concatenate([parts, bias[..., np.newaxis]], axis=-1).astype(np.float32)


def _drawn(seed: bytes, *names: object) -> bytes:
    return Stream(seed, f"fedmq sealed scores {' '.join(map(str, names))}").read(32)


# A passive party multiplies


@dataclass(frozen=True, eq=False)
class MultipliedShare:
    """A passive party's part in sealed sums: which slots its splits decide about, and the key.

    ``counts``: the slots of each output; ``copies``: how many times all of them stand one after the
    other. ``place`` of this party among so many ``passive`` ones. With ``reasons`` the sums are
    parts of parties.
    """

    table: LookupTable
    ranges: SlotRanges
    counts: tuple[int, ...]
    copies: int
    packing: Packing
    place: int
    passive: int
    key: PublicKey
    reasons: bool = False

    @classmethod
    def of(cls, share: PassiveShare, terms: SealedTerms) -> Self:
        """The part of ``share`` on these ``terms``.

        Raises:
            Refused: they do not fit the share.
        """
        parts = (terms.records, terms.starts, terms.middles, terms.ends)
        try:
            key = PublicKey(terms.key_seed, terms.key)
            packing = Packing(terms.slots * terms.copies)
            ranges = SlotRanges.of(
                *(part.numpy() for part in parts),
                records=len(share.lookup_table),
                slots=sum(terms.slots),
            )
            if share.places:
                ranges.check(RecordPlaces.of(share.places))
            neighbours(share.party, terms.chain)
            made = cls(
                share.lookup_table,
                ranges,
                terms.slots,
                terms.copies,
                packing,
                terms.chain.index(share.party),
                len(terms.chain),
                key,
            )
            return made.telling_parts() if terms.reasons else made
        except (DataError, MessageError) as error:
            raise Refused(f"sealed scores: {error}") from error

    def telling_parts(self) -> Self:
        """The same where sums are parts of parties.

        Raises:
            DataError: leaves are vectors, or there are too many of them for so many parties.
        """
        if self.copies > 1 or self.passive > _MOST_PASSIVE:
            raise DataError("reasons of vector leaves, or of too many parties")
        packing = Packing(part_counts(self.counts, self.passive))
        return replace(self, packing=packing, reasons=True)

    def allowed(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """The slots that the splits allow rows with these ``values`` (rows, features)."""
        left = self.table.directions_of_all(values, self.ranges.record)
        allowed = self.ranges.allowed(left, sum(self.counts))
        if self.reasons:
            return in_coalitions(allowed, self.counts, self.place, self.passive)
        return np.tile(allowed, (1, self.copies))


@computation("AnswerSealedQuery")
def answer_sealed(
    share: MultipliedShare, values: NDArray[np.float32], query: AnswerQuery
) -> list[Answered]:
    """The answer about rows with these ``values`` (rows, features); ``query`` has no slots yet."""
    return query.for_slots(share.allowed(values)).answers()


def neighbours(party: str, chain: Sequence[str]) -> tuple[str, str]:
    """The parties before and after ``party`` in the ``chain``; "" where there is none.

    Raises:
        Refused: the chain lacks ``party``, or names one twice.
    """
    if party not in chain or len(set(chain)) < len(chain):
        raise Refused("sealed scores: the order of the parties lacks this one, or names one twice")
    place = chain.index(party)
    return (
        chain[place - 1] if place else "",
        chain[place + 1] if place + 1 < len(chain) else "",
    )
