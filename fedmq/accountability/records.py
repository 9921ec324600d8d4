"""What may a record of a transcript hold? It comes from the party that it clears or convicts."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedmq.messages import training
from fedmq.protocol.records import AnswerSettings, Commitment

__all__ = ["LEAN", "Record", "commitment_in", "read_record"]

LEAN = (
    training.EngineSetup,
    training.HistogramReply,
    training.GradientBroadcast,
    training.QueryPiece,
)
"""Messages whose payload may be left out; the auditor hashes all others."""

_LIST = Field(strict=False)  # msgpack gives lists
_Number = Annotated[int, Field(ge=1, lt=2**62)]
_Count = Annotated[int, Field(ge=0, lt=2**40)]
_Hash = Annotated[bytes, Field(min_length=32, max_length=32)]
_NoHash = Annotated[bytes, Field(max_length=0)]


class CommitmentFields(BaseModel):
    """A `Commitment` as plain data; the table's values as little-endian float32."""

    model_config = ConfigDict(frozen=True, strict=True)

    values: bytes
    shape: Annotated[tuple[_Count, _Count], _LIST]
    features: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    alignment: str
    digest: str
    secret: Annotated[bytes, Field(min_length=16, max_length=16)]
    settings: AnswerSettings
    root: _Hash


CommitmentRecord = Annotated[tuple[Literal["commitment"], _Number, CommitmentFields], _LIST]
StatementRecord = Annotated[tuple[Literal["statement"], _Number, bytes, bytes], _LIST]
MessageRecord = Annotated[
    tuple[Literal["message"], _Number, bool, _Number, str, bytes, _Hash | _NoHash], _LIST
]
Record = CommitmentRecord | StatementRecord | MessageRecord

_RECORD: TypeAdapter[Record] = TypeAdapter(Record, config=ConfigDict(strict=True))


def read_record(record: object) -> Record:
    """Read an unpacked ``record``; ValueError if it is not a record."""
    return _RECORD.validate_python(record)


def commitment_in(fields: CommitmentFields) -> Commitment:
    """The commitment with these ``fields``; ValueError if they do not fit together."""
    values = np.frombuffer(fields.values, "<f4").reshape(fields.shape).astype(np.float32)
    if len(fields.features) != values.shape[1]:
        raise ValueError("another number of columns than of names")
    return Commitment(
        values,
        fields.features,
        fields.alignment,
        fields.digest,
        int.from_bytes(fields.secret, "big"),
        fields.settings,
        fields.root,
    )
