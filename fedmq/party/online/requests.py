"""What do callers ask for, by HTTP or by message, and what do they read?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from random import Random
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fedmq.boosting.model.contributions import Player
from fedmq.errors import FedmqError, LinkError, PeerSilent
from fedmq.party.configuration.online import RequestsSection
from fedmq.party.data.id_column import LONGEST_ID, check_lengths
from fedmq.party.online.scoring import ScoredRequest, Scorer
from fedmq.party.telemetry.metrics import ScoreCounters
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received

__all__ = [
    "PredictRequest",
    "PredictResponse",
    "Prediction",
    "PredictionService",
    "RequestError",
    "RequestQueue",
    "RowScore",
    "Score",
    "ScoreReason",
]

log = logging.getLogger(__name__)

_LONGEST_LINE = 1000  # of an error: it repeats names that the caller has chosen

Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]

Score = float | list[float]
"""A number, or one for each class."""


def _up_to_a_wrong_cell(rows: Any) -> Any:
    """``rows``, of which a row with a wrong cell is the last, and holds this cell alone."""
    if isinstance(rows, list):
        for place, row in enumerate(rows):
            for name, cell in row.items() if isinstance(row, dict) else ():
                if type(cell) not in _CELLS:
                    return [*rows[:place], {name: cell}]
    return rows


_CELLS = (float, int, str, type(None))
_Rows = Annotated[
    list[dict[str, float | str | None]],
    Field(fail_fast=True),
    BeforeValidator(_up_to_a_wrong_cell),
]
_Margins = Annotated[list[float], Field(fail_fast=True)]
_Lists = Annotated[list[_Margins], Field(fail_fast=True)]


class PredictRequest(BaseModel):
    """The rows to score, and how long the caller waits.

    Reading ends at the first wrong item: a body may hold millions, and each would be an error.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[Id], Field(min_length=1, fail_fast=True)]
    features: _Rows | None = None
    """The active party's own columns of each row, in place of what it has stored: numbers, and the
    text of categories."""
    base_margin: _Margins | _Lists | None = None
    """Where each row starts, not at the model's base score: a margin, or one for each class."""
    output: Literal["prediction", "margin"] = "prediction"
    explain: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many reasons each score comes with: the contributions to the margin that weigh most."""
    deadline_ms: Annotated[float, Field(ge=1, le=60_000)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_field(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        known = {name: fields[name] for name in cls.model_fields if name in fields}
        return known | dict(islice((field for field in fields.items() if field[0] not in known), 1))

    @classmethod
    def read(cls, body: bytes) -> PredictRequest:
        """The request in JSON.

        Raises:
            RequestError: 400 or 422, naming the field.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise RequestError.field(error) from None

    @classmethod
    def read_named(cls, body: bytes) -> tuple[str, PredictRequest]:
        """The model and the request: as over HTTP, plus the field ``model`` in the body.

        Raises:
            RequestError: as `read`.
        """
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise RequestError(400, "body: no JSON object")
        model = fields.pop("model", "production")
        if not isinstance(model, str):
            raise RequestError(422, "model: not a string")
        return model, cls.read(json.dumps(fields).encode())


class RequestError(Exception):
    """A request without scores: the HTTP status, and a line that names the field."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…")
        self.http_status = http_status

    @classmethod
    def field(cls, error: ValidationError) -> RequestError:
        """The first error that pydantic found, without the offending value."""
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        status = 400 if first["type"] == "json_invalid" else 422
        return cls(status, f"{where or 'body'}: {first['msg']}")

    @classmethod
    def of(cls, error: FedmqError) -> RequestError:
        """``error`` for the caller; after a timeout, with the field that allows more."""
        ran_out = error.http_status == PeerSilent.http_status
        return cls(error.http_status, f"deadline_ms: {error}" if ran_out else str(error))


class PredictionService:
    """Answers requests with the scores of ``scorer``, at the active party.

    A row that the active party does not know gets no score, unless the request brings its
    features. ``comparable`` normalises ids to the form that the parties compare.
    """

    def __init__(
        self,
        scorer: Scorer,
        comparable: Callable[[Sequence[str]], Sequence[str]] = lambda ids: ids,
    ) -> None:
        self.scorer = scorer
        self.counters = ScoreCounters()
        self._comparable = comparable

    async def answer(self, model: str, request: PredictRequest) -> Prediction:
        """The scores of ``request`` by ``model``, a model's id or a name.

        Raises:
            RequestError: there are no scores; its status says why.
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
        self.counters.answered(len(values), bool(scored.degraded))
        return Prediction(request.ids, values, scored, request.explain)

    def _values(self, scored: ScoredRequest, request: PredictRequest) -> Sequence[Score | None]:
        scores = scored.scores
        chosen = scores.margins if request.output == "margin" else scores.predictions
        values: list[Score | None] = chosen.astype(np.float64).tolist()
        for row in np.flatnonzero(scored.blank).tolist():
            values[row] = None
        return values


class ScoreReason(BaseModel):
    """A party, or one of its columns, and what it added to the margin."""

    party: str
    column: str | int | None = None
    """The active party's own by name, another party's by number; null: all of the party's."""
    value: float
    text: str | None = None
    """What its owner publishes of it."""


class RowScore(BaseModel):
    """The score of one row: a number, or one for each class; null where there is none."""

    id: str
    score: Score | None
    unknown_at: list[str] | None = None
    """Parties that do not know the id. If a score is given, it is the fallback model's; or values
    there counted as missing, and the model has learned from people whom these parties lack where
    such values go."""
    fallback: str | None = None
    """The fallback model that gave the score, without the parties that say nothing of the row."""
    reasons: list[ScoreReason] | None = None
    """The strongest first, as many as ``explain`` asks for; null where a score is a guess."""


class PredictResponse(BaseModel):
    """Scores in the order of the ids."""

    model: str
    mode: str
    scores: list[RowScore]
    degraded: dict[str, float] | None = None
    """By party that did not answer: the share of (row, tree) pairs that were guessed there, or of
    rows that were scored without it. By party that does not know some of the ids: their share."""


class Prediction:
    """An answered request: ``values`` are the scores of ``ids``, None for a missing score.

    ``ids`` are written as in the request; ``scored`` says how the scores came about. Each score
    has ``explain`` reasons.
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
        self.degraded = scored.degraded
        self.waited = scored.scores.waited
        """By asked party, the seconds from questions to their answers."""
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
    def fallback(self) -> list[str | None]:
        """By row, the fallback model that gave its score; None if the model itself did."""
        models: list[str | None] = [None] * len(self.ids)
        for model, mask in self._scored.fallback.items():
            for row in np.flatnonzero(mask & ~self._scored.blank).tolist():
                models[row] = model
        return models

    @property
    def reasons(self) -> list[list[dict[str, Any]] | None] | None:
        """By row the fields of `ScoreReason`; None if there are none, or the request wants none."""
        if self._explain is None:
            return None
        found, players = self._scored.contributions, self._scored.players
        if found is None:
            return [None for _ in self.ids]
        order = np.argsort(-np.abs(found[:, :-1]), axis=1, kind="stable")[:, : self._explain]
        return [
            None
            if value is None or np.isnan(values[-1])
            else [
                _reason(players[player], contribution)
                for player, contribution in zip(row.tolist(), values[row].tolist(), strict=True)
                if contribution
            ]
            for value, row, values in zip(self.values, order, found, strict=True)
        ]

    def json(self) -> dict[str, Any]:
        """The fields of :class:`PredictResponse`; empty ones are left out."""
        rows: list[dict[str, Any]] = [
            {"id": name, "score": value} for name, value in zip(self.ids, self.values, strict=True)
        ]
        if self._unknown:
            for row, parties in zip(rows, self.unknown_at, strict=True):
                if parties:
                    row["unknown_at"] = parties
        for row, model in zip(rows, self.fallback, strict=True):
            if model is not None:
                row["fallback"] = model
        for row, reasons in zip(rows, self.reasons or (), strict=False):
            row["reasons"] = reasons
        answer: dict[str, Any] = {"model": self.model, "mode": self._mode, "scores": rows}
        if self.degraded:
            answer["degraded"] = dict(self.degraded)
        return answer


def _reason(player: Player, value: float) -> dict[str, Any]:
    reason = {"party": player.party, "column": player.column, "value": value, "text": player.text}
    return {name: held for name, held in reason.items() if held is not None and held != ""}


class RequestQueue:
    """Reads ``section.queue`` of the active party's own systems; answers go to ``reply_to``.

    The queue may be on another broker than the federation's, so that no other party sees the
    requests and their answers.

    A request is acknowledged after its answer, so a restart of the daemon or the broker loses
    none; it may then be answered twice.
    """

    def __init__(self, section: RequestsSection, predictions: PredictionService) -> None:
        self.trouble = ""
        """Why no requests are read now; empty if they are."""
        self._section = section
        self._predictions = predictions
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Connect, and stay connected."""
        self._tasks.spawn(self._run(), name="requests")

    async def close(self) -> None:
        """Stop reading; the broker delivers unanswered requests again."""
        await self._tasks.close()

    async def _run(self) -> None:
        address = BrokerAddress.parse(self._section.broker.get_secret_value())
        delays = Backoff(limit=5.0).delays(Random())
        while True:
            try:
                connection = await BrokerConnection.open(address, "fedmq requests")
                try:
                    await self._serve(connection)
                finally:
                    await connection.close()
                delays = Backoff(limit=5.0).delays(Random())
            except LinkError as error:
                self._note(str(error))
            await asyncio.sleep(next(delays))

    async def _serve(self, connection: BrokerConnection) -> None:
        async def receive(message: Received) -> None:
            self._tasks.spawn(self._answer(connection, message))

        await connection.consume(self._section.queue, receive)
        log.info("requests are read from %s", self._section.queue)
        self.trouble = ""
        self._note(await connection.ended())

    def _note(self, trouble: str) -> None:
        self.trouble = f"online.requests: {trouble}"
        log.warning("%s", self.trouble)

    async def _answer(self, connection: BrokerConnection, message: Received) -> None:
        answer = json.dumps(await self._response(message.body)).encode()
        if message.reply_to:
            try:
                await connection.reply(message.reply_to, answer, message.correlation_id)
            except LinkError as error:
                log.warning("requests: an answer was not sent: %s", error)
                # The broker delivers an unsettled message again, on a new connection only.
                connection.give_up(str(error))
                return
        await message.settle(accept=True)

    async def _response(self, body: bytes) -> dict[str, Any]:
        try:
            with self._predictions.counters.request():
                model, request = PredictRequest.read_named(body)
                prediction = await self._predictions.answer(model, request)
        except RequestError as error:
            return {"status": error.http_status, "error": str(error)}
        except (
            Exception
        ) as error:  # answered too: otherwise the broker would redeliver the message forever
            log.exception("requests: a request failed")
            return {"status": 500, "error": f"internal error: {type(error).__name__}"}
        return {"status": 200, **prediction.json()}
