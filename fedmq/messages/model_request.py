"""What the label holder asks of one other party about a model that they have made together.

One question opens a session, and one answer, or a refusal, ends it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from fedmq.messages.body import Body, ModelId
from fedmq.messages.record_columns import RecordColumns

__all__ = [
    "BODIES",
    "ModelCardOffer",
    "ModelCardSigned",
    "ModelColumnNames",
    "ModelColumns",
    "ModelDelete",
    "ModelDeleted",
]


class ModelCardOffer(Body):
    """Active to passive: do you sign this card of the model?"""

    kind: ClassVar[str] = "model card offer"

    model: ModelId
    card: Annotated[str, Field(min_length=1, max_length=500_000)]
    """The card's content, as canonical JSON."""


class ModelCardSigned(Body):
    """Passive to active: my signature under the card, with the hash of my share."""

    kind: ClassVar[str] = "model card signed"

    endorsement: Annotated[str, Field(min_length=1, max_length=10_000)]
    """As it is kept with the card, as JSON."""


class ModelDelete(Body):
    """Active to passive: delete your share of the model."""

    kind: ClassVar[str] = "model delete"

    model: ModelId


class ModelDeleted(Body):
    """Passive to active: there is no share of the model here any more."""

    kind: ClassVar[str] = "model deleted"


class ModelColumns(Body):
    """Active to passive: what are the names of the columns that your records split?"""

    kind: ClassVar[str] = "model columns"

    model: ModelId


class ModelColumnNames(Body):
    """Passive to active: which of my records share a column, and the columns' names."""

    kind: ClassVar[str] = "model column names"

    columns: RecordColumns


BODIES: tuple[type[Body], ...] = (
    ModelCardOffer,
    ModelCardSigned,
    ModelDelete,
    ModelDeleted,
    ModelColumns,
    ModelColumnNames,
)
