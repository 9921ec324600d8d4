"""How does the active party make scores?

A request is admitted and cut into pieces, and batches score the pieces. A lone piece starts at
once. Under load, pieces wait for others: at most for the window, or until a running batch ends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.gradients import first_margins
from fedmq.boosting.model.contributions import Explainer, Player
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import Agreed
from fedmq.errors import (
    DataError,
    FedmqError,
    Overloaded,
    PartyLeft,
    PeerSilent,
    ProtocolError,
    TooManyRows,
)
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.online import OnlineBitmaps, OnlineExits, OnlineProducts, OnlineRefusal
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.availability import Asking, CircuitBreaker, PeerAvailability
from fedmq.party.online.blank_stock import BlankStock
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.own_link import OwnLink
from fedmq.party.online.request_features import RequestRow, features_of_request
from fedmq.party.online.rows import ServedRows
from fedmq.protocol.events import (
    Answer,
    CancelTimer,
    ComputationFailed,
    Event,
    Fail,
    Finish,
    Received,
    RunPlan,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from fedmq.protocol.machine import run_inline
from fedmq.protocol.online.active import OnlineBatch, OnlineScores
from fedmq.protocol.online.options import AskedRows, Degrade, Mode, Timeouts
from fedmq.protocol.online.sealed_active import MOST_CIPHERTEXTS, SealedBatch
from fedmq.protocol.sealed_sums import SealedModel
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import PriorityGate

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import BatchSpans, OnlineSpans

__all__ = [
    "AskedScores",
    "BatchCounts",
    "BatchRunner",
    "Batcher",
    "RequestCounts",
    "RequestPiece",
    "ScoredRequest",
    "Scorer",
    "ServedModel",
]

log = logging.getLogger(__name__)

_FACTORS_AT_ONCE = 50_000
"""Factors of Shapley values, about a millisecond; a thread computes more than these."""

_ANSWERS = (OnlineExits, OnlineBitmaps, OnlineProducts)

_SEALED_AT_ONCE = 2
"""Sealed batches: a ciphertext costs the same with one row or full, so that others rather wait."""

_RETURN_SECONDS = 0.005
"""Reserved from a request's time, to bring the answer back to the caller."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model to score with: immutable, so that a batch ends with the model it began with.

    ``sealed`` seals its leaves in mode sealed, where another party is asked. Reasons for scores are
    of ``sealed_parts`` there, and of ``explainer`` in mode bitmap; ``unexplained`` says why there
    are none.
    """

    forest: ServedForest
    rows: ServedRows
    mode: Mode
    sealed: SealedModel | None = None
    sealed_parts: SealedModel | None = None
    explainer: Explainer | None = None
    unexplained: str = "no reasons are given for its scores"

    @property
    def id(self) -> str:
        """The model's id."""
        return self.forest.share.model_id

    @property
    def rounds(self) -> int:
        """The most questions that follow one another until a score is there."""
        return self.forest.rounds if self.sealed is None else len(self.sealed.chain)

    def explained(self, agreed: Agreed, texts: Mapping[str, str]) -> Self:
        """The same with the reasons that the owners ``agreed`` to; ``texts``: this party's own."""
        share = self.forest.share
        if self.mode == "hop" or (self.mode == "sealed" and self.sealed is None):
            reason = (
                f"it is served in mode {self.mode}, and reasons need the directions beside a "
                "person's own way: activate it with --mode bitmap"
            )
        elif agreed.refusing:
            reason = f'explain = "none" in the [policy] of {", ".join(agreed.refusing)}'
        elif share.params.outputs > 1:
            reason = "its scores are several numbers a row: use fedmq predict --explain"
        elif self.sealed is not None:
            try:
                parts = self.sealed.telling_parts(share)
            except DataError as error:
                return replace(self, unexplained=str(error))
            if (count := parts.packing.ciphertexts(1)) <= MOST_CIPHERTEXTS:
                return replace(self, sealed_parts=parts, unexplained="")
            reason = (
                f"reasons for its sealed scores take {count} ciphertexts of a row, and online "
                f"{MOST_CIPHERTEXTS} are taken: use fedmq predict --explain"
            )
        else:
            explainer = Explainer.of(self.forest, agreed.columns, texts)
            return replace(self, explainer=explainer, unexplained="")
        return replace(self, unexplained=reason)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRequest:
    """The scores of one request, with their model and mode.

    ``scores.unknown`` includes the rows that the active party itself does not know. ``blank`` bool
    (rows,): the rows that get no score, since a party does not know them. ``degraded`` by party:
    the share of rows that it does not know, but the active party does, or that were scored without
    it, or of (row, tree) pairs that were guessed there; the largest of these. ``fallback`` bool
    (rows,) by fallback model: the rows that it scored.
    ``contributions`` float32 (rows, players + 1): what each of ``players`` added to the margin, the
    bias last; None without ``explain``, or if a score is guessed in part.
    """

    model: str
    mode: Mode
    scores: OnlineScores
    blank: NDArray[np.bool_]
    degraded: Mapping[str, float]
    players: tuple[Player, ...] = ()
    contributions: NDArray[np.float32] | None = None
    fallback: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class AskedScores:
    """The rows of one request for the model or name ``name``, as `Scorer.score` takes them.

    ``deadline`` by the loop's clock. ``first`` float32 (rows, outputs) or None: where the rows
    start. ``falls_back``: another model scores the rows if a party is silent: nothing is guessed.
    """

    name: str
    ids: Sequence[str]
    features: Sequence[RequestRow] | None
    deadline: float
    seconds: float
    explain: bool
    first: NDArray[np.float32] | None
    falls_back: bool = False


@dataclass(slots=True)
class RequestCounts:
    """Requests since the start, by outcome."""

    requests: int = 0
    rows: int = 0
    failed: int = 0
    degraded: int = 0
    turned_away: int = 0


class Scorer:
    """Scores rows with the models in ``models``, asking other parties through ``send``.

    ``send`` takes (recipient, body, session, seconds for which it is useful). ``on_not_served``
    takes a party and the model that the party should serve but does not. ``people_of`` says whose
    rows have the ids that callers name. ``heard``: by party, when
    a message of it came last, on any lane. ``ask_broker`` returns once the broker has answered.
    """

    def __init__(
        self,
        party: str,
        section: OnlineSection,
        send: Callable[[str, Body, str, float], None],
        ask_broker: Callable[[], Awaitable[None]],
        on_not_served: Callable[[str, str], None] = lambda _, __: None,
        spans: OnlineSpans | None = None,
        priority_gate: PriorityGate | None = None,
        drift: DriftWatch | None = None,
        heard: Mapping[str, float] | None = None,
        people_of: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> None:
        self._people_of = people_of
        self.models: dict[str, ServedModel] = {}
        """By name and by model id."""
        self.members: Collection[str] | None = None
        """The parties of the federation; None: all that a model asks are."""
        self.counts = RequestCounts()
        self.session = f"online-{secrets.token_hex(6)}"
        self._party = party
        self._section = section
        self._closing = False
        self._drift = drift
        self._priority_gate = priority_gate or PriorityGate()
        self._send_in_session = send
        self.answer: Callable[[ServedModel, AskedScores], Awaitable[ScoredRequest]] = self.by
        """Makes the scores of a request: by the model alone, unless told otherwise."""
        self._own_link = OwnLink(party, ask_broker)
        self._peers = PeerAvailability(self._own_link, self._send, heard)
        self.batcher = Batcher(
            self.session, section, self._peers, self._own_link, self._send, on_not_served, spans
        )

    async def score(
        self,
        name: str,
        ids: Sequence[str],
        features: Sequence[RequestRow] | None = None,
        seconds: float | None = None,
        explain: bool = False,
        base_margin: ArrayLike | None = None,
    ) -> ScoredRequest:
        """Score ``ids`` with the model or name ``name``, within ``seconds``.

        ``features`` replace this party's own values of the rows; a feature left out is missing.
        People of whom a party says nothing are scored by a fallback model without it, where
        ``unknown`` says so and there is one. With ``explain`` the scores have contributions.
        ``base_margin``, (rows,) or (rows, classes), is the start of the rows; the default is the
        base score.

        Raises:
            DataError: the model is not served or not explained, a feature is none of its own, or
                margins do not fit.
            Overloaded: too many rows, at once or in this request.
            PartyLeft: the model needs a party that has left the federation.
            AnswerRefused, PeerSilent: a party does not answer, and guessing is not allowed; or this
                party's own rows cannot be looked up.
        """
        model = self.models.get(name)
        if model is None:
            served = ", ".join(sorted(self.models)) or "none"
            raise DataError(f"model: {name!r} is not served; there are: {served}")
        first = None
        if base_margin is not None:
            outputs = model.forest.share.params.outputs
            first = first_margins(base_margin, len(ids), outputs, self._party)
        self._admit(len(ids))
        if seconds is None:
            seconds = self._section.deadline
        deadline = asyncio.get_running_loop().time() + seconds
        asked = AskedScores(name, ids, features, deadline, seconds, explain, first)
        self.counts.requests += 1
        self.counts.rows += len(ids)
        try:
            scored = await self.answer(model, asked)
        except BaseException:
            self.counts.failed += 1
            raise
        self.counts.degraded += bool(scored.degraded)
        return scored

    async def by(self, model: ServedModel, asked: AskedScores) -> ScoredRequest:
        """The scores by ``model`` and no other; raises as `score`."""
        gone = self.gone(model)
        if gone:
            raise PartyLeft(
                f"model {model.id} cannot be used without {', '.join(gone)}, which has left the "
                "federation; activate another model"
            )
        if asked.explain and model.unexplained:
            raise DataError(f"explain: {asked.name}: {model.unexplained}")
        ids, first = asked.ids, asked.first
        loop = asyncio.get_running_loop()
        with self.batcher.reserve(len(ids)):
            values, is_unknown = await self._own_values(model, ids, asked.features, asked.seconds)
        ids = self._people_of(ids)
        pieces = [
            RequestPiece(
                model,
                ids[start:stop],
                values[start:stop],
                asked.deadline,
                loop.create_future(),
                asked.explain,
                base_margin=None if first is None else first[start:stop],
                falls_back=asked.falls_back,
            )
            for start, stop in _pieces(ids, values, self._section.batch_rows)
        ]
        self.batcher.put(pieces)
        with self._priority_gate.taken():
            scores = _concatenated(await self._outcomes(pieces, asked.seconds))
        blank, degraded = self._without(model, scores, is_unknown)
        if is_unknown.any():
            unknown = {self._party: is_unknown, **scores.unknown}
            scores = replace(scores, unknown=unknown)
        if self._drift is not None:
            self._drift.put_aside(model.id, values[~is_unknown])
            if not scores.degraded and not blank.all():
                self._drift.put_aside_scores(model.id, scores.margins[~blank])
        scored = ScoredRequest(model.id, model.mode, scores, blank, degraded)
        if scores.contributions is not None and model.sealed_parts is not None:
            players = model.sealed_parts.players
            return replace(scored, players=players, contributions=scores.contributions)
        if scores.bitmaps is None or model.explainer is None:
            return scored
        explained = _contributions(model.forest, model.explainer, values, scores.bitmaps, first)
        try:
            async with asyncio.timeout_at(asked.deadline):
                found = await explained
        except TimeoutError:
            raise PeerSilent(f"no reasons within {asked.seconds:g} s; ask for fewer rows") from None
        return replace(scored, players=model.explainer.players, contributions=found[:, 0])

    def gone(self, model: ServedModel) -> list[str]:
        """The parties of ``model`` that have left the federation."""
        if self.members is None:
            return []
        return [party for party in model.forest.asked.values() if party not in self.members]

    def _without(
        self, model: ServedModel, scores: OnlineScores, is_unknown: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], dict[str, float]]:
        """The rows without a score, and how much of the others parties have no part in."""
        blank, degraded = is_unknown.copy(), dict(scores.degraded)
        for party, rows in scores.unknown.items():
            if party not in model.forest.share.need_not_know(self._section.unknown):
                blank |= rows
            if (lacking := rows & ~is_unknown).any():
                degraded[party] = max(degraded.get(party, 0.0), float(lacking.mean()))
        return blank, degraded

    async def _outcomes(self, pieces: Sequence[RequestPiece], seconds: float) -> list[OnlineScores]:
        outcomes = [piece.outcome for piece in pieces]
        try:
            # A batch keeps the deadline itself; the timeout is for pieces still in the queue.
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
                f"no score within {seconds:g} s: {self._party} is overloaded; ask again later"
            )
        finally:
            for outcome in outcomes:
                if not outcome.cancel() and not outcome.cancelled():
                    outcome.exception()  # read it, or asyncio logs it as never retrieved

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep only the models with these ids, under any name; running requests keep theirs too."""
        for name, served in list(self.models.items()):
            if served.id not in kept:
                del self.models[name]

    def receive(self, envelope: Envelope) -> None:
        """Take an answer from the online lane."""
        self._peers.record_answer(envelope.header.sender)
        if self._drift is not None and isinstance(envelope.body, _ANSWERS):
            self._drift.others[envelope.header.sender] = envelope.body.drifts
        if envelope.header.session == self.session:
            self.batcher.receive(envelope.header.sender, envelope.body)

    def link_changed(self, connected: bool) -> None:
        """Note that this party's own link is up, or down: then nobody can be asked."""
        self._own_link.changed(connected)

    @property
    def breakers(self) -> Mapping[str, CircuitBreaker]:
        """The circuit breakers, by asked party."""
        return self._peers.breakers

    @property
    def most_rows(self) -> int:
        """The most rows that one request may have."""
        return self._section.request_rows

    @property
    def queued_rows(self) -> int:
        """Number of rows that wait for a batch."""
        return self.batcher.queued_rows

    @property
    def away(self) -> list[str]:
        """Names of the parties that do not answer, sorted."""
        return sorted(self._peers.away)

    def status(self) -> dict[str, Any]:
        """The served models, the running batches and the counts, as plain data."""
        counts = {**asdict(self.counts), **asdict(self.batcher.counts)}
        counts["breakers_opened"] = sum(breaker.times_opened for breaker in self.breakers.values())
        return {
            "models": {
                name: {"model": model.id, "mode": model.mode, "rounds": model.rounds}
                for name, model in sorted(self.models.items())
                if name != model.id
            },
            "away": self.away,
            "queued_rows": self.queued_rows,
            "batches_under_way": self.batcher.under_way,
            "counts": counts,
        }

    async def close(self) -> None:
        """Admit no more requests, and wait up to two seconds for the running ones."""
        self._closing = True
        for _ in range(100):
            if self.batcher.idle:
                break
            await asyncio.sleep(0.02)
        await self.batcher.close()
        await self._peers.close()
        await self._own_link.close()

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
        """This party's values of the rows, and the rows that it does not know."""
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
    """Join the scores of a request from its pieces, in order."""
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
    parts = [piece.contributions for piece in pieces if piece.contributions is not None]
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
        np.concatenate(parts) if parts else None,
    )


def _pieces(
    ids: Sequence[str], values: NDArray[np.float32], limit: int
) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of up to ``limit`` rows; a person has the same values within each piece."""
    start, people = 0, dict[str, bytes]()
    for place, name in enumerate(ids):
        own = values[place].tobytes()
        if place - start == limit or people.get(name, own) != own:
            yield start, place
            start, people = place, {}
        people[name] = own
    if len(ids):
        yield start, len(ids)


@dataclass(slots=True, eq=False)
class RequestPiece:
    """Rows of one request, at most ``batch_rows``, that go through one batch together."""

    model: ServedModel
    ids: Sequence[str]
    values: NDArray[np.float32]
    """The active party's own values, (rows, features)."""
    deadline: float
    """By the event loop's clock."""
    outcome: asyncio.Future[OnlineScores]
    explain: bool = False
    arrived: int = field(default_factory=time.time_ns)
    """Nanoseconds since the epoch."""
    base_margin: NDArray[np.float32] | None = None
    """The start of the rows, if not the base score."""
    falls_back: bool = False
    """Whether another model scores the rows if a party is silent: nothing is guessed then."""

    def by_id(self) -> dict[str, bytes]:
        """The values of each person, as bytes."""
        return dict(zip(self.ids, map(np.ndarray.tobytes, self.values), strict=True))

    @property
    def is_wanted(self) -> bool:
        """Whether the caller still waits for the scores."""
        return not self.outcome.done() and self.deadline > asyncio.get_running_loop().time()


@dataclass(slots=True)
class BatchCounts:
    """Batches since the start."""

    batches: int = 0
    batch_rows: int = 0
    stray_answers: int = 0


class Batcher:
    """Runs batches of ``session``, asking the parties of ``peers`` over ``own_link``, by ``send``.

    ``send`` takes (recipient, body, seconds for which it is useful). ``on_not_served`` takes a
    party and the model that the party should serve but does not.
    """

    def __init__(
        self,
        session: str,
        section: OnlineSection,
        peers: PeerAvailability,
        own_link: OwnLink,
        send: Callable[[str, Body, float], None],
        on_not_served: Callable[[str, str], None],
        spans: OnlineSpans | None = None,
    ) -> None:
        self.counts = BatchCounts()
        self._session = session
        self._section = section
        self._peers = peers
        self._own_link = own_link
        self._send = send
        self._on_not_served = on_not_served
        self._spans = spans
        self._numbers = itertools.count(1)
        self._runners: dict[int, BatchRunner] = {}
        # One thread: several would wait for each other at the interpreter's lock.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fedmq-sealed")
        self._stock = BlankStock(self._executor, lambda: not self._runners)
        self._queue: deque[RequestPiece] = deque()
        self._reserved_rows = 0
        self._rows_in_queue = 0
        self._dispatching: asyncio.TimerHandle | None = None

    @property
    def queued_rows(self) -> int:
        """Number of rows that wait for a batch, or have a place reserved."""
        return self._reserved_rows + self._rows_in_queue

    @property
    def under_way(self) -> int:
        """Number of running batches."""
        return len(self._runners)

    @property
    def idle(self) -> bool:
        """Whether no batch runs and no piece waits."""
        return not self._runners and not self._queue

    async def close(self) -> None:
        """Compute no more."""
        await self._stock.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def reserve(self, rows: int) -> Iterator[None]:
        """Count ``rows`` as queued while their values are looked up."""
        self._reserved_rows += rows
        try:
            yield
        finally:
            self._reserved_rows -= rows

    def put(self, pieces: Sequence[RequestPiece]) -> None:
        """Queue ``pieces`` for the next batches."""
        self._queue.extend(pieces)
        self._rows_in_queue += sum(len(piece.ids) for piece in pieces)
        self._schedule()

    def receive(self, sender: str, body: Body) -> None:
        """Take an answer of ``sender``."""
        runner = self._runners.get(getattr(body, "batch", -1))
        if runner is None:
            return
        if isinstance(body, OnlineRefusal) and body.cause == "model":
            # The party lost its share or its disk. It is told again which model to serve; meanwhile
            # the question is repeated.
            self._on_not_served(sender, runner.machine.model)
            return
        try:
            runner.receive(sender, body)
        except ProtocolError as error:
            self.counts.stray_answers += 1
            log.warning("ignored an unexpected answer of %s: %s", sender, error)

    def _schedule(self) -> None:
        if self._dispatching is not None or not self._queue:
            return
        if not self._has_room():
            return
        loop = asyncio.get_running_loop()
        first_rows = sum(len(piece.ids) for piece in itertools.islice(self._queue, 8))
        at_once = not self._runners or first_rows >= self._section.batch_rows
        delay = 0 if at_once else self._section.window
        self._dispatching = loop.call_later(delay, self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = None
        while self._queue and self._has_room():
            first = self._take()
            if not first.is_wanted:
                continue
            pieces, rows, people = [first], len(first.ids), first.by_id()
            while (
                self._queue
                and self._queue[0].model is first.model
                and self._queue[0].falls_back == first.falls_back
                and (first.model.sealed is None or self._queue[0].explain == first.explain)
                and rows + len(self._queue[0].ids) <= self._section.batch_rows
                and _same_ways(people, self._queue[0])
            ):
                piece = self._take()
                if piece.is_wanted:
                    pieces.append(piece)
                    rows += len(piece.ids)
                    people.update(piece.by_id())
            self._begin(pieces)

    def _has_room(self) -> bool:
        """Whether a batch of the next piece may begin beside those under way."""
        most = self._section.batches
        if self._queue[0].model.sealed is not None:
            most = min(most, _SEALED_AT_ONCE)
        return len(self._runners) < most

    def _take(self) -> RequestPiece:
        piece = self._queue.popleft()
        self._rows_in_queue -= len(piece.ids)
        return piece

    def _begin(self, pieces: list[RequestPiece]) -> None:
        now = asyncio.get_running_loop().time()
        model = pieces[0].model
        asked, rows = [], 0
        for piece in pieces:
            seconds = max(piece.deadline - now - _RETURN_SECONDS, 0.001)
            asked.append(
                AskedRows(rows, rows + len(piece.ids), seconds, piece.explain, piece.base_margin)
            )
            rows += len(piece.ids)
        section = self._section
        falls_back = pieces[0].falls_back
        degrade: Degrade = "fail" if falls_back else section.degrade
        away = None if section.degrade == "fail" else section.away
        if falls_back:  # half of the time is left for the fallback model
            away = min(section.away, max(rows_of.seconds for rows_of in asked) / 2)
        number = next(self._numbers)
        parties = model.forest.asked.values()
        asking = self._peers.expect(parties)
        ids = [name for piece in pieces for name in piece.ids]
        values = np.concatenate([piece.values for piece in pieces])
        timeouts, unreachable = Timeouts(section.ask_again, away), self._peers.unreachable(parties)
        machine: OnlineBatch | SealedBatch
        sealed = model.sealed_parts if pieces[0].explain else model.sealed
        if sealed is None:
            machine = OnlineBatch(
                number,
                model.forest,
                ids,
                values,
                asked,
                model.mode,
                degrade,
                timeouts,
                unreachable,
            )
        else:
            machine = SealedBatch(
                number,
                model.forest,
                sealed,
                ids,
                values,
                asked,
                timeouts,
                secrets.token_bytes(32),
                unreachable,
                self._stock.take(sealed),
            )
        self.counts.batches += 1
        self.counts.batch_rows += rows

        def on_answer(index: int, result: Any) -> None:
            outcome = pieces[index].outcome
            if outcome.done():
                return
            if isinstance(result, Exception):
                if isinstance(result, PeerSilent) and (trouble := self._own_link.trouble):
                    result = type(result)(trouble)
                outcome.set_exception(result)
            else:
                outcome.set_result(replace(result, waited=dict(runner.waited)))

        seconds = max(rows_of_piece.seconds for rows_of_piece in asked)
        # Early enough to know, when a party is given up, whether the own link is to blame.
        patience = min(seconds, away or seconds) / 4
        waiting = asyncio.get_running_loop().call_later(patience, self._peers.still_waits, asking)

        def on_end(runner: BatchRunner) -> None:
            waiting.cancel()
            self._on_end(number, runner, asking)

        runner = self._runners[number] = BatchRunner(
            machine,
            self._send,
            seconds,
            on_answer,
            on_end,
            self._executor,
            None if self._spans is None else self._spans_of(self._spans, number, pieces),
        )
        runner.start()

    def _on_end(self, number: int, runner: BatchRunner, asking: Asking) -> None:
        self._runners.pop(number, None)
        for party in runner.machine.silent:
            self._peers.record_miss(party, asking)
        self._schedule()
        self._stock.refill()

    def _spans_of(
        self, spans: OnlineSpans, number: int, pieces: list[RequestPiece]
    ) -> BatchSpans | None:
        model = pieces[0].model
        arrived = [(piece.arrived, len(piece.ids)) for piece in pieces]
        return spans.batch(self._session, number, model.id, model.mode, arrived)


def _same_ways(people: Mapping[str, bytes], piece: RequestPiece) -> bool:
    """Whether each person in the batch has one set of values: parties answer for one path each.

    A person whose id comes twice with different values would take two paths through the trees.
    """
    return all(people.get(name, values) == values for name, values in piece.by_id().items())


class BatchRunner:
    """Runs ``machine`` for at most ``seconds``.

    ``send`` takes (recipient, body, seconds for which it is useful), ``on_answer`` the number of
    a request and its scores or its error, ``on_end`` this runner. ``executor`` computes what takes
    milliseconds. ``spans`` trace the batch.
    """

    def __init__(
        self,
        machine: OnlineBatch | SealedBatch,
        send: Callable[[str, Body, float], None],
        seconds: float,
        on_answer: Callable[[int, Any], None],
        on_end: Callable[[BatchRunner], None],
        executor: Executor,
        spans: BatchSpans | None = None,
    ) -> None:
        self.machine = machine
        self.waited: dict[str, float] = {}
        """By party: seconds from questions to answers, over all rounds so far."""
        self._asked: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._deadline = self._loop.time() + seconds
        self._on_answer = on_answer
        self._on_end = on_end
        self._executor = executor
        self._spans = spans
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._computing = BackgroundTasks()

    def start(self) -> None:
        """Ask the first questions."""
        self._act_on(Start())

    def receive(self, sender: str, body: Body) -> None:
        """Take an answer of ``sender``.

        Raises:
            ProtocolError: it fits no open question, and changes nothing.
        """
        asked = self._asked.pop(sender, None)
        if asked is not None:
            self.waited[sender] = self.waited.get(sender, 0.0) + self._loop.time() - asked
        if self._spans is not None:
            self._spans.answered(body)  # before the answer is handled: it may end the batch
        self._feed(Received(sender, body))

    def _feed(self, first: Event) -> None:
        events = deque([first])
        while events:
            for effect in self.machine.handle(events.popleft()):
                match effect:
                    case Send(recipient, body):
                        if self._spans is not None:
                            self._spans.asked(recipient, body, self.machine.rounds)
                        self._asked.setdefault(recipient, self._loop.time())
                        self._send(recipient, body, max(0.0, self._deadline - self._loop.time()))
                    case RunPlan() if (
                        isinstance(self.machine, SealedBatch) and not self.machine.is_brief
                    ):
                        self._computing.spawn(self._compute(effect))
                    case RunPlan():
                        # Inline: a row of 50 trees takes some 200 microseconds, and a full batch a
                        # few milliseconds; another process would cost more than it saves.
                        events.append(_computed(effect))
                    case SetTimer(key, seconds):
                        if key in self._timers:
                            self._cancel(key)
                        self._timers[key] = self._loop.call_later(seconds, self._fire, key)
                    case CancelTimer(key):
                        if key in self._timers:
                            self._cancel(key)
                    case Answer(request, result):
                        if self._spans is not None:
                            self._spans.done(request, result)
                        self._on_answer(request, result)
                    case Finish() | Fail():
                        self._end()

    async def _compute(self, plan: RunPlan) -> None:
        """Run ``plan`` in a thread: a ciphertext takes milliseconds, and few of them in Python."""
        done = await self._loop.run_in_executor(self._executor, _computed, plan)
        self._act_on(done)

    def _fire(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self._act_on(TimerFired(key))

    def _act_on(self, event: Event) -> None:
        """Like ``_feed``, but an unforeseen error ends the batch, which frees its place."""
        try:
            self._feed(event)
        except Exception as error:  # a bug in fedmq
            log.exception("an online batch failed on %s", event)
            failure = FedmqError(f"internal error: {type(error).__name__}")
            for request in self.machine.unanswered:
                self._on_answer(request, failure)
            self._end()

    def _cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._spans is not None:
            self._spans.end()
        self._on_end(self)


def _computed(plan: RunPlan) -> Event:
    try:
        return run_inline(plan)
    except FedmqError as error:
        return ComputationFailed(plan.ticket, error)
