"""Which sessions run at this party, how far are they, and when does each begin anew?

`Sessions` opens attempts and watches them until they are closed. `AttemptLoop` opens one attempt
after the other if this party drives the session. `RunningSession` and `Progress` are their view
for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import numpy as np

from fedmq.errors import DaemonError, FedmqError, PeerSilent
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.compute.pool import ComputePool
from fedmq.party.identity.sealer import RELEASE, Sealer
from fedmq.party.sessions.observe import Observation, Observer
from fedmq.party.sessions.runner import NOBODY_ASKED, Inbox, Owner, SessionLane, SessionRunner
from fedmq.party.store.journal import NULL_JOURNAL, Journal
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Activity, Span, Timeline
from fedmq.protocol.events import ConsentPending, Report, Waiting
from fedmq.protocol.kinds import SESSION_KINDS
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.link import Link

__all__ = [
    "AttemptLoop",
    "EndedSession",
    "OnProgress",
    "Progress",
    "RunningSession",
    "Sessions",
    "Status",
    "attempt_after_restart",
    "first_of",
]

log = logging.getLogger(__name__)

_PACE_REPORTS = 12
"""Number of recent reports that give the pace."""


class Progress:
    """A session's reports over all its attempts; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace: deque[tuple[float, int]] = deque(maxlen=_PACE_REPORTS)
        self._figures: dict[int, Mapping[str, float]] = {}
        self._left = 0

    def restart_pace(self) -> None:
        """Forget the pace, as between two attempts: that time says nothing about it."""
        self._pace.clear()

    def add(self, report: Report) -> None:
        """Add one report."""
        self._pace.append((self._clock(), report.done))
        self._left = report.total - report.done
        if report.details:
            self._figures[report.done] = dict(report.details)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the recent pace; None before two reports."""
        if len(self._pace) < 2:
            return None
        (begun, first), (at, last) = self._pace[0], self._pace[-1]
        if last <= first or at <= begun:
            return None
        return max(0.0, self._left * (at - begun) / (last - first) - (self._clock() - at))

    @property
    def curve(self) -> dict[str, list[float | None]]:
        """Values by figure, None if unknown; ``done`` holds the progress at each value."""
        done = sorted(self._figures)
        names = dict.fromkeys(name for at in done for name in self._figures[at])
        return {
            "done": [float(at) for at in done],
            **{name: [self._figures[at].get(name) for at in done] for name in names},
        }


OnProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes one event of the kind that the command line shows, such as a finished tree."""


@dataclass(frozen=True, slots=True)
class EndedSession:
    """The summary of a session whose tables and trees are gone."""

    id: str
    purpose: str
    model: str
    ended: datetime
    reason: str
    """Why it ended without a result; empty if it has finished."""


class Status(Observer):
    """The view for people of one attempt of ``party`` at ``session``.

    ``progress`` covers all attempts; ``on_change`` is called after each change. ``releases``: what
    each peer says of its fedmq, as `Sealer.releases`.
    """

    def __init__(
        self,
        session: str,
        party: str,
        progress: Progress | None = None,
        on_change: Callable[[], None] = lambda: None,
        releases: Callable[[], Mapping[str, str]] = lambda: {},
    ) -> None:
        self.sent, self.received = Traffic(), Traffic()
        self.progress = progress or Progress()
        self.activity = Activity(party)
        self.report: Report | None = None
        self.waiting: dict[str, tuple[Waiting, str]] = {}
        """By awaited peer, with the link's trouble."""
        self.consents: dict[str, datetime] = {}
        """By peer whose owner is asked: the deadline of the answer."""
        self._session = session
        self._on_change = on_change
        self._releases = releases
        self._last_seen: dict[str, float] = {}
        """When each peer was last heard, in seconds since the epoch."""

    def arrived(self, header: Header, size: int) -> None:
        self._last_seen[header.sender] = time.time()
        self.received.count(header, size)
        self.activity.received(header)

    def handed_over(self, envelope: Envelope) -> None:
        self.activity.sent(envelope.header)

    def leaving(self, header: Header, size: int) -> None:
        self.sent.count(header, size)

    def computed(self, label: str, asked: float, span: Span) -> None:
        self.activity.computed(span.start, span.end)

    def reported(self, report: Report) -> None:
        self.report = report
        self.progress.add(report)
        self._on_change()

    def waited(self, waiting: Waiting, trouble: str) -> None:
        if waiting.retry:
            self.waiting[waiting.peer] = (waiting, trouble)
            about = {"session": self._session}
            log.warning("session %s: %s", self._session, self.wait(waiting, trouble), extra=about)
        else:
            self.waiting.pop(waiting.peer, None)
        self._on_change()

    def consent_awaited(self, awaited: ConsentPending) -> None:
        self.consents.pop(awaited.peer, None)
        self.progress.restart_pace()  # an owner who thinks it over says nothing about it
        if awaited.seconds:
            until = datetime.now().astimezone() + timedelta(seconds=awaited.seconds)
            self.consents[awaited.peer] = until
            about = {"session": self._session}
            log.info("session %s waits for %s's consent", self._session, awaited.peer, extra=about)
        self._on_change()

    def closed(self, outcome: asyncio.Future[Any]) -> None:
        self.activity.end()

    def wait(self, waiting: Waiting, trouble: str) -> str:
        """How long the peer in ``waiting`` has been silent, in one line."""
        seen = self._last_seen.get(waiting.peer)
        last = "not seen yet"
        if seen is not None:
            last = f"last seen {datetime.fromtimestamp(seen):%H:%M:%S}"
        line = f"waiting for {waiting.peer} ({last}, retry {waiting.retry} of {waiting.retries})"
        release = self._releases().get(waiting.peer, RELEASE)
        if release != RELEASE:  # it may refuse all that it gets, and say so in its log alone
            line += (
                f"; {waiting.peer} runs {f'fedmq {release}' if release else 'an older fedmq'}, "
                f"this party fedmq {RELEASE}: bring both to the same release"
            )
        return f"{line}: {trouble}" if trouble else line


@dataclass
class RunningSession:
    """A session, and its ``seen`` status for people."""

    id: str
    purpose: str
    model: str
    runner: SessionRunner
    seen: Status
    started: datetime = field(default_factory=lambda: datetime.now().astimezone())
    ended: datetime | None = None
    """When it ended, with or without a result."""

    @property
    def traffic(self) -> Traffic:
        """This party's outgoing traffic in this attempt."""
        return self.seen.sent

    @property
    def report(self) -> Report | None:
        """The latest progress report, if there is one."""
        return self.seen.report

    def status(self) -> dict[str, Any]:
        """The output of ``fedmq status``, as plain data."""
        state, report = self.runner.session.machine.state, self.seen.report
        waits = self.waits
        return {
            "session": self.id,
            "purpose": self.purpose,
            "model": self.model,
            "attempt": self.runner.session.mailbox.address.attempt,
            "state": "waiting" if waits else state.name.lower(),
            "meaning": state.value,
            "started": self.started.isoformat(timespec="seconds"),
            "ended": None if self.ended is None else self.ended.isoformat(timespec="seconds"),
            "reason": self.reason,
            "done": report.done if report else 0,
            "total": report.total if report else None,
            "unit": report.unit if report else None,
            "details": dict(report.details) if report else {},
            "waiting": waits,
            "bytes_sent": self.seen.sent.total.bytes,
        }

    def details(self) -> dict[str, Any]:
        """Details beyond the status, as plain data."""
        machine = self.runner.session.machine
        until = self.ended or datetime.now().astimezone()
        return {
            **self.status(),
            "paused": machine.state.name == "PAUSED",
            "seconds": round((until - self.started).total_seconds(), 1),
            "seconds_left": self.seen.progress.seconds_left,
            "curve": self.seen.progress.curve,
            "traffic": [self._exchanged(peer) for peer in sorted(machine.peers)],
            "activity": self.seen.activity.described(),
        }

    def _exchanged(self, peer: str) -> dict[str, Any]:
        own = self.runner.session.mailbox.address.party
        sent = self.seen.sent.between(own, peer)
        received = self.seen.received.between(peer, own)
        return {
            "party": peer,
            "messages_sent": sent.messages,
            "bytes_sent": sent.bytes,
            "messages_received": received.messages,
            "bytes_received": received.bytes,
        }

    @property
    def reason(self) -> str:
        """Why it ended without a result; empty while it runs and after it finished."""
        outcome = self.runner.outcome
        if not outcome.done() or outcome.cancelled() or outcome.exception() is None:
            return ""
        return str(outcome.exception())

    def end(self) -> EndedSession:
        """End the session, and return its summary."""
        self.ended = datetime.now().astimezone()
        return EndedSession(self.id, self.purpose, self.model, self.ended, self.reason)

    @property
    def waits(self) -> list[str]:
        """One line per awaited peer; none once it is closed."""
        waits = [] if self.runner.closed.done() else self.seen.waiting.values()
        consents = {} if self.runner.session.over else self.seen.consents
        return [
            *(
                f"waits for {peer}'s consent (until {until:%Y-%m-%d %H:%M})"
                for peer, until in consents.items()
            ),
            *(self.seen.wait(waiting, trouble) for waiting, trouble in waits),
        ]


_LINGER = 60.0  # seconds during which a closed session still acknowledges repetitions
_SWEEP_SECONDS = 10.0  # between two collections at least: each holds up the event loop
_CLOSE_SECONDS = 3.0
_REMEMBERED = 10


class Sessions:
    """Opens sessions of this party and keeps them until they are closed.

    ``on_idle`` is called when a session that outlives crashes waits for a new attempt (True), and
    when it has one (False).
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
        """The last sessions that ended, the newest last; some may still be among ``running``."""
        self._federation = federation
        self._link = link
        self._inbox = inbox
        self._pool = pool
        self._retry = retry
        self._sealer = sealer
        self._releases = lambda: sealer.releases if sealer is not None else {}
        self._observation = observation or Observation()
        self._on_idle = on_idle
        self._tasks = BackgroundTasks()
        self._sweep: asyncio.TimerHandle | None = None

    def open(
        self,
        session: str,
        attempt: int,
        purpose: str,
        model: str,
        machine: Machine,
        *,
        on_change: Callable[[RunningSession], None] = lambda _: None,
        timeline: Timeline | None = None,
        journal: Journal = NULL_JOURNAL,
        owner: Owner = NOBODY_ASKED,
    ) -> RunningSession:
        """Register an attempt, ready to receive; it replaces an older one.

        ``purpose`` is the name of a `SessionKind`.
        """
        before = self.running.pop(session, None)
        if before is not None:
            self._forget(before)
        address = Address(self._federation, session, attempt, self._link.party)

        progress = None
        if before is not None:
            progress = before.seen.progress
            progress.restart_pace()
        seen = Status(session, address.party, progress, lambda: on_change(running), self._releases)
        timeline = timeline or self._observation.timeline()
        watching = self._observation.observers(address, purpose, model, timeline)
        kind = SESSION_KINDS[purpose]
        mailbox = Mailbox(address, machine.peers, self._retry, np.random.default_rng())
        runner = SessionRunner(
            Session(machine, mailbox),
            publish=SessionLane(self._link, kind.lane).publish,
            pool=self._pool,
            sealer=self._sealer,
            journal=journal,
            observers=(seen, *watching),
            owner=owner,
            outlives_crash=kind.outlives_crash,
        )
        running = RunningSession(session, purpose, model, runner, seen)
        self.running[session] = running
        self._inbox.add(runner)
        self._on_idle(session, False)
        self._tasks.spawn(self._watch(running, timeline))
        return running

    def drive(self, attempts: AttemptLoop) -> AttemptLoop:
        """Keep opening ``attempts`` until the session ends, or this party stops."""
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
        """End the sessions with ``party``, which can no longer take part."""
        for running in self.running.values():
            runner = running.runner
            if party in runner.session.machine.peers and not runner.session.over:
                runner.cancel(reason)

    async def close(self, reason: str) -> None:
        """Stop the sessions that go on after a restart, and cancel the rest.

        A session that waits for an owner's consent keeps waiting: the answer outlives a restart.
        Messages get a moment to leave, so that peers of a cancelled session hear why.
        """
        ends: list[Awaitable[Any]] = []
        for running in self.running.values():
            runner = running.runner
            if runner.outlives_crash or runner.session.machine.awaits_consent:
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
            if runner.outlives_crash:
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
        await runner.closed
        if runner.outcome.done():
            runner.release()
            self._sweep_soon()
        await self._observation.keep_timeline(running.id, timeline)
        await asyncio.sleep(_LINGER)
        if self.running.get(running.id) is running:
            del self.running[running.id]
        self._forget(running)

    def _forget(self, running: RunningSession) -> None:
        self._inbox.remove(running.runner)
        running.runner.stop()
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._free)

    def _free(self) -> None:
        """Free the remains of forgotten sessions: machine, tables and runner refer to one another.

        Left alone, the garbage collector runs after a hundred trainings, because it counts objects.
        A session has few objects, but some are arrays of all rows.
        """
        self._sweep = None
        gc.collect()


_BETWEEN = Backoff(first=0.05, limit=5.0)

OnChange = Callable[["RunningSession"], None]
OpenAttempt = Callable[[int, OnChange], Awaitable["RunningSession"]]


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Return when one of ``futures`` is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def attempt_after_restart(last: int, elapsed: float) -> int:
    """The number of the first attempt after a restart; ``last`` was the last one on disk.

    The disk may be an old copy, and later numbers may have been used since. Attempts of one run
    are at least `_BETWEEN` apart, so none can have used a number beyond that of the time that has
    ``elapsed`` (seconds since the session began).
    """
    return max(last, math.ceil(elapsed / (_BETWEEN.first / 2))) + 1


class AttemptLoop:
    """Opens one attempt after the other until the session has ended and every party knows it.

    ``result`` resolves to the session's result or error: at once, or with ``everywhere`` when
    every party has recorded its part of the result. ``open_attempt`` makes an attempt by its
    number. A new attempt follows when a party no longer knows the last one.
    """

    def __init__(
        self, open_attempt: OpenAttempt, first: int = 1, *, everywhere: bool = False
    ) -> None:
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Mark the exception as retrieved: it is already logged and stored.
        self.result.add_done_callback(lambda result: result.cancelled() or result.exception())
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves when every party knows the end, and no attempt will follow."""
        self._open = open_attempt
        self._everywhere = everywhere
        self._attempt = first
        self._current: RunningSession | None = None
        self._traffic: list[Traffic] = []
        self._watchers: set[asyncio.Event] = set()

    async def run(self) -> None:
        """Open attempts until the session has ended; an attempt that cannot be opened ends it."""
        try:
            await self._run()
        except Exception as error:  # a bug must not leave the owner waiting
            log.exception("a session broke off")
            if not self.result.done():
                self.result.set_exception(FedmqError(f"internal error: {type(error).__name__}"))
        finally:
            self.ended.set_result(None)

    async def _run(self) -> None:
        delays = _BETWEEN.delays(Random())
        while True:
            try:
                running = await self._open(self._attempt, self._changed)
            except FedmqError as error:
                if not self.result.done():
                    self.result.set_exception(error)
                return
            self._current, runner = running, running.runner
            self._traffic.append(running.traffic)
            runner.start()
            await first_of(runner.outcome, runner.interrupted)
            await self._take(runner, everywhere=False)
            await first_of(runner.closed, runner.interrupted)
            if not runner.interrupted.done():
                await self._take(runner, everywhere=True)
                return
            if running.report is not None:
                delays = _BETWEEN.delays(Random())
            await asyncio.sleep(next(delays))
            if runner.outcome.done() and runner.outcome.exception() is not None:
                await self._take(runner, everywhere=False)  # cancelled meanwhile
                return
            self._attempt += 1

    async def followed(self, on_progress: OnProgress) -> Any:
        """The result; ``on_progress`` gets each change on the way."""
        change = asyncio.Event()
        change.set()  # begin with the changes so far
        self._watchers.add(change)
        try:
            while not self.result.done():
                wake = asyncio.ensure_future(change.wait())
                try:
                    await first_of(wake, self.result)
                finally:
                    wake.cancel()
                change.clear()
                if self._current is not None and not self.result.done():
                    await on_progress({"event": "progress", **self._current.status()})
        finally:
            self._watchers.discard(change)
        return await asyncio.shield(self.result)

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by this party in all attempts since its start."""
        return sum(traffic.total.bytes for traffic in self._traffic)

    def _changed(self, _: RunningSession) -> None:
        for watcher in self._watchers:
            watcher.set()

    async def _take(self, runner: SessionRunner, *, everywhere: bool) -> None:
        outcome = runner.outcome
        if not outcome.done() or outcome.cancelled() or self.result.done():
            return
        await runner.written()  # its owner may repeat the request at once
        error = outcome.exception()
        if error is not None:
            self.result.set_exception(error)
        elif everywhere and runner.session.mailbox.lost:
            lost = ", ".join(sorted(runner.session.mailbox.lost))
            self.result.set_exception(
                PeerSilent(f"{lost} did not confirm the end; it learns it when it returns")
            )
        elif everywhere or not self._everywhere:
            self.result.set_result(outcome.result())
