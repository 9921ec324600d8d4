"""Requests for scores: admitted, cut into pieces for batches, and answered in time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.gradients import first_margins
from fedmq.boosting.model.contributions import Explainer, Player
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import DataError, Overloaded, PeerSilent, TooManyRows
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.online import OnlineBitmaps, OnlineExits
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.drift.watch import DriftWatch
from fedmq.party.online.scoring.batcher import Batcher, RequestPiece
from fedmq.party.online.scoring.circuit_breaker import CircuitBreaker, PeerAvailability
from fedmq.party.online.scoring.request_features import RequestRow, features_of_request
from fedmq.party.online.scoring.served_model import ServedModel
from fedmq.protocol.online.computations import OnlineScores
from fedmq.protocol.online.options import Mode
from fedmq.transport.priority import PriorityGate

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import OnlineSpans

__all__ = ["RequestCounts", "ScoredRequest", "Scorer"]


_FACTORS_AT_ONCE = 50_000
"""Of Shapley values: about a millisecond. More are computed beside the event loop, in a thread."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRequest:
    """Scores of one request, by which model, and in which mode they were made.

    ``scores.unknown`` has the rows that the label holder itself does not know, too.
    ``contributions`` float32 (rows, players + 1): what each of ``players`` added to the margin, the
    bias last; None where nobody asked for reasons, or a score is guessed in part.
    """

    model: str
    mode: Mode
    scores: OnlineScores
    players: tuple[Player, ...] = ()
    contributions: NDArray[np.float32] | None = None


@dataclass(slots=True)
class RequestCounts:
    """What has happened to requests since the start."""

    requests: int = 0
    rows: int = 0
    failed: int = 0
    degraded: int = 0
    turned_away: int = 0


class Scorer:
    """Scores rows with the models in ``models``, asking other parties through ``send``.

    ``send`` takes (recipient, body, session, seconds for which it is of use). ``on_not_served``
    takes a party and the model that it does not serve, though it should.
    """

    def __init__(
        self,
        party: str,
        section: OnlineSection,
        send: Callable[[str, Body, str, float], None],
        on_not_served: Callable[[str, str], None] = lambda _, __: None,
        spans: OnlineSpans | None = None,
        priority_gate: PriorityGate | None = None,
        drift: DriftWatch | None = None,
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        """By name and by model id."""
        self.counts = RequestCounts()
        self.session = f"online-{secrets.token_hex(6)}"
        self._party = party
        self._section = section
        self._closing = False
        self._drift = drift
        self._priority_gate = priority_gate or PriorityGate()
        self._send_in_session = send
        self._peers = PeerAvailability(self._send)
        self.batcher = Batcher(self.session, section, self._peers, self._send, on_not_served, spans)

    async def score(
        self,
        name: str,
        ids: Sequence[str],
        features: Sequence[RequestRow] | None = None,
        seconds: float | None = None,
        explain: bool = False,
        base_margin: ArrayLike | None = None,
    ) -> ScoredRequest:
        """Scores of ``ids`` by the model or name ``name``, within ``seconds``.

        ``features`` replace this party's own values of the rows; what they leave out is missing.
        With ``explain`` the scores have contributions. ``base_margin``, (rows,) or (rows, classes),
        is where the rows start, if not at the base score.

        Raises:
            DataError: the model is not served or not explained, a feature is none of its own, or
                margins do not fit.
            Overloaded: too many rows, at once or in this request.
            AnswerRefused, PeerSilent: a party does not answer, and nothing may be guessed; or this
                party's own rows cannot be looked up.
        """
        model = self.models.get(name)
        if model is None:
            served = ", ".join(sorted(self.models)) or "none"
            raise DataError(f"model: {name!r} is not served; there are: {served}")
        if explain and model.explainer is None:
            raise DataError(f"explain: {name}: {model.unexplained}")
        first = None
        if base_margin is not None:
            outputs = model.forest.share.params.outputs
            first = first_margins(base_margin, len(ids), outputs, self._party)
        self._admit(len(ids))
        if seconds is None:
            seconds = self._section.deadline
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.batcher.reserve(len(ids)):
            values, is_unknown = await self._own_values(model, ids, features, seconds)
        self.counts.requests += 1
        self.counts.rows += len(ids)
        pieces = [
            RequestPiece(
                model,
                ids[start:stop],
                values[start:stop],
                deadline,
                loop.create_future(),
                explain,
                base_margin=None if first is None else first[start:stop],
            )
            for start, stop in _pieces(ids, values, self._section.batch_rows)
        ]
        self.batcher.put(pieces)
        try:
            with self._priority_gate.taken():
                scores = _concatenated(await self._outcomes(pieces, seconds))
        except BaseException:
            self.counts.failed += 1
            raise
        if is_unknown.any():
            unknown = {self._party: is_unknown, **scores.unknown}
            scores = replace(scores, unknown=unknown)
        self.counts.degraded += bool(scores.degraded)
        if self._drift is not None:
            self._drift.put_aside(model.id, values[~is_unknown])
            if not scores.degraded:
                self._drift.put_aside_scores(model.id, scores.margins)
        if scores.bitmaps is None or model.explainer is None:
            return ScoredRequest(model.id, model.mode, scores)
        found = await _contributions(model.forest, model.explainer, values, scores.bitmaps, first)
        return ScoredRequest(model.id, model.mode, scores, model.explainer.players, found[:, 0])

    async def _outcomes(self, pieces: Sequence[RequestPiece], seconds: float) -> list[OnlineScores]:
        outcomes = [piece.outcome for piece in pieces]
        try:
            # A batch keeps the deadline itself; the time-out is for pieces still in the queue.
            await asyncio.wait(
                outcomes,
                timeout=max(0.0, pieces[0].deadline - asyncio.get_running_loop().time()),
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
                    outcome.exception()  # read it, or asyncio logs it as never retrieved

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep the models with these ids, by whatever name; running requests keep theirs too."""
        for name, served in list(self.models.items()):
            if served.id not in kept:
                del self.models[name]

    def receive(self, envelope: Envelope) -> None:
        """Take an answer that came on the online lane."""
        self._peers.record_answer(envelope.header.sender)
        if self._drift is not None and isinstance(envelope.body, OnlineExits | OnlineBitmaps):
            self._drift.others[envelope.header.sender] = envelope.body.drifts
        if envelope.header.session == self.session:
            self.batcher.receive(envelope.header.sender, envelope.body)

    @property
    def breakers(self) -> Mapping[str, CircuitBreaker]:
        """The circuit breakers, by party that is asked."""
        return self._peers.breakers

    @property
    def most_rows(self) -> int:
        """How many rows one request may have."""
        return self._section.request_rows

    @property
    def queued_rows(self) -> int:
        """Rows that wait for a batch."""
        return self.batcher.queued_rows

    @property
    def away(self) -> list[str]:
        """Names of the parties that do not answer, sorted."""
        return sorted(self._peers.away)

    def status(self) -> dict[str, Any]:
        """What is served, what is under way and what has happened, as plain data."""
        counts = {**asdict(self.counts), **asdict(self.batcher.counts)}
        counts["breakers_opened"] = sum(breaker.times_opened for breaker in self.breakers.values())
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
        """Admit no more requests, and wait up to two seconds for those that are under way."""
        self._closing = True
        for _ in range(100):
            if self.batcher.idle:
                break
            await asyncio.sleep(0.02)
        await self._peers.close()

    def _send(self, recipient: str, body: Body, seconds: float) -> None:
        self._send_in_session(recipient, body, self.session, seconds)

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

    async def _own_values(
        self,
        model: ServedModel,
        ids: Sequence[str],
        features: Sequence[RequestRow] | None,
        seconds: float,
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """This party's values of the rows, and which rows it does not know."""
        if features is not None:
            values = features_of_request(self._party, model.rows.features, features)
            return values, np.zeros(len(ids), np.bool_)
        rows = await model.rows.about(ids, seconds)
        places = rows.places(ids)
        return rows.values[places], places < 0


async def _contributions(
    forest: ServedForest,
    explainer: Explainer,
    values: NDArray[np.float32],
    bitmaps: Mapping[int, NDArray[np.bool_]],
    first: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    def explain() -> NDArray[np.float32]:
        return explainer.contributions(forest.directions(values, bitmaps), first)

    if len(values) * explainer.factors <= _FACTORS_AT_ONCE:
        return explain()
    return await asyncio.to_thread(explain)


def _concatenated(pieces: Sequence[OnlineScores]) -> OnlineScores:
    """The scores of a request, from those of its pieces in their order."""
    if len(pieces) == 1:
        return pieces[0]
    sizes = [len(piece.margins) for piece in pieces]
    unknown = {
        party: np.concatenate(
            [
                piece.unknown.get(party, np.zeros(size, np.bool_))
                for piece, size in zip(pieces, sizes, strict=True)
            ]
        )
        for party in {party for piece in pieces for party in piece.unknown}
    }
    degraded = {
        party: float(
            np.average([piece.degraded.get(party, 0.0) for piece in pieces], weights=sizes)
        )
        for party in {party for piece in pieces for party in piece.degraded}
    }
    bitmaps = [piece.bitmaps for piece in pieces if piece.bitmaps is not None]
    return OnlineScores(
        np.concatenate([piece.margins for piece in pieces]),
        np.concatenate([piece.predictions for piece in pieces]),
        unknown,
        degraded,
        {owner: np.concatenate([bits[owner] for bits in bitmaps]) for owner in bitmaps[0]}
        if len(bitmaps) == len(pieces)
        else None,
        {
            party: max(piece.waited.get(party, 0.0) for piece in pieces)
            for party in {party for piece in pieces for party in piece.waited}
        },
    )


def _pieces(
    ids: Sequence[str], values: NDArray[np.float32], most: int
) -> Iterator[tuple[int, int]]:
    """Where pieces of at most ``most`` rows begin and end; a person has the same values in each."""
    start, people = 0, dict[str, bytes]()
    for place, name in enumerate(ids):
        own = values[place].tobytes()
        if place - start == most or people.get(name, own) != own:
            yield start, place
            start, people = place, {}
        people[name] = own
    if len(ids):
        yield start, len(ids)
