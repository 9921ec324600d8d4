"""What every message body is, and the ones that any session may carry."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BODIES",
    "Abort",
    "Acknowledge",
    "Body",
    "Count",
    "Index",
    "ModelId",
    "Probe",
    "Reason",
    "SessionRefuse",
    "SessionUnknown",
]

Count = Annotated[int, Field(ge=0, lt=2**32)]
Index = Annotated[int, Field(ge=0, lt=2**32)]
NAME_OF_MODEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ModelId = Annotated[str, Field(pattern=NAME_OF_MODEL)]
"""Safe as the name of a file: parties store their shares under it."""
Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class Body(BaseModel):
    """Base of all bodies: frozen, and nothing but the declared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: ClassVar[str]


class SessionRefuse(Body):
    """Passive to active: this party takes no part in the session, and why."""

    kind: ClassVar[str] = "session refuse"

    reason: Reason


class Abort(Body):
    """Either way: the session is over without a result, and why."""

    kind: ClassVar[str] = "abort"

    reason: Reason


class SessionUnknown(Body):
    """Either way: this attempt at the session is unknown here, since a restart. Never sequenced."""

    kind: ClassVar[str] = "session unknown"


class Probe(Body):
    """Either way: are you still there? Answered by acknowledging it."""

    kind: ClassVar[str] = "probe"


class Acknowledge(Body):
    """Either way: the header's ``acknowledged`` is all there is to say. Never sequenced."""

    kind: ClassVar[str] = "acknowledge"


BODIES: tuple[type[Body], ...] = (SessionRefuse, Abort, SessionUnknown, Probe, Acknowledge)
