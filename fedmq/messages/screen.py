"""The messages with which the active party looks at one other party's columns before a training.

In the order in which they are sent: an opening, then, if the owner shows how its columns tell the
label, encrypted labels, and the columns.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from fedmq.messages.array import Array, Payload, Uint32s
from fedmq.messages.body import Body
from fedmq.messages.fields import Count, Index, ModelId, Text

__all__ = [
    "BODIES",
    "MOST_BINS",
    "MOST_ROWS",
    "DescribedColumn",
    "ScreenColumns",
    "ScreenLabels",
    "ScreenOpen",
    "ScreenReady",
]

MOST_ROWS = 100_000
"""Rows of which labels are encrypted, one ciphertext each."""
MOST_BINS = 50
"""Bins into which a column of numbers is cut."""


class ScreenOpen(Body):
    """Active to passive: what are your columns like, and how well does each tell my label?"""

    kind: ClassVar[str] = "screen open"

    name: ModelId
    alignment: str
    """The digest of the common rows, as in the opening of a training."""
    alignment_name: Literal[""] | ModelId = ""
    """The alignment that both stored; empty: the ids must be the same."""
    salt: Text
    """The salt of the digest."""
    rows: Annotated[int, Field(ge=1, lt=2**32)]
    """The common rows."""
    most_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    """So many of them, drawn by ``seed``, are looked at."""
    seed: Index
    bins: Annotated[int, Field(ge=2, le=MOST_BINS)]
    """Into so many bins a column of numbers is cut at most."""
    public: Payload
    """The key of the labels, which is of this session alone."""


class ScreenReady(Body):
    """Passive to active: agreed, send your encrypted labels."""

    kind: ClassVar[str] = "screen ready"


class ScreenLabels(Body):
    """Active to passive: one ciphertext for each row that is looked at, from row ``start`` on."""

    kind: ClassVar[str] = "screen labels"

    start: Index
    ciphertexts: Array
    """uint8 (rows, bytes)."""


class DescribedColumn(BaseModel):
    """A column as its owner lets it be seen; ``name`` is empty where names are private.

    ``counts`` and ``ones`` are of its bins, in random order, and empty where the owner shows only
    descriptions: how many people, and their labels' encrypted sum, uint8 (bins, bytes).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Text
    type: Literal["number", "categories"]
    missing: Annotated[int, Field(ge=0, le=100)]
    """Percent of the rows without a value; none where they are fewer than a group."""
    distinct: Text
    """How many values it has, in steps."""
    counts: Uint32s
    ones: Array


class ScreenColumns(Body):
    """Passive to active: some of my columns, from number ``first`` on, ``of`` so many."""

    kind: ClassVar[str] = "screen columns"

    first: Index
    of: Count
    described: Annotated[tuple[DescribedColumn, ...], Field(strict=False), FailFast()]


BODIES: tuple[type[Body], ...] = (ScreenOpen, ScreenReady, ScreenLabels, ScreenColumns)
