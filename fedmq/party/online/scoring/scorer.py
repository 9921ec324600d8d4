"""Requests for scores: admitted, put together into batches, and answered in time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError, Overloaded, PeerSilent, TooManyRows
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.scoring.batcher import Batcher, Waiting
from fedmq.party.online.scoring.circuit_breaker import CircuitBreaker, Peers
from fedmq.party.online.scoring.request_features import given_values
from fedmq.party.online.scoring.served_model import ServedModel
from fedmq.protocol.online.computations import OnlineScores
from fedmq.protocol.online.options import Mode
from fedmq.transport.priority import PriorityGate

if TYPE_CHECKING:
    from fedmq.party.telemetry.serving_spans import OnlineSpans

__all__ = ["Scored", "Scorer"]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of one request; as :class:`OnlineScores`, ``unknown`` also at the label holder."""

    model: str
    mode: Mode
    scores: OnlineScores


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    requests: int = 0
    rows: int = 0
    failed: int = 0
    degraded: int = 0
    turned_away: int = 0


class Scorer:
    """Scores rows with the models in ``models``, asking other parties through ``say``.

    ``say`` takes (recipient, body, session, seconds for which it is of use).
    """

    def __init__(
        self,
        party: str,
        section: OnlineSection,
        say: Callable[[str, Body, str, float], None],
        on_not_served: Callable[[str, str], None] = lambda _, __: None,
        spans: OnlineSpans | None = None,
        priority_gate: PriorityGate | None = None,
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        """By name and by model id."""
        self.counts = Counts()
        self.session = f"online-{secrets.token_hex(6)}"
        self._party = party
        self._section = section
        self._closing = False
        self._priority_gate = priority_gate or PriorityGate()
        self._say_to = say
        self._peers = Peers(self._say)
        self.batcher = Batcher(self.session, section, self._peers, self._say, on_not_served, spans)

    async def score(
        self,
        name: str,
        ids: Sequence[str],
        features: Sequence[Mapping[str, float | None]] | None = None,
        seconds: float | None = None,
    ) -> Scored:
        """Scores of ``ids`` by the model or name ``name``, within ``seconds``.

        ``features`` replace this party's own values of the rows; what they leave out is missing.

        Raises:
            DataError: the model is not served, or a feature is none of the model's.
            Overloaded: too many rows, at once or in this request.
            Refused, PeerSilent: a party does not answer, and nothing is to be guessed; or this
                party's own rows cannot be looked up.
        """
        model = self.models.get(name)
        if model is None:
            served = ", ".join(sorted(self.models)) or "none"
            raise DataError(f"model: {name!r} is not served; there are: {served}")
        self._admit(len(ids))
        time = self._section.deadline if seconds is None else seconds
        loop = asyncio.get_running_loop()
        until = loop.time() + time
        self.batcher.queued_rows += len(ids)  # they wait already while they are looked up
        try:
            values, unknown = await self._own(model, ids, features, time)
        except BaseException:
            self.batcher.queued_rows -= len(ids)
            raise
        self.counts.requests += 1
        self.counts.rows += len(ids)
        size = self._section.batch_rows
        waiting = [
            Waiting(model, ids[at : at + size], values[at : at + size], until, loop.create_future())
            for at in range(0, len(ids), size)
        ]
        self.batcher.put(waiting)
        try:
            with self._priority_gate.taken():
                scores = _joined(await self._awaited(waiting, time))
        except BaseException:
            self.counts.failed += 1
            raise
        if unknown.any():
            named = {self._party: unknown, **scores.unknown}
            scores = OnlineScores(scores.margins, scores.predictions, named, scores.degraded)
        self.counts.degraded += bool(scores.degraded)
        return Scored(model.id, model.mode, scores)

    async def _awaited(self, waiting: Sequence[Waiting], seconds: float) -> list[OnlineScores]:
        outcomes = [each.outcome for each in waiting]
        try:
            # Batches keep the time themselves; this is for what still waits in the queue.
            await asyncio.wait(
                outcomes,
                timeout=max(0.0, waiting[0].until - asyncio.get_running_loop().time()),
                return_when=asyncio.FIRST_EXCEPTION,
            )
            for outcome in outcomes:
                if outcome.done() and (error := outcome.exception()) is not None:
                    raise error
            if all(outcome.done() for outcome in outcomes):
                return [outcome.result() for outcome in outcomes]
            raise PeerSilent(
                f"no score within {seconds:g} s: {self._party} has too much to do; ask again later"
            )
        finally:
            for outcome in outcomes:
                if not outcome.cancel() and not outcome.cancelled():
                    outcome.exception()  # seen, so that asyncio does not complain

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep these models in memory, by whatever name, and no others; requests keep theirs."""
        for name, served in list(self.models.items()):
            if served.id not in kept:
                del self.models[name]

    def receive(self, envelope: Envelope) -> None:
        """Take an answer that came on the online lane."""
        self._peers.answered(envelope.header.sender)
        if envelope.header.session == self.session:
            self.batcher.receive(envelope.header.sender, envelope.body)

    @property
    def breakers(self) -> Mapping[str, CircuitBreaker]:
        """By party that is asked."""
        return self._peers.breakers

    @property
    def most_rows(self) -> int:
        """Of one request."""
        return self._section.request_rows

    @property
    def queued_rows(self) -> int:
        """Rows that wait for a batch."""
        return self.batcher.queued_rows

    @property
    def away(self) -> list[str]:
        """Parties that do not answer, by name."""
        return sorted(self._peers.away)

    def status(self) -> dict[str, Any]:
        """What people want to know, as plain data."""
        counts = {**asdict(self.counts), **asdict(self.batcher.counts)}
        counts["breakers_opened"] = sum(each.opened for each in self.breakers.values())
        return {
            "models": {
                name: {"model": model.id, "mode": model.mode, "rounds": model.forest.rounds}
                for name, model in sorted(self.models.items())
                if name != model.id
            },
            "away": self.away,
            "queued_rows": self.queued_rows,
            "batches_under_way": self.batcher.under_way,
            "counts": counts,
        }

    async def close(self) -> None:
        """Take no more, and wait a moment for what is under way."""
        self._closing = True
        for _ in range(100):
            if self.batcher.idle:
                break
            await asyncio.sleep(0.02)
        await self._peers.close()

    def _say(self, recipient: str, body: Body, seconds: float) -> None:
        self._say_to(recipient, body, self.session, seconds)

    def _admit(self, rows: int) -> None:
        if self._closing:
            raise Overloaded(f"{self._party} is shutting down; ask again in a moment")
        if rows > self._section.request_rows:
            raise TooManyRows(
                f"ids: {rows} rows in one request, at most {self._section.request_rows} are taken"
            )
        if self.queued_rows + rows > max(self._section.queue_rows, rows):
            self.counts.turned_away += 1
            raise Overloaded(f"{self.queued_rows} rows wait already; ask again later")

    async def _own(
        self,
        model: ServedModel,
        ids: Sequence[str],
        features: Sequence[Mapping[str, float | None]] | None,
        seconds: float,
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """This party's values of the rows, and which rows it does not know."""
        if features is not None:
            values = given_values(self._party, model.rows.features, features)
            return values, np.zeros(len(ids), np.bool_)
        rows = await model.rows.about(ids, seconds)
        places = rows.places(ids)
        return rows.values[places], places < 0


def _joined(pieces: Sequence[OnlineScores]) -> OnlineScores:
    if len(pieces) == 1:
        return pieces[0]
    sizes = [len(each.margins) for each in pieces]
    unknown = {
        party: np.concatenate(
            [
                each.unknown.get(party, np.zeros(size, np.bool_))
                for each, size in zip(pieces, sizes, strict=True)
            ]
        )
        for party in {party for each in pieces for party in each.unknown}
    }
    degraded = {
        party: float(np.average([each.degraded.get(party, 0.0) for each in pieces], weights=sizes))
        for party in {party for each in pieces for party in each.degraded}
    }
    return OnlineScores(
        np.concatenate([each.margins for each in pieces]),
        np.concatenate([each.predictions for each in pieces]),
        unknown,
        degraded,
    )
