"""The messages of online scoring, and of the sessions that activate a model.

A question is acknowledged by its answer. Whoever misses the answer asks again, and the same
question always gets the same answer. No answer depends on an earlier one, so a restarted party
answers like any other; what a party remembers only limits what may be asked.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fedmq.messages.array import Array, Bitmap, Uint32s
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.fields import Count, Index, ModelId, Reason, TrainingId
from fedmq.messages.inference import SampleId, SealedTerms

__all__ = [
    "BODIES",
    "MASK_BYTES",
    "QUESTIONS",
    "ModelDeploy",
    "ModelDeployed",
    "ModelDismiss",
    "ModelReady",
    "ModelSwitch",
    "OnlineBitmaps",
    "OnlineExits",
    "OnlineHop",
    "OnlineMaskAsk",
    "OnlineMasks",
    "OnlinePing",
    "OnlinePong",
    "OnlineProducts",
    "OnlineQuestion",
    "OnlineRefusal",
    "OnlineRows",
    "OnlineSealed",
]

_Mode = Literal["hop", "bitmap", "sealed"]
Batch = Annotated[int, Field(ge=0, lt=2**53)]
Ids = Annotated[tuple[SampleId, ...], Field(strict=False, min_length=1)]
Budget = Annotated[float, Field(ge=0, le=3600)]
Alias = ModelId
_Seed = Annotated[bytes, Field(min_length=32, max_length=32)]
MASK_BYTES = 48


def _check_mask(mask: bytes) -> bytes:
    if len(mask) not in (0, MASK_BYTES):
        raise ValueError(f"a mask is named by {MASK_BYTES} bytes, or there is none")
    return mask


_Mask = Annotated[bytes, AfterValidator(_check_mask)]


class OnlineHop(Body):
    """Active to passive: from these records on, where do these rows leave your records?"""

    kind: ClassVar[str] = "online hop"
    mode: ClassVar[_Mode] = "hop"

    batch: Batch
    hop: Index
    model: ModelId
    ids: Ids
    rows: Uint32s
    """Positions in ``ids``, one per pair of row and record."""
    records: Uint32s
    budget: Budget
    """Seconds after which the answer is of no use."""
    training: TrainingId = ""
    """As in an inference open."""

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
    mode: ClassVar[_Mode] = "bitmap"

    batch: Batch
    hop: Index
    model: ModelId
    ids: Ids
    budget: Budget
    training: TrainingId = ""


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


class OnlineSealed(Body):
    """Active to passive: multiply these ciphertexts, which have the slots of these rows.

    A row's slots fill one ciphertext or several, or some rows share one.
    """

    kind: ClassVar[str] = "online sealed"
    mode: ClassVar[_Mode] = "sealed"

    batch: Batch
    hop: Index
    model: ModelId
    ids: Ids
    key: _Seed
    """Names the active party's public key, which came when the model was activated."""
    mask: _Mask
    """What the answer of the party before said of its mask; empty at the first party."""
    seeds: Annotated[tuple[_Seed, ...], Field(strict=False, min_length=1, max_length=16)]
    words: Array
    budget: Budget
    reasons: bool = False
    """Whether each party's part in a score is summed, in slots as the terms of sealed scores with
    reasons have them."""


class OnlineProducts(Body):
    """Passive to active: the products, which nobody can read but the next passive party; of the
    last one only what tells the sums of the rows. ``unknown`` as in exits."""

    kind: ClassVar[str] = "online products"

    batch: Batch
    hop: Index
    mask: _Mask
    """By which the next party finds the mask again; the active party hands it on unread. Empty at
    the last party."""
    masks: Array
    numbers: Array
    unknown: Uint32s
    drifts: bool = False
    """As in exits."""


class OnlineMaskAsk(Body):
    """Passive to the passive party before it: from which seed do your masks follow?"""

    kind: ClassVar[str] = "online mask ask"

    model: ModelId


class OnlineMasks(Body):
    """Passive to the next passive party: the seed of masks, until either is started again. The
    active party must never see it."""

    kind: ClassVar[str] = "online masks"

    model: ModelId
    seed: _Seed


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
    mode: _Mode
    left: Array
    right: Array
    sealed: SealedTerms | None = None
    """Given in mode ``sealed``, and in no other."""
    training: TrainingId = ""
    """As in an inference open."""

    @model_validator(mode="after")
    def _left_and_right_are_int32s(self) -> Self:
        _check_int32s(self.left)
        _check_int32s(self.right)
        return self

    @model_validator(mode="after")
    def _sealed_where_the_mode_is(self) -> Self:
        if (self.mode == "sealed") != (self.sealed is not None):
            raise ValueError("terms of sealed scores are needed in mode sealed, and in no other")
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
    OnlineSealed,
    OnlineProducts,
    OnlineMaskAsk,
    OnlineMasks,
    OnlineRefusal,
    OnlinePing,
    OnlinePong,
    ModelDeploy,
    ModelReady,
    ModelSwitch,
    ModelDismiss,
    ModelDeployed,
)

OnlineQuestion = OnlineHop | OnlineRows | OnlineSealed
"""What the active party asks about people; ``mode`` says in which mode."""
QUESTIONS = (OnlineHop, OnlineRows, OnlineSealed)
