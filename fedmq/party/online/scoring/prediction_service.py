"""How a request for scores is answered, by HTTP or by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedmq.errors import FedmqError
from fedmq.party.data.id_column import check_lengths
from fedmq.party.online.scoring.request import PredictRequest, RequestError
from fedmq.party.online.scoring.response import Prediction, Score
from fedmq.party.online.scoring.scorer import ScoredRequest, Scorer
from fedmq.party.telemetry.metrics import ScoreCounters

__all__ = ["PredictionService"]


class PredictionService:
    """Answers requests with the scores of ``scorer``, which is the label holder ``party``'s.

    A row that the label holder does not know gets no score, unless the request brings its
    features. A row that only other parties do not know gets a score if ``guesses_unknown``: its
    values there count as missing. ``comparable`` puts ids into the form in which the parties
    compare them.
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

    async def answer(self, model: str, request: PredictRequest) -> Prediction:
        """The scores of ``request`` by ``model``, which is a model's id or a name.

        Raises:
            RequestError: there are none; its status says why.
        """
        if model not in self.scorer.models:
            raise RequestError(404, f"model: {model!r} is not served here")
        features = request.features
        if features is not None and len(features) != len(request.ids):
            raise RequestError(422, f"features: {len(features)} for {len(request.ids)} ids")
        seconds = None if request.deadline_ms is None else request.deadline_ms / 1000
        try:
            ids = self._comparable(request.ids)
            check_lengths(ids, lambda place: f"ids.{place}")
            explain = request.explain is not None
            scored = await self.scorer.score(
                model, ids, features, seconds, explain, request.base_margin
            )
        except FedmqError as error:
            raise RequestError.of(error) from None
        values = self._values(scored, request)
        if len(values) == 1 and values[0] is None:
            where = ", ".join(sorted(scored.scores.unknown))
            raise RequestError(404, f"ids.0: {request.ids[0]!r} is not known at {where}")
        self.counters.answered(len(values), bool(scored.scores.degraded))
        return Prediction(request.ids, values, scored, request.explain)

    def _values(self, scored: ScoredRequest, request: PredictRequest) -> Sequence[Score | None]:
        scores = scored.scores
        chosen = scores.margins if request.output == "margin" else scores.predictions
        values: list[Score | None] = chosen.astype(np.float64).tolist()
        for party, mask in scores.unknown.items():
            if party == self._party or not self._guesses_unknown:
                for row in np.flatnonzero(mask).tolist():
                    values[row] = None
        return values
