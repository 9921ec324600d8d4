"""The inference session's messages, in the order in which they are sent."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from fedmq.messages.array import Array, Bitmap, Uint32s
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.fields import Count, Index, ModelId, PartyName, Text, TrainingId

__all__ = [
    "BODIES",
    "ChangeChosen",
    "ChangeTold",
    "ChangesOffered",
    "HopReply",
    "InferenceAccept",
    "InferenceFinished",
    "InferenceHop",
    "InferenceOpen",
    "InferenceRows",
    "SampleId",
    "SampleIds",
    "SealedAnswer",
    "SealedLink",
    "SealedQuery",
    "SealedTerms",
]

SampleId = Annotated[str, Field(max_length=256)]
_Seed = Annotated[bytes, Field(min_length=32, max_length=32)]
_Piece = Annotated[int, Field(ge=0, lt=2**20)]


class SealedTerms(BaseModel):
    """How scores are summed that nobody but the active party reads, of leaves that nobody learns.

    ``records`` are the recipient's, and each decides about slots: those from ``starts`` to below
    ``middles`` lie on its left, those to below ``ends`` on its right.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    slots: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**24)], ...], Field(strict=False)]
    """By output, the slots of a row."""
    copies: Annotated[int, Field(ge=1, lt=2**16)] = 1
    """How many times all slots stand one after the other: as many as leaves have numbers."""
    reasons: bool = False
    """Whether each party's part in a score is summed: then the slots of an output stand once for
    each party, and there once for each coalition of passive parties, which alone multiply them."""
    chain: Annotated[tuple[PartyName, ...], Field(strict=False)]
    """The passive parties, in the order in which each question comes to them."""
    records: Uint32s
    starts: Uint32s
    middles: Uint32s
    ends: Uint32s
    key_seed: _Seed
    key: bytes
    """The active party's public key for sealed scores, and the seed of its other half."""


class ChangesOffered(BaseModel):
    """What an owner could change of its own columns for one person, the smallest change first.

    ``column``: by alternative, the number of the column that it changes. ``left``: by alternative
    and record, whether the person would go left. No value, threshold or name is among them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    column: Uint32s
    left: Bitmap


class InferenceOpen(Body):
    """Active to each passive: score rows with me; ``id_pieces`` lists of sample ids follow."""

    kind: ClassVar[str] = "inference open"

    model: ModelId
    rows: Annotated[int, Field(ge=1, lt=2**31)]
    id_pieces: Annotated[int, Field(ge=0, lt=2**20)]
    """Zero where rows are matched by position."""
    partial: bool = False
    """Whether rows whose ids a passive party does not know are left out, instead of refused."""
    explained_records: Count = 0
    """How many records of the recipient the trees use, if the scores shall have reasons: then rows
    are asked about at all of them, in place of those on their way."""
    sealed: SealedTerms | None = None
    """Given where scores are sealed: then no direction is asked for."""
    training: TrainingId = ""
    """The training of the active party's share: that of the recipient has to be of the same."""
    asks_changes: bool = False
    """Whether the recipient is asked what it could change for the person of the one row."""

    @model_validator(mode="after")
    def _changes_of_one_person(self) -> Self:
        if self.asks_changes and (self.rows != 1 or self.sealed is not None):
            raise ValueError("changes are asked for of one row, whose directions are told")
        return self


class SampleIds(Body):
    """Active to each passive: the sample ids of the rows from ``start`` on."""

    kind: ClassVar[str] = "sample ids"

    start: Index
    ids: Annotated[tuple[SampleId, ...], Field(strict=False), FailFast()]


class InferenceAccept(Body):
    """Passive to active: the model's share is here, and all rows but the ``unknown_rows``."""

    kind: ClassVar[str] = "inference accept"

    unknown_rows: Bitmap = Bitmap(count=0, data=b"")
    """The rows whose ids are unknown here; empty where there are none."""
    columns: RecordColumns | None = None
    """Of the records that are asked about for reasons, where the owner shows them."""
    offered: ChangesOffered | None = None
    """Where the active party asks what could change, and the owner tells it."""


class InferenceHop(Body):
    """Active to passive: for each record, which way do these rows go?

    ``rows`` holds the rows of the first record, then those of the second, and so on; ``counts``
    holds how many rows each record has.
    """

    kind: ClassVar[str] = "inference hop"

    hop: Index
    records: Uint32s
    counts: Uint32s
    rows: Uint32s

    @model_validator(mode="after")
    def _counts_cover_the_rows(self) -> Self:
        if self.records.shape != self.counts.shape:
            raise ValueError("as many counts as records are needed")
        if int(self.counts.numpy().sum(dtype=np.uint64)) != self.rows.shape[0]:
            raise ValueError("the counts do not add up to the rows")
        return self


class InferenceRows(Body):
    """Active to passive: which way do these rows go, at each of the records that are explained?"""

    kind: ClassVar[str] = "inference rows"

    hop: Index
    rows: Uint32s


class HopReply(Body):
    """Passive to active: left or right, in the order of the hop's rows, and for each row by record
    where it is asked about at all of them."""

    kind: ClassVar[str] = "hop reply"

    hop: Index
    left: Bitmap


class ChangeChosen(Body):
    """Active to passive: what are these alternatives, of those that you offered?"""

    kind: ClassVar[str] = "change chosen"

    numbers: Uint32s


class ChangeTold(Body):
    """Passive to active: by chosen alternative, its column as the owner calls it, and its change:
    one threshold, or a category."""

    kind: ClassVar[str] = "change told"

    told_columns: Annotated[tuple[Text, ...], Field(strict=False)]
    told_changes: Annotated[tuple[Text, ...], Field(strict=False)]


class SealedLink(Body):
    """Passive to the next passive: the seed of what hides answers of the one from the active party,
    and what the other takes out again. The active party must never see it."""

    kind: ClassVar[str] = "sealed link"

    seed: _Seed


class SealedQuery(Body):
    """Active to passive: multiply this ciphertext, which has slots of ``rows``.

    A question has as many ``piece``s as the slots of its rows take ciphertexts. Questions are
    numbered from 0 without gaps, and each is asked once.
    """

    kind: ClassVar[str] = "sealed query"

    number: Index
    piece: _Piece
    rows: Uint32s
    seed: _Seed
    words: Array


class SealedAnswer(Body):
    """Passive to active: the product, which nobody can read but the next passive party; of the last
    one only what tells the sums of the question's rows."""

    kind: ClassVar[str] = "sealed answer"

    number: Index
    piece: _Piece
    masks: Array
    numbers: Array


class InferenceFinished(Body):
    """Active to each passive: all rows are scored, forget them."""

    kind: ClassVar[str] = "inference finished"


BODIES: tuple[type[Body], ...] = (
    InferenceOpen,
    SampleIds,
    InferenceAccept,
    InferenceHop,
    InferenceRows,
    HopReply,
    ChangeChosen,
    ChangeTold,
    SealedLink,
    SealedQuery,
    SealedAnswer,
    InferenceFinished,
)
