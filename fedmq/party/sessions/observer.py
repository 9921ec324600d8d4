"""Who watches one attempt at a session: what is counted, timed, recorded and shown of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.sessions.recording import Recorder
from fedmq.party.telemetry.activity import Activity
from fedmq.party.telemetry.counters import Counters
from fedmq.party.telemetry.timeline import Span, Timeline, write_trace
from fedmq.party.telemetry.traffic import Traffic
from fedmq.protocol.events import AwaitConsent, Report, Waiting
from fedmq.protocol.session import Address

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import Telemetry

__all__ = ["Observation", "SessionObserver"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionObserver:
    """Receives all that one attempt does, and changes none of it."""

    traffic: Traffic = field(default_factory=Traffic)
    """What is sent."""
    counters: Counters = field(default_factory=Counters)
    timeline: Timeline | None = None
    record: Callable[[Envelope], None] | None = None
    """Is given each envelope that is sent or received."""
    on_report: Callable[[Report], None] = lambda _: None
    on_waiting: Callable[[Waiting, str], None] = lambda _, __: None
    """Is also given the link's trouble, or nothing."""
    on_consent: Callable[[AwaitConsent], None] = lambda _: None
    on_arrived: Callable[[Header, int], None] = lambda _, __: None
    """Is given the header of each message that arrives, and its size in bytes."""
    on_computed: Callable[[str, float, Span], None] = lambda _, __, ___: None
    """Is given the computation's name, when it was asked for (Unix seconds), and its span."""
    on_closed: Callable[[asyncio.Future[Any]], None] = lambda _: None
    """Is given the attempt's outcome, which is open where another attempt follows."""


class Observation:
    """How a daemon observes its sessions.

    ``counters`` are of all sessions together. Each attempt has a recording where ``recordings`` is
    a folder, a timeline as ``SESSION.json`` where ``traces`` is one, and spans in ``telemetry``.
    """

    def __init__(
        self,
        *,
        counters: Counters | None = None,
        traces: Path | None = None,
        recordings: Path | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._traces = traces
        self._recordings = recordings
        self._telemetry = telemetry

    def begin(
        self,
        address: Address,
        purpose: str,
        model: str,
        *,
        timeline: Timeline | None,
        activity: Activity,
        received: Traffic,
        on_report: Callable[[Report], None],
        on_waiting: Callable[[Waiting, str], None],
        on_consent: Callable[[AwaitConsent], None],
    ) -> SessionObserver:
        """An observer of the attempt at ``address``, which also calls ``on_...``."""
        if timeline is None and self._traces is not None:
            timeline = Timeline()
        telemetry = self._telemetry
        spans = telemetry.follow(address, purpose, model) if telemetry is not None else None
        recorder = self._recorder(address)
        trees = 0

        def report(progress: Report) -> None:
            nonlocal trees
            if progress.unit == "tree":
                self.counters.trees += progress.done - trees
                trees = progress.done
                if spans is not None:
                    spans.tree_done(progress.done)
            on_report(progress)

        def wait(waiting: Waiting, trouble: str) -> None:
            if waiting.retry:
                self.counters.retries[waiting.peer] += 1
            on_waiting(waiting, trouble)

        def computed(what: str, asked: float, span: Span) -> None:
            activity.computed(span.start, span.end)
            if spans is not None:
                spans.computed(what, asked, span)

        def record(envelope: Envelope) -> None:
            if envelope.header.sender == address.party:
                activity.sent(envelope.header)
            if recorder is not None:
                recorder.keep(envelope)

        def arrived(header: Header, size: int) -> None:
            received.count(header, size)
            activity.received(header)

        def close(outcome: asyncio.Future[Any]) -> None:
            activity.end()
            if spans is not None:
                spans.end(outcome)
            if recorder is not None:
                recorder.close()

        return SessionObserver(
            counters=self.counters,
            timeline=timeline,
            record=record,
            on_report=report,
            on_waiting=wait,
            on_consent=on_consent,
            on_arrived=arrived,
            on_computed=computed,
            on_closed=close,
        )

    async def keep_timeline(self, session: str, timeline: Timeline | None) -> None:
        """Write the timeline of a closed session into the folder of traces, if there is one."""
        if timeline is None or self._traces is None:
            return
        path = self._traces / f"{session}.json"
        try:
            await asyncio.to_thread(write_trace, timeline.document(), path)
        except ConfigError as error:  # a session is worth more than its timeline
            log.warning("the timeline was lost: %s", error)

    def _recorder(self, address: Address) -> Recorder | None:
        if self._recordings is None:
            return None
        name = f"{address.session}.{address.attempt}.{address.party}.recording"
        try:
            return Recorder(self._recordings / name, address.party)
        except ConfigError as error:  # a session is worth more than its recording
            log.error("session %s is not recorded: %s", address.session, error)
            return None
