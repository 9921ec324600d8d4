"""The envelope: which kind of message goes from whom to whom, in which session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from fedmq.messages.body import Body
from fedmq.messages.fields import PartyName

__all__ = ["PROTOCOL_VERSION", "Envelope", "Header"]

PROTOCOL_VERSION = 2


class Header(BaseModel):
    """Travels beside the body: what it takes to route, order and acknowledge, and no more."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = PROTOCOL_VERSION
    id: Annotated[str, Field(pattern=r"^[ -~]{1,200}$")]
    """Unique, and the same each time the message is sent again."""
    federation: PartyName
    session: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    """Safe as part of a file name, for a peer chooses it."""
    attempt: Annotated[int, Field(ge=1, lt=2**31)]
    sender: PartyName
    recipient: PartyName
    sequence: Annotated[int, Field(ge=0, lt=2**62)]
    """1, 2, 3, ... from this sender to this recipient in this attempt.

    0 is outside the order: acknowledgements, online messages, and messages about a session that the
    sender does not know.
    """
    acknowledged: Annotated[int, Field(ge=0, lt=2**62)]
    """The sender has received all of the recipient's messages up to this sequence."""
    kind: Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]

    @classmethod
    def unsequenced(
        cls,
        message_id: str,
        *,
        federation: str,
        session: str,
        attempt: int,
        sender: str,
        recipient: str,
        kind: str,
    ) -> Self:
        """The header of a message outside the order, which acknowledges nothing."""
        return cls(
            id=message_id,
            federation=federation,
            session=session,
            attempt=attempt,
            sender=sender,
            recipient=recipient,
            sequence=0,
            acknowledged=0,
            kind=kind,
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """A header and the body it announces."""

    header: Header
    body: Body
