"""The messages that count the people whom all parties share, in the order in which they are sent.

As in an alignment, a *list* holds the blinded ids of its owner and passes through all parties. Here
each sorts it anew, so that no place comes back, and the last passive party counts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from fedmq.messages.alignment import Owner, Rows, checked_points
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.fields import Count, Index, ModelId

__all__ = [
    "BODIES",
    "OverlapAccept",
    "OverlapBegin",
    "OverlapCount",
    "OverlapLimits",
    "OverlapOpen",
    "ShuffledIds",
]


class OverlapOpen(Body):
    """Active to each passive: count with me the ids that all of ``parties`` share."""

    kind: ClassVar[str] = "overlap open"

    name: ModelId
    """The alignment that may follow; nothing is stored under its name."""
    parties: Annotated[tuple[Owner, ...], Field(min_length=2, strict=False)]
    """All parties, the active one first; the last one counts."""
    normalise: Annotated[tuple[str, ...], Field(strict=False)]
    """The steps that bring an id into the form in which ids are compared."""


class OverlapAccept(Body):
    """Passive to active: agreed, my ids are read."""

    kind: ClassVar[str] = "overlap accept"

    rows: Rows
    """How many ids this party holds."""


class OverlapBegin(Body):
    """Active to each passive: all have agreed, send your blinded ids."""

    kind: ClassVar[str] = "overlap begin"


class OverlapLimits(Body):
    """Passive to the last passive party: what may be told of the number."""

    kind: ClassVar[str] = "overlap limits"

    exact: bool
    """Whether this party lets the active one read the exact number."""
    fewest: Count
    """A smaller number is told to nobody."""


class ShuffledIds(Body):
    """To the next party: a piece of ``owner``'s list under the sender's key, in a new order."""

    kind: ClassVar[str] = "shuffled ids"

    owner: Owner
    start: Index
    """The position in the list at which this piece begins."""
    rows: Rows
    """The length of the whole list."""
    points: Annotated[Array, AfterValidator(checked_points)]


class OverlapCount(Body):
    """The last passive party to the active one: how many ids all parties share."""

    kind: ClassVar[str] = "overlap count"

    people: Count | None = None
    """Left out where they are fewer than a party lets be counted."""
    exact: bool
    """Whether ``people`` is the number itself; otherwise noise was added, and it is rounded."""
    fewest: Count
    """The largest of the parties' limits."""


BODIES: tuple[type[Body], ...] = (
    OverlapOpen,
    OverlapAccept,
    OverlapBegin,
    OverlapLimits,
    ShuffledIds,
    OverlapCount,
)
