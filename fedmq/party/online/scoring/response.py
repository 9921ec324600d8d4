"""The answer to a request for scores as callers read it; JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from fedmq.party.online.scoring.scorer import ScoredRequest

__all__ = ["PredictResponse", "Prediction", "RowScore", "Score"]

Score = float | list[float]
"""A number, or one for each class."""


class RowScore(BaseModel):
    """The score of one row: a number, or one for each class; null where there is none."""

    id: str
    score: Score | None
    unknown_at: list[str] | None = None
    """Parties that do not know the id. Its values there counted as missing, if a score is given."""


class PredictResponse(BaseModel):
    """Scores in the order of the ids."""

    model: str
    mode: str
    scores: list[RowScore]
    degraded: dict[str, float] | None = None
    """By party that did not answer: the share of (row, tree) pairs that were guessed there."""


class Prediction:
    """An answered request: ``values`` are the scores of ``ids``, None where there is none.

    ``ids`` are written as in the request; ``scored`` says how the scores came about.
    """

    def __init__(
        self, ids: Sequence[str], values: Sequence[Score | None], scored: ScoredRequest
    ) -> None:
        self.ids = ids
        self.values = values
        self.model = scored.model
        self.degraded = scored.scores.degraded
        self._mode = scored.mode
        self._unknown = scored.scores.unknown

    @property
    def unknown_at(self) -> list[list[str]]:
        """By row, the parties that do not know it."""
        parties: list[list[str]] = [[] for _ in self.ids]
        for party, mask in sorted(self._unknown.items()):
            for row in np.flatnonzero(mask).tolist():
                parties[row].append(party)
        return parties

    def json(self) -> dict[str, Any]:
        """As :class:`PredictResponse`; what is empty is left out."""
        rows: list[dict[str, Any]] = [
            {"id": name, "score": value} for name, value in zip(self.ids, self.values, strict=True)
        ]
        if self._unknown:
            for row, parties in zip(rows, self.unknown_at, strict=True):
                if parties:
                    row["unknown_at"] = parties
        answer: dict[str, Any] = {"model": self.model, "mode": self._mode, "scores": rows}
        if self.degraded:
            answer["degraded"] = dict(self.degraded)
        return answer
