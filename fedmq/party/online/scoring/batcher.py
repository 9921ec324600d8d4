"""Pieces of requests that walk together: whoever waits when a batch can start goes along.

A lone piece starts at once; under load pieces wait for others, for the window at most or until a
batch comes home.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body
from fedmq.messages.online import OnlineRefusal
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.scoring.batch_runner import BatchRunner
from fedmq.party.online.scoring.circuit_breaker import Peers
from fedmq.party.online.scoring.served_model import ServedModel
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.computations import OnlineScores
from fedmq.protocol.online.options import AskedRows, Timeouts

if TYPE_CHECKING:
    from fedmq.party.telemetry.serving_spans import BatchSpans, OnlineSpans

__all__ = ["Batcher", "Waiting"]

log = logging.getLogger(__name__)

_SPARE = 0.005
"""Seconds of a request's time that are kept to bring the answer home."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A piece of a request, of at most ``batch_rows`` rows, that waits for its batch."""

    model: ServedModel
    ids: Sequence[str]
    values: NDArray[np.float32]
    until: float
    """When its time is over, by the event loop's clock."""
    outcome: asyncio.Future[OnlineScores]
    since: int = field(default_factory=time.time_ns)


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    batches: int = 0
    batch_rows: int = 0
    stray_answers: int = 0


class Batcher:
    """Runs batches of ``session``, asking the parties of ``peers`` through ``say``.

    ``say`` takes (recipient, body, seconds for which it is of use); ``on_not_served`` a party and
    the model that it does not serve, though it should.
    """

    def __init__(
        self,
        session: str,
        section: OnlineSection,
        peers: Peers,
        say: Callable[[str, Body, float], None],
        on_not_served: Callable[[str, str], None],
        spans: OnlineSpans | None = None,
    ) -> None:
        self.counts = Counts()
        self.queued_rows = 0
        """Rows that wait for a batch."""
        self._session = session
        self._section = section
        self._peers = peers
        self._say = say
        self._on_not_served = on_not_served
        self._spans = spans
        self._numbers = itertools.count(1)
        self._runs: dict[int, BatchRunner] = {}
        self._queue: deque[Waiting] = deque()
        self._flush: asyncio.TimerHandle | None = None

    @property
    def under_way(self) -> int:
        """How many batches walk."""
        return len(self._runs)

    @property
    def idle(self) -> bool:
        """Whether nothing walks or waits."""
        return not self._runs and not self._queue

    def put(self, pieces: Sequence[Waiting]) -> None:
        """Let these take part; their rows are counted in ``queued_rows`` already."""
        self._queue.extend(pieces)
        self._schedule()

    def receive(self, sender: str, body: Body) -> None:
        """Take an answer of ``sender``."""
        run = self._runs.get(getattr(body, "batch", -1))
        if run is None:
            return
        if isinstance(body, OnlineRefusal) and body.cause == "model":
            # It lost what it served, or its disk: it is told anew, and asked again meanwhile.
            self._on_not_served(sender, run.machine.model)
            return
        try:
            run.receive(sender, body)
        except ProtocolError as error:
            self.counts.stray_answers += 1
            log.warning("an answer of %s was left aside: %s", sender, error)

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

    def _take(self) -> Waiting:
        waiting = self._queue.popleft()
        self.queued_rows -= len(waiting.ids)
        return waiting

    def _begin(self, together: list[Waiting]) -> None:
        now = asyncio.get_running_loop().time()
        model = together[0].model
        asked, at = [], 0
        for each in together:
            left = max(each.until - now - _SPARE, 0.001)
            asked.append(AskedRows(at, at + len(each.ids), left))
            at += len(each.ids)
        section = self._section
        number = next(self._numbers)
        self._peers.expect(model.forest.asked.values())
        machine = OnlineBatch(
            number,
            model.forest,
            [name for each in together for name in each.ids],
            np.concatenate([each.values for each in together]),
            asked,
            model.mode,
            section.degrade,
            Timeouts(section.ask_again, None if section.degrade == "fail" else section.away),
            self._peers.away,
        )
        self.counts.batches += 1
        self.counts.batch_rows += at

        def answered(index: int, result: Any) -> None:
            outcome = together[index].outcome
            if outcome.done():
                return
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

        self._runs[number] = run = BatchRunner(
            machine,
            self._say,
            max(each.seconds for each in asked),
            answered,
            lambda run: self._ended(number, run),
            self._follow(number, together),
        )
        run.start()

    def _ended(self, number: int, run: BatchRunner) -> None:
        self._runs.pop(number, None)
        for party in run.machine.silent:
            self._peers.missed(party)
        self._schedule()

    def _follow(self, number: int, together: list[Waiting]) -> BatchSpans | None:
        if self._spans is None:
            return None
        model = together[0].model
        arrived = [(each.since, len(each.ids)) for each in together]
        return self._spans.batch(self._session, number, model.id, model.mode, arrived)
