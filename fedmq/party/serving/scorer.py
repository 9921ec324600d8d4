"""Requests for scores: admitted, put together into batches, and answered in time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.served_forest import ServedForest
from fedmq.errors import DataError, Overloaded, PeerSilent, ProtocolError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.online import OnlinePing, OnlineRefusal
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.serving.batch_run import BatchRun
from fedmq.party.serving.breaker import Breaker
from fedmq.party.serving.given import given_values
from fedmq.party.serving.rows import ServedRows
from fedmq.protocol.online_active import OnlineBatch
from fedmq.protocol.online_steps import OnlineScores
from fedmq.protocol.online_terms import AskedRows, Mode, Patience

__all__ = ["Scored", "Scorer", "ServedModel"]

log = logging.getLogger(__name__)

_PROBE_EVERY = 0.5
_SPARE = 0.005
"""Seconds of a request's time that are kept to bring the answer home."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """What is scored with: immutable, so that a batch goes on with what it began with."""

    forest: ServedForest
    rows: ServedRows
    mode: Mode

    @property
    def id(self) -> str:
        """The model's id."""
        return self.forest.share.model_id


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of one request; as :class:`OnlineScores`, ``unknown`` also at the label holder."""

    model: str
    mode: Mode
    scores: OnlineScores


@dataclass(slots=True, eq=False)
class _Waiting:
    """A piece of a request, of at most ``batch_rows`` rows, that waits for its batch."""

    model: ServedModel
    ids: Sequence[str]
    values: NDArray[np.float32]
    until: float
    outcome: asyncio.Future[OnlineScores]


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    requests: int = 0
    rows: int = 0
    failed: int = 0
    degraded: int = 0
    turned_away: int = 0
    batches: int = 0
    batch_rows: int = 0
    stray_answers: int = 0
    breakers_opened: int = field(default=0)


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
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        """By name and by model id."""
        self.counts = Counts()
        self.breakers: dict[str, Breaker] = {}
        self.session = f"online-{secrets.token_hex(6)}"
        self._party = party
        self._section = section
        self._say_to = say
        self._on_not_served = on_not_served
        self._numbers = itertools.count(1)
        self._runs: dict[int, BatchRun] = {}
        self._queue: deque[_Waiting] = deque()
        self._queued_rows = 0
        self._flush: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._closing = False

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
        self._queued_rows += len(ids)  # from now on: while they are looked up they wait as well
        try:
            values, unknown = await self._own(model, ids, features, time)
        except BaseException:
            self._queued_rows -= len(ids)
            raise
        self.counts.requests += 1
        self.counts.rows += len(ids)
        size = self._section.batch_rows
        waiting = [
            _Waiting(
                model, ids[at : at + size], values[at : at + size], until, loop.create_future()
            )
            for at in range(0, len(ids), size)
        ]
        self._queue.extend(waiting)
        self._schedule()
        try:
            scores = _joined(await self._awaited(waiting, time))
        except BaseException:
            self.counts.failed += 1
            raise
        if unknown.any():
            named = {self._party: unknown, **scores.unknown}
            scores = OnlineScores(scores.margins, scores.predictions, named, scores.degraded)
        self.counts.degraded += bool(scores.degraded)
        return Scored(model.id, model.mode, scores)

    async def _awaited(self, waiting: Sequence[_Waiting], seconds: float) -> list[OnlineScores]:
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

    def receive(self, envelope: Envelope) -> None:
        """Take an answer that came on the online lane."""
        sender, body = envelope.header.sender, envelope.body
        breaker = self.breakers.get(sender)
        if breaker is not None:
            if breaker.is_open:
                log.info("%s answers again", sender)
            breaker.answered()
        if envelope.header.session != self.session:
            return
        run = self._runs.get(getattr(body, "batch", -1))
        if isinstance(body, OnlineRefusal) and body.cause == "model" and run is not None:
            # It lost what it served, or its disk: it is told anew, and asked again meanwhile.
            self._on_not_served(sender, run.machine.model)
            return
        if run is None:
            return
        try:
            run.receive(sender, body)
        except ProtocolError as error:
            self.counts.stray_answers += 1
            log.warning("%s: an answer of %s was left aside: %s", self._party, sender, error)

    @property
    def queued_rows(self) -> int:
        """Rows that wait for a batch."""
        return self._queued_rows

    def status(self) -> dict[str, Any]:
        """What people want to know, as plain data."""
        counts = {name: getattr(self.counts, name) for name in Counts.__slots__}
        counts["breakers_opened"] = sum(each.opened for each in self.breakers.values())
        return {
            "models": {
                name: {"model": model.id, "mode": model.mode, "rounds": model.forest.rounds}
                for name, model in sorted(self.models.items())
                if name != model.id
            },
            "away": sorted(party for party, each in self.breakers.items() if each.is_open),
            "queued_rows": self._queued_rows,
            "batches_under_way": len(self._runs),
            "counts": counts,
        }

    async def close(self) -> None:
        """Take no more, and wait a moment for what is under way."""
        self._closing = True
        for _ in range(100):
            if not self._runs and not self._queue:
                break
            await asyncio.sleep(0.02)
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing

    # Admission.

    def _admit(self, rows: int) -> None:
        if self._closing:
            raise Overloaded(f"{self._party} is shutting down; ask again in a moment")
        if rows > self._section.request_rows:
            raise DataError(
                f"ids: {rows} rows in one request, at most {self._section.request_rows} are taken"
            )
        if self._queued_rows + rows > max(self._section.queue_rows, rows):
            self.counts.turned_away += 1
            raise Overloaded(f"{self._queued_rows} rows wait already; ask again later")

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

    # Batches: whoever waits when a batch can start goes along. A lone request starts at once; under
    # load requests wait for others, for the window at most or until a batch comes home.

    def _schedule(self) -> None:
        if self._flush is not None or not self._queue:
            return
        if len(self._runs) >= self._section.batches:
            return
        loop = asyncio.get_running_loop()
        full = sum(len(each.ids) for each in itertools.islice(self._queue, 8))
        at_once = not self._runs or full >= self._section.batch_rows
        self._flush = loop.call_later(0 if at_once else self._section.window, self._dispatch)

    def _dispatch(self) -> None:
        self._flush = None
        loop = asyncio.get_running_loop()
        while self._queue and len(self._runs) < self._section.batches:
            first = self._take()
            if first.outcome.done() or first.until <= loop.time():
                continue
            together, rows = [first], len(first.ids)
            while (
                self._queue
                and self._queue[0].model is first.model
                and rows + len(self._queue[0].ids) <= self._section.batch_rows
            ):
                another = self._take()
                if not another.outcome.done() and another.until > loop.time():
                    together.append(another)
                    rows += len(another.ids)
            self._begin(together)

    def _take(self) -> _Waiting:
        waiting = self._queue.popleft()
        self._queued_rows -= len(waiting.ids)
        return waiting

    def _begin(self, together: list[_Waiting]) -> None:
        now = asyncio.get_running_loop().time()
        model = together[0].model
        asked, at = [], 0
        for each in together:
            left = max(each.until - now - _SPARE, 0.001)
            asked.append(AskedRows(at, at + len(each.ids), left))
            at += len(each.ids)
        section = self._section
        number = next(self._numbers)
        for peer in model.forest.asked.values():
            self.breakers.setdefault(peer, Breaker())
        machine = OnlineBatch(
            number,
            model.forest,
            [name for each in together for name in each.ids],
            np.concatenate([each.values for each in together]),
            asked,
            model.mode,
            section.degrade,
            Patience(section.ask_again, None if section.degrade == "fail" else section.away),
            [party for party, breaker in self.breakers.items() if breaker.is_open],
        )

        def answered(index: int, result: Any) -> None:
            outcome = together[index].outcome
            if outcome.done():
                return
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

        def ended(run: BatchRun) -> None:
            self._runs.pop(number, None)
            for party in run.machine.silent:
                self._missed(party)
            self._schedule()

        self.counts.batches += 1
        self.counts.batch_rows += at
        run = BatchRun(
            machine,
            lambda to, body, time: self._say_to(to, body, self.session, time),
            max(each.seconds for each in asked),
            answered,
            ended,
        )
        self._runs[number] = run
        run.start()

    # Parties that do not answer.

    def _missed(self, party: str) -> None:
        breaker = self.breakers[party]
        if not breaker.is_open:
            breaker.missed()
            if breaker.is_open:
                log.warning("%s does not answer; it counts as away until it does", party)
        if breaker.is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        while away := [party for party, each in self.breakers.items() if each.is_open]:
            for party in away:
                self._say_to(party, OnlinePing(), self.session, _PROBE_EVERY)
            await asyncio.sleep(_PROBE_EVERY)


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
