"""What a model card says: who trained a model, on what, how good it is, and what was disclosed."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.boosting.model.share import Withheld
from fedmq.errors import DataError
from fedmq.messages.body import ModelId
from fedmq.messages.envelope import PartyName

__all__ = [
    "CardDrift",
    "CardEngine",
    "CardEvaluation",
    "CardFigure",
    "CardTraining",
    "ModelCard",
    "Worth",
    "canonical",
    "card_in",
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CardEngine(_Part):
    """How gradients were kept secret; what each side learned beyond the model, in its own words."""

    name: str
    exact: bool
    active_learns: str
    passive_learns: str
    known_leak: str = ""


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


class CardFigure(_Part):
    """A metric, and between which values 95 % of its bootstrap samples lie."""

    value: float | None
    low: float | None = None
    high: float | None = None


class CardEvaluation(_Part):
    """How good the model is on rows that it did not learn from.

    ``calibration``: mean score, share of ones and number of rows, tenth by tenth.
    """

    rows: str
    made: str
    metrics: dict[str, CardFigure]
    calibration: tuple[tuple[float, float, float], ...] = ()


class CardDrift(_Part):
    """What the active party takes for drift: a stability index, of so many people scored last."""

    threshold: float
    rows: int
    least_rows: int


class Worth(_Part):
    """What ``metric`` is ``without`` a party, by a ``model`` that was trained like this one."""

    model: ModelId
    metric: str
    value: float | None
    without: float | None
    difference: float | None


class ModelCard(_Part):
    """A model as its active party describes it, once and for all: what is signed.

    ``training`` is None for a model of an earlier fedmq, or one whose share was imported.
    ``total_gain`` and ``splits``: what each party's columns brought. ``metrics``: those of the
    training, after the last tree.
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
    """``document`` as JSON that has one form alone: keys in order, no spaces, ASCII.

    What has its default is left out, so that cards of today fit their signatures when a later
    fedmq knows more fields.
    """
    return json.dumps(
        document.model_dump(mode="json", exclude_defaults=True),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def card_in(text: str) -> ModelCard:
    """The card of which ``text`` is the canonical form; DataError where there is none."""
    try:
        card = ModelCard.model_validate_json(text)
        if canonical(card) != text:
            raise ValueError
    except (ValidationError, ValueError, RecursionError):
        raise DataError("this is no model card of this fedmq, or it was altered") from None
    return card
