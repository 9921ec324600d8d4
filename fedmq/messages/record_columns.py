"""Which records share a column? Part of messages in which an owner shows so much."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, Field

from fedmq.messages.array import Uint32s

__all__ = ["RecordColumns", "Text"]

Text = Annotated[str, Field(max_length=200)]


class RecordColumns(BaseModel):
    """The number of each record's column, and by column what its owner publishes as a reason."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    column: Uint32s
    texts: Annotated[tuple[Text, ...], Field(strict=False), FailFast()]
