"""The interpreter of one online batch: its machine among the event loop's timers and a link."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from fedmq.errors import FedmqError
from fedmq.messages.body import Body
from fedmq.protocol.events import (
    Answer,
    CancelTimer,
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
from fedmq.protocol.online.active import OnlineBatch

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import BatchSpans

__all__ = ["BatchRunner"]

log = logging.getLogger(__name__)


class BatchRunner:
    """Runs ``machine``, for ``seconds`` at most.

    ``send`` takes (recipient, body, seconds for which it is of use), ``on_answer`` the number of
    a request and its scores or its error, ``on_end`` this runner. ``spans`` trace the batch.
    """

    def __init__(
        self,
        machine: OnlineBatch,
        send: Callable[[str, Body, float], None],
        seconds: float,
        on_answer: Callable[[int, Any], None],
        on_end: Callable[[BatchRunner], None],
        spans: BatchSpans | None = None,
    ) -> None:
        self.machine = machine
        self.waited: dict[str, float] = {}
        """Seconds from a question to its answer, by party, over all rounds so far."""
        self._asked: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._deadline = self._loop.time() + seconds
        self._on_answer = on_answer
        self._on_end = on_end
        self._spans = spans
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Ask the first questions."""
        self._act_on(Start())

    def receive(self, sender: str, body: Body) -> None:
        """Take an answer of ``sender``.

        Raises:
            ProtocolError: it fits no open question; nothing has changed.
        """
        asked = self._asked.pop(sender, None)
        if asked is not None:
            self.waited[sender] = self.waited.get(sender, 0.0) + self._loop.time() - asked
        if self._spans is not None:
            self._spans.answered(body)  # before the answer is handled, which may end the batch
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
                    case RunPlan():
                        # Inline: a row of 50 trees takes some 200 microseconds, and a full batch a
                        # few milliseconds; another process would cost more than it takes over.
                        events.append(run_inline(effect))
                    case SetTimer(key, seconds):
                        self._cancel(key)
                        self._timers[key] = self._loop.call_later(seconds, self._fire, key)
                    case CancelTimer(key):
                        self._cancel(key)
                    case Answer(request, result):
                        if self._spans is not None:
                            self._spans.done(request, result)
                        self._on_answer(request, result)
                    case Finish() | Fail():
                        self._end()

    def _fire(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self._act_on(TimerFired(key))

    def _act_on(self, event: Event) -> None:
        """As ``_feed``; an unforeseen error ends the batch, which must not keep its place."""
        try:
            self._feed(event)
        except Exception as error:  # a fault in fedmq
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
