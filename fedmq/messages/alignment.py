"""The alignment session's messages, in the order in which they are sent.

A *list* holds the blinded ids of one party, its owner, and passes through all parties. The points
in a message are in the sender's order.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from fedmq.messages.array import Array, Uint32s
from fedmq.messages.body import Body
from fedmq.messages.fields import Count, Index, ModelId, PartyName

__all__ = [
    "BODIES",
    "AlignmentAccept",
    "AlignmentBegin",
    "AlignmentOpen",
    "AlignmentReady",
    "AlignmentStored",
    "BlindedIds",
    "CommonRows",
    "Owner",
    "RepeatedRows",
    "Rows",
    "StoreAlignment",
    "checked_points",
]

Owner = PartyName
Rows = Annotated[int, Field(ge=1, lt=2**28)]


def checked_points(array: Array) -> Array:
    """The ``array``, if it holds points; ValueError otherwise."""
    if array.dtype != "|u1" or len(array.shape) != 2 or array.shape[1] != 32:
        raise ValueError(f"expected points of 32 bytes, not {array.dtype} {array.shape}")
    return array


class AlignmentOpen(Body):
    """Active to each passive: find with me the ids that all of ``parties`` share."""

    kind: ClassVar[str] = "alignment open"

    name: ModelId
    """The alignment's name; every party stores it under this name."""
    parties: Annotated[tuple[Owner, ...], Field(min_length=2, strict=False)]
    """All parties, the active one first: the order in which lists travel."""
    normalise: Annotated[tuple[str, ...], Field(strict=False)]
    """The steps that bring an id into the form in which ids are compared."""
    known_to: Annotated[tuple[Owner, ...], Field(strict=False)] | None = None
    """The passive parties that must hold a person of the active party. All of them if left out; the
    others may lack some people, whose columns are then missing."""
    keeps: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] | None = None
    """If not left out: the passive party may blind its list with a key that it keeps, and this is
    the name of the list that the active party keeps, empty if none."""
    kept: Count = 0
    """How many points of that list the active party keeps."""


class AlignmentAccept(Body):
    """Passive to active: agreed, my ids are read."""

    kind: ClassVar[str] = "alignment accept"

    rows: Rows
    """How many ids this party holds."""
    fewest: Count
    """This party refuses an alignment with fewer common rows."""
    keeps: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = ""
    """The name of the list that is blinded with a key that this party keeps; empty: a fresh key."""
    kept: Count = 0
    """How many points of that list the active party keeps already: the others will be sent."""


class AlignmentBegin(Body):
    """Active to each passive: all have agreed, send your blinded ids."""

    kind: ClassVar[str] = "alignment begin"


class BlindedIds(Body):
    """To the next party: a piece of ``owner``'s list, blinded with the sender's key as well.

    Of a list whose blinding is kept, only the part that the recipient lacks.
    """

    kind: ClassVar[str] = "blinded ids"

    owner: Owner
    start: Index
    """The position in the list at which this piece begins."""
    rows: Rows
    """The length of the whole list."""
    points: Annotated[Array, AfterValidator(checked_points)]


class CommonRows(Body):
    """Back to the former party: which rows of ``owner``'s list are common, one piece of them.

    ``places`` are positions in the list as the recipient sent it. They stand in the common order.
    2^32 - 1 stands for a person that ``owner`` lacks, if ``known_to`` of the opening allows it.
    """

    kind: ClassVar[str] = "common rows"

    owner: Owner
    start: Index
    """The position among the common rows at which this piece begins."""
    rows: Rows
    """How many rows are common."""
    places: Uint32s


class AlignmentReady(Body):
    """Passive to active: this party knows its common rows."""

    kind: ClassVar[str] = "alignment ready"


class RepeatedRows(Body):
    """Active to each passive: how many rows I have of each person, one piece of them.

    Sent where somebody has several, before the alignment is stored. Rows of a person stand side by
    side.
    """

    kind: ClassVar[str] = "repeated rows"

    start: Index
    """The position among the people at which this piece begins."""
    people: Rows
    counts: Uint32s


class StoreAlignment(Body):
    """Active to each passive: all are ready, store the alignment."""

    kind: ClassVar[str] = "store alignment"


class AlignmentStored(Body):
    """Passive to active: this party's part is on its disk."""

    kind: ClassVar[str] = "alignment stored"


BODIES: tuple[type[Body], ...] = (
    AlignmentOpen,
    AlignmentAccept,
    AlignmentBegin,
    BlindedIds,
    CommonRows,
    AlignmentReady,
    RepeatedRows,
    StoreAlignment,
    AlignmentStored,
)
