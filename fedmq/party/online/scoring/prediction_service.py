"""How a request for scores is answered, by HTTP or by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedmq.errors import (
    FedmqError,
)
from fedmq.party.data.id_column import check_lengths
from fedmq.party.online.scoring.request import PredictRequest, RequestError
from fedmq.party.online.scoring.scorer import Scored, Scorer
from fedmq.party.telemetry.serving_counters import ScoreCounters

__all__ = ["Answered", "PredictionService"]


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


class PredictionService:
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
        self.counters = ScoreCounters()
        self._party = party
        self._guesses_unknown = guesses_unknown
        self._comparable = comparable

    async def answer(self, model: str, asked: PredictRequest) -> Answered:
        """The scores that were asked for.

        Raises:
            Wrong: there are none.
        """
        if model not in self.scorer.models:
            raise RequestError(404, f"model: {model!r} is not served here")
        if asked.features is not None and len(asked.features) != len(asked.ids):
            raise RequestError(422, f"features: {len(asked.features)} for {len(asked.ids)} ids")
        seconds = None if asked.deadline_ms is None else asked.deadline_ms / 1000
        try:
            ids = self._comparable(asked.ids)
            check_lengths(ids, lambda place: f"ids.{place}")
            scored = await self.scorer.score(model, ids, asked.features, seconds)
        except FedmqError as error:
            raise RequestError.of(error) from None
        given = self._given(scored, asked)
        if len(given) == 1 and given[0] is None:
            where = ", ".join(sorted(scored.scores.unknown))
            raise RequestError(404, f"ids.0: {asked.ids[0]!r} is not known at {where}")
        self.counters.answered(len(given), bool(scored.scores.degraded))
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
