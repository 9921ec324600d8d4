"""The base of all message bodies, and the bodies that belong to every kind of session."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, FailFast, Field

from fedmq.messages.array import Uint32s
from fedmq.messages.fields import LONGEST_CONSENT, Reason, Text

__all__ = [
    "BODIES",
    "MOST_RANGES",
    "Abort",
    "Acknowledge",
    "Body",
    "ConsentPendingMessage",
    "Probe",
    "RecordColumns",
    "SessionRefuse",
    "SessionUnknown",
]


MOST_RANGES = 128
Sequence = Annotated[int, Field(ge=1, lt=2**62)]
Range = Annotated[tuple[Sequence, Sequence], Field(strict=False)]
"""The first and the last of messages without a gap."""


class Body(BaseModel):
    """Base of all bodies: frozen, with the declared fields and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: ClassVar[str]
    in_bulk: ClassVar[bool] = False
    """Whether many megabytes are such, which a broker need not keep over its restart."""


class RecordColumns(BaseModel):
    """Which records share a column: each record's column by number, and a text for each column.

    The text is what the owner publishes as a reason.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    column: Uint32s
    texts: Annotated[tuple[Text, ...], Field(strict=False), FailFast()]


class SessionRefuse(Body):
    """Passive to active: this party does not take part in the session, for this reason."""

    kind: ClassVar[str] = "session refuse"

    reason: Reason


class ConsentPendingMessage(Body):
    """Passive to active: this party's owner is asked, and until then nothing is agreed or refused.

    It is said again in each attempt that begins before the owner has answered.
    """

    kind: ClassVar[str] = "consent awaited"

    seconds: Annotated[int, Field(ge=1, le=LONGEST_CONSENT)]
    """After so many without an answer the session is refused."""


class Abort(Body):
    """Either way: the session has ended without a result, for this reason."""

    kind: ClassVar[str] = "abort"

    reason: Reason


class SessionUnknown(Body):
    """Either way: this attempt at the session is unknown here since a restart. Never sequenced."""

    kind: ClassVar[str] = "session unknown"


class Probe(Body):
    """Either way: are you still there? Answered by acknowledging it."""

    kind: ClassVar[str] = "probe"


class Acknowledge(Body):
    """Either way: the header's ``acknowledged`` says what was taken. Never sequenced."""

    kind: ClassVar[str] = "acknowledge"

    early: Annotated[
        tuple[Range, ...], Field(strict=False, max_length=MOST_RANGES), FailFast()
    ] = ()
    """Messages that came before their turn, in order. Only for a party that says in the ids of its
    own acknowledgements and probes that it reads them."""


BODIES: tuple[type[Body], ...] = (
    SessionRefuse,
    ConsentPendingMessage,
    Abort,
    SessionUnknown,
    Probe,
    Acknowledge,
)
