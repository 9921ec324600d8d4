"""The answer to a request for scores as callers read it; JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from fedmq.boosting.model.contributions import Player
from fedmq.party.online.scoring.scorer import ScoredRequest

__all__ = ["PredictResponse", "Prediction", "RowScore", "Score", "ScoreReason"]

Score = float | list[float]
"""A number, or one for each class."""


class ScoreReason(BaseModel):
    """A party, or one of its columns, and what it added to the margin."""

    party: str
    column: str | int | None = None
    """The label holder's own by name, another party's by number; null: all of the party's."""
    value: float
    text: str | None = None
    """What its owner publishes of it."""


class RowScore(BaseModel):
    """The score of one row: a number, or one for each class; null where there is none."""

    id: str
    score: Score | None
    unknown_at: list[str] | None = None
    """Parties that do not know the id. Its values there counted as missing, if a score is given."""
    reasons: list[ScoreReason] | None = None
    """The strongest first, as many as ``explain`` asks for; null where a score is a guess."""


class PredictResponse(BaseModel):
    """Scores in the order of the ids."""

    model: str
    mode: str
    scores: list[RowScore]
    degraded: dict[str, float] | None = None
    """By party that did not answer: the share of (row, tree) pairs that were guessed there."""


class Prediction:
    """An answered request: ``values`` are the scores of ``ids``, None where there is none.

    ``ids`` are written as in the request; ``scored`` says how the scores came about. Each comes
    with ``explain`` reasons.
    """

    def __init__(
        self,
        ids: Sequence[str],
        values: Sequence[Score | None],
        scored: ScoredRequest,
        explain: int | None = None,
    ) -> None:
        self.ids = ids
        self.values = values
        self.model = scored.model
        self.degraded = scored.scores.degraded
        self.waited = scored.scores.waited
        """By party that was asked, the seconds from questions to their answers."""
        self._mode = scored.mode
        self._unknown = scored.scores.unknown
        self._scored = scored
        self._explain = explain

    @property
    def unknown_at(self) -> list[list[str]]:
        """By row, the parties that do not know it."""
        parties: list[list[str]] = [[] for _ in self.ids]
        for party, mask in sorted(self._unknown.items()):
            for row in np.flatnonzero(mask).tolist():
                parties[row].append(party)
        return parties

    @property
    def reasons(self) -> list[list[dict[str, Any]] | None] | None:
        """By row what `ScoreReason` says; None where there are none, or nobody asked for them."""
        if self._explain is None:
            return None
        found, players = self._scored.contributions, self._scored.players
        if found is None:
            return [None for _ in self.ids]
        order = np.argsort(-np.abs(found[:, :-1]), axis=1, kind="stable")[:, : self._explain]
        return [
            None
            if value is None
            else [
                _reason(players[player], contribution)
                for player, contribution in zip(row.tolist(), values[row].tolist(), strict=True)
                if contribution
            ]
            for value, row, values in zip(self.values, order, found, strict=True)
        ]

    def json(self) -> dict[str, Any]:
        """As :class:`PredictResponse`; what is empty is left out."""
        rows: list[dict[str, Any]] = [
            {"id": name, "score": value} for name, value in zip(self.ids, self.values, strict=True)
        ]
        if self._unknown:
            for row, parties in zip(rows, self.unknown_at, strict=True):
                if parties:
                    row["unknown_at"] = parties
        for row, reasons in zip(rows, self.reasons or (), strict=False):
            row["reasons"] = reasons
        answer: dict[str, Any] = {"model": self.model, "mode": self._mode, "scores": rows}
        if self.degraded:
            answer["degraded"] = dict(self.degraded)
        return answer


def _reason(player: Player, value: float) -> dict[str, Any]:
    reason = {"party": player.party, "column": player.column, "value": value, "text": player.text}
    return {name: held for name, held in reason.items() if held is not None and held != ""}
