"""Pieces of requests that are scored together: whoever waits when a batch can start goes along.

A lone piece starts at once. Under load, pieces wait for others: for the window at most, or until a
running batch ends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body
from fedmq.messages.online import OnlineRefusal
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.scoring.batch_runner import BatchRunner
from fedmq.party.online.scoring.circuit_breaker import PeerAvailability
from fedmq.party.online.scoring.served_model import ServedModel
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.computations import OnlineScores
from fedmq.protocol.online.options import AskedRows, Timeouts

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import BatchSpans, OnlineSpans

__all__ = ["BatchCounts", "Batcher", "RequestPiece"]

log = logging.getLogger(__name__)

_RETURN_SECONDS = 0.005
"""Kept of a request's time, to bring the answer back to the caller."""


@dataclass(slots=True, eq=False)
class RequestPiece:
    """Rows of one request, at most ``batch_rows``, that go through one batch together."""

    model: ServedModel
    ids: Sequence[str]
    values: NDArray[np.float32]
    """The label holder's own values, (rows, features)."""
    deadline: float
    """By the event loop's clock."""
    outcome: asyncio.Future[OnlineScores]
    explain: bool = False
    arrived: int = field(default_factory=time.time_ns)
    """Nanoseconds since the epoch."""
    base_margin: NDArray[np.float32] | None = None
    """Where the rows start, if not at the base score."""

    def by_id(self) -> dict[str, bytes]:
        """The values of each person, as bytes."""
        return dict(zip(self.ids, map(np.ndarray.tobytes, self.values), strict=True))

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the scores."""
        return not self.outcome.done() and self.deadline > asyncio.get_running_loop().time()


@dataclass(slots=True)
class BatchCounts:
    """What has happened to batches since the start."""

    batches: int = 0
    batch_rows: int = 0
    stray_answers: int = 0


class Batcher:
    """Runs batches of ``session``, asking the parties of ``peers`` through ``send``.

    ``send`` takes (recipient, body, seconds for which it is of use). ``on_not_served`` takes a
    party and the model that it does not serve, though it should.
    """

    def __init__(
        self,
        session: str,
        section: OnlineSection,
        peers: PeerAvailability,
        send: Callable[[str, Body, float], None],
        on_not_served: Callable[[str, str], None],
        spans: OnlineSpans | None = None,
    ) -> None:
        self.counts = BatchCounts()
        self._session = session
        self._section = section
        self._peers = peers
        self._send = send
        self._on_not_served = on_not_served
        self._spans = spans
        self._numbers = itertools.count(1)
        self._runners: dict[int, BatchRunner] = {}
        self._queue: deque[RequestPiece] = deque()
        self._reserved_rows = 0
        self._rows_in_queue = 0
        self._dispatching: asyncio.TimerHandle | None = None

    @property
    def queued_rows(self) -> int:
        """Rows that wait for a batch, or have a place reserved."""
        return self._reserved_rows + self._rows_in_queue

    @property
    def under_way(self) -> int:
        """How many batches run."""
        return len(self._runners)

    @property
    def idle(self) -> bool:
        """Whether no batch runs and no piece waits."""
        return not self._runners and not self._queue

    @contextmanager
    def reserve(self, rows: int) -> Iterator[None]:
        """Count ``rows`` among the queued ones, while their values are looked up."""
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
            # It lost what it served, or its disk. It is told again which model to serve, and the
            # question is repeated meanwhile.
            self._on_not_served(sender, runner.machine.model)
            return
        try:
            runner.receive(sender, body)
        except ProtocolError as error:
            self.counts.stray_answers += 1
            log.warning("an answer of %s was left aside: %s", sender, error)

    def _schedule(self) -> None:
        if self._dispatching is not None or not self._queue:
            return
        if len(self._runners) >= self._section.batches:
            return
        loop = asyncio.get_running_loop()
        first_rows = sum(len(piece.ids) for piece in itertools.islice(self._queue, 8))
        at_once = not self._runners or first_rows >= self._section.batch_rows
        delay = 0 if at_once else self._section.window
        self._dispatching = loop.call_later(delay, self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = None
        while self._queue and len(self._runners) < self._section.batches:
            first = self._take()
            if not first.is_wanted:
                continue
            pieces, rows, people = [first], len(first.ids), first.by_id()
            while (
                self._queue
                and self._queue[0].model is first.model
                and rows + len(self._queue[0].ids) <= self._section.batch_rows
                and _same_ways(people, self._queue[0])
            ):
                piece = self._take()
                if piece.is_wanted:
                    pieces.append(piece)
                    rows += len(piece.ids)
                    people.update(piece.by_id())
            self._begin(pieces)

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
        number = next(self._numbers)
        self._peers.expect(model.forest.asked.values())
        machine = OnlineBatch(
            number,
            model.forest,
            [name for piece in pieces for name in piece.ids],
            np.concatenate([piece.values for piece in pieces]),
            asked,
            model.mode,
            section.degrade,
            Timeouts(section.ask_again, None if section.degrade == "fail" else section.away),
            self._peers.away,
        )
        self.counts.batches += 1
        self.counts.batch_rows += rows

        def on_answer(index: int, result: Any) -> None:
            outcome = pieces[index].outcome
            if outcome.done():
                return
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(replace(result, waited=dict(runner.waited)))

        runner = self._runners[number] = BatchRunner(
            machine,
            self._send,
            max(rows_of_piece.seconds for rows_of_piece in asked),
            on_answer,
            lambda runner: self._on_end(number, runner),
            self._spans_of(number, pieces),
        )
        runner.start()

    def _on_end(self, number: int, runner: BatchRunner) -> None:
        self._runners.pop(number, None)
        for party in runner.machine.silent:
            self._peers.record_miss(party)
        self._schedule()

    def _spans_of(self, number: int, pieces: list[RequestPiece]) -> BatchSpans | None:
        if self._spans is None:
            return None
        model = pieces[0].model
        arrived = [(piece.arrived, len(piece.ids)) for piece in pieces]
        return self._spans.batch(self._session, number, model.id, model.mode, arrived)


def _same_ways(people: Mapping[str, bytes], piece: RequestPiece) -> bool:
    """Whether nobody would go two ways in one batch: parties answer about one way a person.

    A person goes two ways who is asked for twice with different values.
    """
    return all(people.get(name, values) == values for name, values in piece.by_id().items())
