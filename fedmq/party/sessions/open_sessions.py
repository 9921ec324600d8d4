"""The sessions of one daemon: what runs, how far it is, and for whom it waits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from fedmq.errors import DaemonError, FedmqError
from fedmq.party.compute.pool import ComputePool
from fedmq.party.identity.sealer import Sealer
from fedmq.party.sessions.attempts import AttemptLoop, first_of
from fedmq.party.sessions.checkpointing import NULL_CHECKPOINTER, Checkpointer
from fedmq.party.sessions.inbox import Inbox
from fedmq.party.sessions.lane import SessionLane
from fedmq.party.sessions.observer import Observation
from fedmq.party.sessions.progress import Progress
from fedmq.party.sessions.runner import NOBODY_ASKED, Owner, SessionRunner
from fedmq.party.sessions.running import EndedSession, Purpose, RunningSession
from fedmq.party.telemetry.activity import Activity
from fedmq.party.telemetry.timeline import Timeline
from fedmq.party.telemetry.traffic import Traffic
from fedmq.protocol.events import AwaitConsent, Report, Waiting
from fedmq.protocol.machine import Machine
from fedmq.protocol.session import Address, Mailbox, RetryPolicy, Session
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import Lane, Link

__all__ = ["Sessions"]

log = logging.getLogger(__name__)


_LANES: Mapping[Purpose, Lane] = {
    "alignment": "training",
    "training": "training",
    "inference": "inference",
    "activation": "inference",
    "model request": "inference",
}
_LINGER = 60.0  # seconds during which a closed session still acknowledges repetitions
_SWEEP_SECONDS = 10.0  # at least, between two collections, each of which holds up the loop
_CLOSE_SECONDS = 3.0
_REMEMBERED = 10


class Sessions:
    """Opens sessions of this party and keeps them until they are closed.

    ``on_idle`` is called when a session that outlives crashes waits for a new attempt (True), and
    when it has got one (False).
    """

    def __init__(
        self,
        *,
        federation: str,
        link: Link,
        inbox: Inbox,
        pool: ComputePool,
        retry: RetryPolicy,
        sealer: Sealer | None = None,
        observation: Observation | None = None,
        on_idle: Callable[[str, bool], None] = lambda _, __: None,
    ) -> None:
        self.running: dict[str, RunningSession] = {}
        self.ended: deque[EndedSession] = deque(maxlen=_REMEMBERED)
        """The last that ended, the newest last; some may still be among ``running``."""
        self._federation = federation
        self._link = link
        self._inbox = inbox
        self._pool = pool
        self._retry = retry
        self._sealer = sealer
        self._observation = observation or Observation()
        self._on_idle = on_idle
        self._tasks = BackgroundTasks()
        self._sweep: asyncio.TimerHandle | None = None

    def open(
        self,
        session: str,
        attempt: int,
        purpose: Purpose,
        model: str,
        machine: Machine,
        *,
        on_change: Callable[[RunningSession], None] = lambda _: None,
        timeline: Timeline | None = None,
        checkpointer: Checkpointer = NULL_CHECKPOINTER,
        owner: Owner = NOBODY_ASKED,
    ) -> RunningSession:
        """Make an attempt known and ready to receive; it takes the place of an older one."""
        before = self.running.pop(session, None)
        if before is not None:
            self._forget(before)
        address = Address(self._federation, session, attempt, self._link.party)

        activity, received, progress = Activity(self._link.party), Traffic(), Progress()
        if before is not None:
            progress = before.progress
            progress.begin_attempt()

        def on_report(report: Report) -> None:
            running.report = report
            progress.add(report)
            on_change(running)

        def on_waiting(waiting: Waiting, trouble: str) -> None:
            if waiting.retry:
                running.waiting[waiting.peer] = (waiting, trouble)
                wait = running.wait(waiting, trouble)
                log.warning("session %s: %s", session, wait, extra={"session": session})
            else:
                running.waiting.pop(waiting.peer, None)
            on_change(running)

        def on_consent(awaited: AwaitConsent) -> None:
            running.consents.pop(awaited.peer, None)
            if awaited.seconds:
                until = datetime.now().astimezone() + timedelta(seconds=awaited.seconds)
                running.consents[awaited.peer] = until
                wait = f"waits for {awaited.peer}'s consent"
                log.info("session %s %s", session, wait, extra={"session": session})
            on_change(running)

        observer = self._observation.begin(
            address,
            purpose,
            model,
            timeline=timeline,
            activity=activity,
            received=received,
            on_report=on_report,
            on_waiting=on_waiting,
            on_consent=on_consent,
        )
        mailbox = Mailbox(address, machine.peers, self._retry, np.random.default_rng())
        runner = SessionRunner(
            Session(machine, mailbox),
            publish=SessionLane(self._link, _LANES[purpose]).publish,
            pool=self._pool,
            sealer=self._sealer,
            checkpointer=checkpointer,
            observer=observer,
            owner=owner,
        )
        runner.closed.add_done_callback(lambda _: observer.on_closed(runner.outcome))
        running = RunningSession(
            session,
            purpose,
            model,
            runner,
            observer.traffic,
            received=received,
            progress=progress,
            activity=activity,
        )
        self.running[session] = running
        self._inbox.add(runner)
        self._on_idle(session, False)
        self._tasks.spawn(self._watch(running, observer.timeline))
        return running

    def drive(self, attempts: AttemptLoop) -> AttemptLoop:
        """Let ``attempts`` be opened until the session ends, or this party stops."""
        self._tasks.spawn(attempts.run())
        return attempts

    def live(self, session: str) -> RunningSession:
        """The session, if it has not ended; DaemonError otherwise."""
        running = self.running.get(session)
        if running is not None and not running.runner.outcome.done():
            return running
        if running is not None and running.waits:
            raise DaemonError(
                f"session {session} has ended here, and is {'; '.join(running.waits)}"
            )
        raise DaemonError(f"session {session} does not run here; see: fedmq status")

    def cancel_with(self, party: str, reason: str) -> None:
        """End what runs with ``party``, which cannot take part any more."""
        for running in self.running.values():
            runner = running.runner
            if party in runner.session.machine.peers and not runner.session.over:
                runner.cancel(reason)

    async def close(self, reason: str) -> None:
        """Stop what goes on after a restart, and cancel the rest.

        What waits for an owner's consent is left waiting, for the answer outlives a restart. A
        moment remains for messages to leave, so that peers of a cancelled session hear why.
        """
        ends: list[Awaitable[Any]] = []
        for running in self.running.values():
            runner = running.runner
            if runner.durable or runner.session.machine.awaits_consent:
                ends.append(runner.written())
                continue
            if not runner.session.over:
                runner.cancel(reason)
            ends.append(runner.closed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*ends)
        self._tasks.cancel()
        for running in self.running.values():
            running.runner.stop()

    async def _watch(self, running: RunningSession, timeline: Timeline | None) -> None:
        what = f"{running.purpose} {running.id} of {running.model}"
        about = {"session": running.id}
        runner = running.runner
        await first_of(runner.outcome, runner.interrupted)
        if not runner.outcome.done():
            why = runner.interrupted.result()
            log.warning("%s: %s, a new attempt is due", what, why, extra=about)
            if runner.durable:
                self._on_idle(running.id, True)
                # A new attempt cancels the outcome; an owner who gives up sets it.
                await asyncio.wait([runner.outcome])
                if runner.outcome.cancelled():
                    return
        ended = running.end()
        if runner.outcome.done():
            self.ended.append(ended)
        try:
            if runner.outcome.done():
                runner.outcome.result()
                self._observation.counters.sessions_ended[running.purpose, "finished"] += 1
                log.info("%s finished", what, extra=about)
        except FedmqError as error:
            self._observation.counters.sessions_ended[running.purpose, type(error).__name__] += 1
            log.warning("%s ended: %s", what, error, extra=about)
        await running.runner.closed
        await self._observation.keep_timeline(running.id, timeline)
        await asyncio.sleep(_LINGER)
        if self.running.get(running.id) is running:
            del self.running[running.id]
        self._forget(running)

    def _forget(self, running: RunningSession) -> None:
        self._inbox.remove(running.runner)
        running.runner.stop()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._free)

    def _free(self) -> None:
        """Free what forgotten sessions leave: machine, tables and runner refer to one another.

        By itself the garbage collector would come after a hundred trainings, for it counts objects.
        A session has few, but among them are arrays of all rows.
        """
        self._sweep = None
        gc.collect()
