"""The sessions of one daemon: what runs, how far it is, and for whom it waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedmq.errors import ConfigError, FedmqError
from fedmq.party.compute import ComputePool
from fedmq.party.meters import Meters
from fedmq.party.recording import Recorder
from fedmq.party.runner import SessionRunner
from fedmq.party.sealer import Sealer
from fedmq.party.switchboard import Switchboard
from fedmq.party.trace import Trace, write_trace
from fedmq.party.traffic import Traffic
from fedmq.protocol.events import Report, Waiting
from fedmq.protocol.machine import Machine
from fedmq.protocol.mailbox import Address, Mailbox, RetryPolicy
from fedmq.protocol.session import Session
from fedmq.transport.link import Lane, Link

__all__ = ["Purpose", "RunningSession", "Sessions"]

log = logging.getLogger(__name__)

Purpose = Literal["alignment", "training", "inference"]

_LANES: Mapping[Purpose, Lane] = {
    "alignment": "training",
    "training": "training",
    "inference": "inference",
}
_LINGER = 60.0  # seconds during which a closed session still acknowledges repetitions


@dataclass
class RunningSession:
    """A session and what people want to know about it."""

    id: str
    purpose: Purpose
    model: str
    runner: SessionRunner
    traffic: Traffic
    started: datetime = field(default_factory=lambda: datetime.now().astimezone())
    report: Report | None = None
    waiting: dict[str, Waiting] = field(default_factory=dict)
    last_seen: dict[str, datetime] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """What ``fedmq status`` shows, as plain data."""
        state = self.runner.session.machine.state
        return {
            "session": self.id,
            "purpose": self.purpose,
            "model": self.model,
            "state": state.name.lower(),
            "meaning": state.value,
            "started": self.started.isoformat(timespec="seconds"),
            "done": self.report.done if self.report else 0,
            "total": self.report.total if self.report else None,
            "unit": self.report.unit if self.report else None,
            "waiting": [self._wait(each) for each in self.waiting.values()],
            "bytes_sent": self.traffic.total.bytes,
        }

    def _wait(self, waiting: Waiting) -> str:
        seen = self.last_seen.get(waiting.peer)
        last = f"last seen {seen:%H:%M:%S}" if seen else "not seen yet"
        return f"waiting for {waiting.peer} ({last}, retry {waiting.retry} of {waiting.retries})"


class Sessions:
    """Opens sessions of this party and keeps them until they are closed."""

    def __init__(
        self,
        federation: str,
        link: Link,
        switchboard: Switchboard,
        pool: ComputePool,
        retry: RetryPolicy,
        traces: Path | None = None,
        sealer: Sealer | None = None,
        meters: Meters | None = None,
        recordings: Path | None = None,
    ) -> None:
        """``traces``: a folder for the timeline of each session, as ``SESSION.json``."""
        self.running: dict[str, RunningSession] = {}
        self._federation = federation
        self._link = link
        self._switchboard = switchboard
        self._pool = pool
        self._retry = retry
        self._sealer = sealer
        self._meters = meters or Meters()
        self._traces = traces
        self._recordings = recordings
        self._watches: set[asyncio.Task[None]] = set()

    def open(
        self,
        session: str,
        attempt: int,
        purpose: Purpose,
        model: str,
        machine: Machine,
        on_result: Callable[[Any], None] = lambda _: None,
        on_change: Callable[[RunningSession], None] = lambda _: None,
        trace: Trace | None = None,
    ) -> RunningSession:
        """Make a session known and ready to receive; ``on_result`` takes its result.

        What ``on_result`` raises ends the session as an error of its own.
        """
        if trace is None and self._traces is not None:
            trace = Trace()
        address = Address(self._federation, session, attempt, self._link.party)
        traffic = Traffic()

        def reported(report: Report) -> None:
            if report.unit == "tree":
                self._meters.trees += report.done - (running.report.done if running.report else 0)
            running.report = report
            on_change(running)

        def waited(waiting: Waiting, trouble: str) -> None:
            if waiting.retry:
                running.waiting[waiting.peer] = waiting
                self._meters.retries[waiting.peer] += 1
                wait = running._wait(waiting)
                log.warning("session %s: %s %s", session, wait, trouble, extra={"session": session})
            else:
                running.waiting.pop(waiting.peer, None)
            on_change(running)

        recorder = self._recorder(session, attempt)
        mailbox = Mailbox(address, machine.peers, self._retry, np.random.default_rng())
        runner = SessionRunner(
            Session(machine, mailbox),
            _Lane(self._link, _LANES[purpose]).publish,
            self._pool,
            traffic,
            reported,
            waited,
            trace,
            self._sealer,
            self._meters,
            recorder.keep if recorder else None,
        )
        if recorder:
            runner.closed.add_done_callback(lambda _: recorder.close())
        running = RunningSession(session, purpose, model, runner, traffic)
        self.running[session] = running
        self._switchboard.add(runner)
        watch = asyncio.create_task(self._watch(running, on_result, trace))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return running

    def _recorder(self, session: str, attempt: int) -> Recorder | None:
        if self._recordings is None:
            return None
        name = f"{session}.{attempt}.{self._link.party}.recording"
        return Recorder(self._recordings / name, self._link.party)

    async def close(self, reason: str) -> None:
        """Cancel what runs, tell the peers, and give the messages a moment to leave."""
        for running in list(self.running.values()):
            if not running.runner.session.over:
                running.runner.cancel(reason)
        closed = [running.runner.closed for running in self.running.values()]
        if closed:
            await asyncio.wait(closed, timeout=3)
        for watch in self._watches:
            watch.cancel()
        for running in self.running.values():
            running.runner.stop()

    async def _watch(
        self, running: RunningSession, on_result: Callable[[Any], None], trace: Trace | None
    ) -> None:
        what = f"{running.purpose} {running.id} of {running.model}"
        about = {"session": running.id}
        try:
            on_result(await running.runner.outcome)
            self._meters.sessions_ended[running.purpose, "finished"] += 1
            log.info("%s finished", what, extra=about)
        except FedmqError as error:
            self._meters.sessions_ended[running.purpose, type(error).__name__] += 1
            log.warning("%s ended: %s", what, error, extra=about)
        await running.runner.closed
        if trace is not None and self._traces is not None:
            await self._keep(trace, self._traces, running.id)
        await asyncio.sleep(_LINGER)
        self.running.pop(running.id, None)
        self._switchboard.remove(running.runner)
        running.runner.stop()

    async def _keep(self, trace: Trace, folder: Path, session: str) -> None:
        # The session was named by a peer, and a name may be a path.
        name = session if session.isascii() and session.isalnum() else f"{trace.begun:.0f}"
        try:
            await asyncio.to_thread(write_trace, trace.document(), folder / f"{name}.json")
        except ConfigError as error:  # a session is worth more than its timeline
            log.warning("the timeline was lost: %s", error)


@dataclass(frozen=True, slots=True)
class _Lane:
    link: Link
    lane: Lane

    async def publish(self, recipient: str, body: bytes, *, message_id: str) -> None:
        await self.link.publish(recipient, self.lane, body, message_id=message_id)
