"""The messages of online scoring, and of the sessions that activate a model.

A question is acknowledged by its answer. Whoever misses the answer asks again, and the same
question always gets the same answer. No answer depends on an earlier one, so a restarted party
answers like any other; what a party remembers only limits what may be asked.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedmq.messages.array import Array, Bitmap, Uint32s
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.fields import Count, Index, ModelId, Reason
from fedmq.messages.inference import SampleId

__all__ = [
    "BODIES",
    "ModelDeploy",
    "ModelDeployed",
    "ModelDismiss",
    "ModelReady",
    "ModelSwitch",
    "OnlineBitmaps",
    "OnlineExits",
    "OnlineHop",
    "OnlinePing",
    "OnlinePong",
    "OnlineRefusal",
    "OnlineRows",
]

Batch = Annotated[int, Field(ge=0, lt=2**53)]
Ids = Annotated[tuple[SampleId, ...], Field(strict=False, min_length=1)]
Budget = Annotated[float, Field(ge=0, le=3600)]
Alias = ModelId


class OnlineHop(Body):
    """Active to passive: from these records on, where do these rows leave your records?"""

    kind: ClassVar[str] = "online hop"

    batch: Batch
    hop: Index
    model: ModelId
    ids: Ids
    rows: Uint32s
    """Positions in ``ids``, one per pair of row and record."""
    records: Uint32s
    budget: Budget
    """Seconds after which the answer is of no use."""

    @model_validator(mode="after")
    def _rows_and_records_pair_up(self) -> Self:
        if self.rows.shape != self.records.shape:
            raise ValueError("as many records as rows are needed")
        if len(self.rows.data) and int(self.rows.values.max()) >= len(self.ids):
            raise ValueError("a row has no id")
        return self


class OnlineExits(Body):
    """Passive to active: for each pair the last of this party's records, and the direction there.

    An exit is twice the record's number, plus one where the row goes left. ``unknown`` are
    positions in the hop's ``ids`` that this party does not know: all their values count as missing.
    """

    kind: ClassVar[str] = "online exits"

    batch: Batch
    hop: Index
    exits: Uint32s
    unknown: Uint32s
    drifts: bool = False
    """An alarm without figures: the people who are asked about differ from those of a training."""


class OnlineRows(Body):
    """Active to passive: which way do these rows go, at each of your records of the model?"""

    kind: ClassVar[str] = "online rows"

    batch: Batch
    hop: Index
    model: ModelId
    ids: Ids
    budget: Budget


class OnlineBitmaps(Body):
    """Passive to active: left or right at each record, row by row; ``unknown`` as in exits."""

    kind: ClassVar[str] = "online bitmaps"

    batch: Batch
    hop: Index
    records: Count
    left: Bitmap
    unknown: Uint32s
    drifts: bool = False
    """As in exits."""


class OnlineRefusal(Body):
    """Passive to active: no answer to this question, and why."""

    kind: ClassVar[str] = "online refusal"

    batch: Batch
    hop: Index
    cause: Literal["policy", "model", "mode", "rate", "records", "data"]
    reason: Reason


class OnlinePing(Body):
    """Active to passive: are you there again?"""

    kind: ClassVar[str] = "online ping"


class OnlinePong(Body):
    """Passive to active: yes."""

    kind: ClassVar[str] = "online pong"


def _check_int32s(array: Array) -> None:
    if array.dtype != "<i4" or len(array.shape) != 1:
        raise ValueError(f"expected a vector of <i4, not {array.dtype} {array.shape}")


class ModelDeploy(Body):
    """Active to each passive: make this model ready to serve, under this name.

    ``left`` and ``right`` hold, for each of the recipient's records, which of its records follows
    directly (-1: none).
    """

    kind: ClassVar[str] = "model deploy"

    alias: Alias
    model: ModelId
    mode: Literal["hop", "bitmap"]
    left: Array
    right: Array

    @model_validator(mode="after")
    def _left_and_right_are_int32s(self) -> Self:
        _check_int32s(self.left)
        _check_int32s(self.right)
        return self


class ModelReady(Body):
    """Passive to active: the share is here and loaded."""

    kind: ClassVar[str] = "model ready"

    explain: bool = True
    """Whether its owner agrees to reasons that say what part it had in a score."""
    columns: RecordColumns | None = None
    """Of the records that have chains, where its owner shows them; otherwise it is one player."""


class ModelSwitch(Body):
    """Active to each passive: all parties are ready, the name means this model from now on."""

    kind: ClassVar[str] = "model switch"


class ModelDismiss(Body):
    """Active to passive: the question was only whether the model is ready; nothing changes."""

    kind: ClassVar[str] = "model dismiss"


class ModelDeployed(Body):
    """Passive to active: the name means this model from now on, also after a restart."""

    kind: ClassVar[str] = "model deployed"


BODIES: tuple[type[Body], ...] = (
    OnlineHop,
    OnlineExits,
    OnlineRows,
    OnlineBitmaps,
    OnlineRefusal,
    OnlinePing,
    OnlinePong,
    ModelDeploy,
    ModelReady,
    ModelSwitch,
    ModelDismiss,
    ModelDeployed,
)
