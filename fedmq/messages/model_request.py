"""What the active party asks of one other party about a model that they have made together.

One question, in pieces where it is long, opens a session, and one answer, or a refusal, ends it:
``ANSWERS`` says which answer belongs to which question.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, ClassVar

from pydantic import FailFast, Field

from fedmq.messages.array import Array, Bitmap, Float32s, Payload, Uint32s
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.fields import Index, ModelId, Text
from fedmq.messages.inference import SampleId

__all__ = [
    "ANSWERS",
    "BODIES",
    "MOST_PEOPLE",
    "ModelCardOffer",
    "ModelCardSigned",
    "ModelColumnNames",
    "ModelColumns",
    "ModelDelete",
    "ModelDeleted",
    "ModelGroupPiece",
    "ModelGroupSums",
    "ModelGroups",
    "ModelQuestion",
    "ModelSplits",
    "ModelThresholds",
]

MOST_PEOPLE = 100_000
"""Of one question about groups."""


class ModelQuestion(Body):
    """Active to passive: a question about the model."""

    model: ModelId


class ModelCardOffer(ModelQuestion):
    """Active to passive: do you sign this card of the model?"""

    kind: ClassVar[str] = "model card offer"

    card: Annotated[str, Field(min_length=1, max_length=500_000)]
    """The card's content, as canonical JSON."""


class ModelCardSigned(Body):
    """Passive to active: my signature under the card, with the hash of my share."""

    kind: ClassVar[str] = "model card signed"

    endorsement: Annotated[str, Field(min_length=1, max_length=500)]
    """As it is kept with the card, as JSON."""


class ModelDelete(ModelQuestion):
    """Active to passive: delete your share of the model."""

    kind: ClassVar[str] = "model delete"


class ModelDeleted(Body):
    """Passive to active: there is no share of the model here any more."""

    kind: ClassVar[str] = "model deleted"


class ModelColumns(ModelQuestion):
    """Active to passive: what are the names of the columns that your records split?"""

    kind: ClassVar[str] = "model columns"


class ModelColumnNames(Body):
    """Passive to active: which of my records share a column, and the columns' names."""

    kind: ClassVar[str] = "model column names"

    columns: RecordColumns


class ModelGroups(ModelQuestion):
    """Active to passive: what are the sums of these encrypted numbers, by group of your column?"""

    kind: ClassVar[str] = "model groups"

    column: Annotated[str, Field(min_length=1, max_length=256)]
    people: Annotated[int, Field(ge=1, le=MOST_PEOPLE)]
    public: Payload
    """The key, which is of this question alone."""


class ModelGroupPiece(Body):
    """Active to passive: ids from ``start`` on, and one ciphertext for each."""

    kind: ClassVar[str] = "model group piece"

    start: Index
    ids: Annotated[tuple[SampleId, ...], Field(strict=False, min_length=1), FailFast()]
    ciphertexts: Array
    """uint8 (ids, bytes)."""


class ModelGroupSums(Body):
    """Passive to active: the sums, still encrypted, and how many people are in each group."""

    kind: ClassVar[str] = "model group sums"

    groups: Annotated[
        tuple[Annotated[str, Field(max_length=200)], ...],
        Field(strict=False, min_length=2, max_length=500),
    ]
    counts: Uint32s
    ciphertexts: Array
    """uint8 (groups, bytes)."""


class ModelSplits(ModelQuestion):
    """Active to passive: what are the thresholds of your records, for a model in one file?"""

    kind: ClassVar[str] = "model splits"

    only_asks: bool = False
    """Whether an answer of no records is wanted: would you tell them?"""


class ModelThresholds(Body):
    """Passive to active: all that my records of the model hold; columns may have numbers only."""

    kind: ClassVar[str] = "model thresholds"

    columns: RecordColumns
    thresholds: Float32s
    missing_left: Bitmap
    category_names: Annotated[
        tuple[Annotated[tuple[Text, ...], Field(strict=False)], ...], Field(strict=False)
    ]
    """By column, the names of its categories, by code; empty of a column of numbers."""
    codes_right: Annotated[
        tuple[Annotated[tuple[Index, ...], Field(strict=False)], ...], Field(strict=False)
    ] = ()
    """By record, the codes that go right where a set of categories splits; else empty."""


ANSWERS: Mapping[type[ModelQuestion], type[Body]] = {
    ModelCardOffer: ModelCardSigned,
    ModelDelete: ModelDeleted,
    ModelColumns: ModelColumnNames,
    ModelGroups: ModelGroupSums,
    ModelSplits: ModelThresholds,
}
"""The answer to each question."""

BODIES: tuple[type[Body], ...] = (*chain.from_iterable(ANSWERS.items()), ModelGroupPiece)
