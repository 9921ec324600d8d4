"""A request for scores as callers write it, and the answer as they read it; JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.errors import (
    DataError,
    FedmqError,
    Overloaded,
    PeerAway,
    PeerSilent,
    Refused,
    TooManyRows,
)
from fedmq.party.id_column import LONGEST_ID, check_lengths
from fedmq.party.serving.meters import ScoreMeters
from fedmq.party.serving.scorer import Scored, Scorer

__all__ = ["Answered", "Counter", "PredictRequest", "PredictResponse", "Wrong"]

Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


class PredictRequest(BaseModel):
    """Who is to be scored, and how long the caller waits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[Id], Field(min_length=1)]
    features: list[dict[str, float | None]] | None = None
    """The label holder's own features of each row, in place of what it has stored."""
    output: Literal["prediction", "margin"] = "prediction"
    deadline_ms: Annotated[float, Field(ge=1, le=60_000)] | None = None

    @classmethod
    def read(cls, body: bytes) -> PredictRequest:
        """The request in JSON.

        Raises:
            Wrong: 400 or 422, naming the field.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise Wrong.field(error) from None


class RowScore(BaseModel):
    """The score of one row; null where there is none."""

    id: str
    score: float | None
    unknown_at: list[str] | None = None
    """Parties that do not know the id. Its values there counted as missing, if a score is given."""


class PredictResponse(BaseModel):
    """Scores in the order of the ids."""

    model: str
    mode: str
    scores: list[RowScore]
    degraded: dict[str, float] | None = None
    """By party that did not answer: the share of (row, tree) pairs that were guessed there."""


class Wrong(Exception):
    """No scores: an HTTP status, and a line that names the field."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @classmethod
    def field(cls, error: ValidationError) -> Wrong:
        """What pydantic found, without the offending value."""
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        status = 400 if first["type"] == "json_invalid" else 422
        return cls(status, f"{where or 'body'}: {first['msg']}")

    @classmethod
    def of(cls, error: FedmqError) -> Wrong:
        """The status that fits ``error``."""
        status = _status(error)
        return cls(status, f"deadline_ms: {error}" if status == 504 else str(error))


def _status(error: FedmqError) -> int:
    if isinstance(error, Overloaded):
        return 429
    if isinstance(error, PeerAway | Refused):
        return 503
    if isinstance(error, PeerSilent):
        return 504
    if isinstance(error, TooManyRows):
        return 413
    if isinstance(error, DataError):
        return 422
    return 500


class Answered:
    """What a request came to. ``given`` are the scores, None where there is none."""

    def __init__(
        self, asked: PredictRequest, scored: Scored, given: Sequence[float | None]
    ) -> None:
        self.scored = scored
        self.given = given
        self._asked = asked

    @property
    def ids(self) -> list[str]:
        """The ids as they were asked for."""
        return self._asked.ids

    @property
    def unknown_at(self) -> list[list[str]]:
        """By row, the parties that do not know it."""
        at: list[list[str]] = [[] for _ in self._asked.ids]
        for party, mask in sorted(self.scored.scores.unknown.items()):
            for row in np.flatnonzero(mask).tolist():
                at[row].append(party)
        return at

    def json(self) -> dict[str, Any]:
        """As :class:`PredictResponse`."""
        rows: list[dict[str, Any]] = [
            {"id": name, "score": score} for name, score in zip(self.ids, self.given, strict=True)
        ]
        if self.scored.scores.unknown:
            for row, at in zip(rows, self.unknown_at, strict=True):
                if at:
                    row["unknown_at"] = at
        answer: dict[str, Any] = {
            "model": self.scored.model,
            "mode": self.scored.mode,
            "scores": rows,
        }
        if self.scored.scores.degraded:
            answer["degraded"] = dict(self.scored.scores.degraded)
        return answer


class Counter:
    """Where requests are handed in, by HTTP or by message.

    Whom the label holder ``party`` does not know gets no score, unless the request brings its
    features. Whom only others do not know gets one if ``guesses_unknown``. ``comparable`` puts
    ids into the form in which the parties compare them.
    """

    def __init__(
        self,
        scorer: Scorer,
        party: str,
        guesses_unknown: bool,
        comparable: Callable[[Sequence[str]], Sequence[str]] = lambda ids: ids,
    ) -> None:
        self.scorer = scorer
        self.meters = ScoreMeters()
        self._party = party
        self._guesses_unknown = guesses_unknown
        self._comparable = comparable

    async def answer(self, model: str, asked: PredictRequest) -> Answered:
        """The scores that were asked for.

        Raises:
            Wrong: there are none.
        """
        if model not in self.scorer.models:
            raise Wrong(404, f"model: {model!r} is not served here")
        if asked.features is not None and len(asked.features) != len(asked.ids):
            raise Wrong(422, f"features: {len(asked.features)} for {len(asked.ids)} ids")
        seconds = None if asked.deadline_ms is None else asked.deadline_ms / 1000
        try:
            ids = self._comparable(asked.ids)
            check_lengths(ids, lambda place: f"ids.{place}")
            scored = await self.scorer.score(model, ids, asked.features, seconds)
        except FedmqError as error:
            raise Wrong.of(error) from None
        given = self._given(scored, asked)
        if len(given) == 1 and given[0] is None:
            where = ", ".join(sorted(scored.scores.unknown))
            raise Wrong(404, f"ids.0: {asked.ids[0]!r} is not known at {where}")
        self.meters.answered(len(given), bool(scored.scores.degraded))
        return Answered(asked, scored, given)

    def _given(self, scored: Scored, asked: PredictRequest) -> Sequence[float | None]:
        scores = scored.scores
        chosen = scores.margins if asked.output == "margin" else scores.predictions
        values: list[float | None] = chosen.astype(np.float64).tolist()
        for party, mask in scores.unknown.items():
            if party == self._party or not self._guesses_unknown:
                for row in np.flatnonzero(mask).tolist():
                    values[row] = None
        return values
