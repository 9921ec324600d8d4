"""The content of a model card: parties, training data, quality and disclosure of a model."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.boosting.model.share import ActiveShare, Withheld
from fedmq.errors import DataError
from fedmq.messages.fields import ModelId, PartyName

__all__ = [
    "CardDrift",
    "CardEngine",
    "CardEvaluation",
    "CardFigure",
    "CardSelection",
    "CardTraining",
    "ModelCard",
    "Worth",
    "canonical",
    "card_in",
    "finite",
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CardEngine(_Part):
    """How an engine kept gradients secret, and its own words about what each side learned."""

    name: str
    exact: bool
    active_learns: str
    passive_learns: str
    known_leak: str = ""


class CardSelection(_Part):
    """How columns were selected before the training, by a screen of the active party.

    ``columns``: by party, how many were selected, of how many; parties that are left out trained
    with all. ``rule``: what a column had to meet. ``looked_at`` of ``rows`` people were looked at.
    """

    screen: ModelId
    made: str
    alignment: str = ""
    rows: int
    looked_at: int
    rule: dict[str, float]
    columns: dict[PartyName, tuple[int, int]]


class CardTraining(_Part):
    """One training: its rows, and those of them that were held out."""

    session: str
    rows: int
    held_out: int
    alignment: str = ""
    """Its name; empty where all parties hold exactly the same ids."""
    began: str
    ended: str
    engine: CardEngine
    selection: CardSelection | None = None
    """None: it was offered all columns."""


class CardFigure(_Part):
    """A metric with the interval that holds 95 % of its bootstrap samples."""

    value: float | None
    low: float | None = None
    high: float | None = None


class CardEvaluation(_Part):
    """The model's quality on rows whose labels are known.

    ``calibration``: mean score, share of ones and number of rows of each tenth.
    """

    rows: str
    made: str
    metrics: dict[str, CardFigure]
    calibration: tuple[tuple[float, float, float], ...] = ()
    held_out: bool = True
    """Whether the training held these rows out; it may have learned from those of a file."""


class CardDrift(_Part):
    """The active party's drift threshold: a stability index over the people scored last."""

    threshold: float
    rows: int
    least_rows: int


class Worth(_Part):
    """The ``metric`` of a ``model`` trained in the same way ``without`` a party."""

    model: ModelId
    metric: str
    value: float | None
    without: float | None
    difference: float | None

    @classmethod
    def of(cls, share: ActiveShare, without: ActiveShare) -> Self:
        """The last metric of a model, and that of a model ``without`` a party.

        Raises ValueError if a training evaluated nothing.
        """
        *_, metric = share.metrics or [""]
        if metric not in without.metrics:
            raise ValueError("there is no metric to compare by")
        value, other = finite(share.metrics[metric]), finite(without.metrics[metric])
        difference = None if value is None or other is None else value - other
        return cls(
            model=without.model_id, metric=metric, value=value, without=other, difference=difference
        )


def finite(value: float) -> float | None:
    """``value``, or None for NaN, such as the AUC of a single label."""
    return float(value) if math.isfinite(value) else None


class ModelCard(_Part):
    """The active party's final description of a model, which the parties sign.

    ``training`` is None for a model of an earlier fedmq or an imported share. ``total_gain`` and
    ``splits`` are by party. ``metrics``: those of the training, after the last tree.
    """

    format: Literal["fedmq.model-card"] = "fedmq.model-card"
    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: ModelId
    made: str
    federation: PartyName
    parties: tuple[PartyName, ...]
    objective: str
    params: dict[str, Any]
    trees: int
    refreshes: ModelId | Literal[""] = ""
    """The model whose splits these are, with leaves weighed anew on the rows of the training."""
    departures: tuple[str, ...]
    withheld: dict[PartyName, Withheld]
    training: CardTraining | None = None
    metrics: dict[str, float | None] = {}
    evaluation: CardEvaluation | None = None
    total_gain: dict[PartyName, float]
    splits: dict[PartyName, int]
    worth: dict[PartyName, Worth] = {}
    drift: CardDrift | None = None


def canonical(document: BaseModel) -> str:
    """``document`` as canonical JSON: sorted keys, no spaces, ASCII.

    Fields with their defaults are left out, so today's signatures stay valid when a later fedmq
    adds fields.
    """
    return json.dumps(
        document.model_dump(mode="json", exclude_defaults=True),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def card_in(text: str) -> ModelCard:
    """The card whose canonical form is ``text``; DataError if there is none."""
    try:
        card = ModelCard.model_validate_json(text)
        if canonical(card) != text:
            raise ValueError
    except (ValidationError, ValueError, RecursionError):
        raise DataError("this is no model card of this fedmq, or it was altered") from None
    return card
