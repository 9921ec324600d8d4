"""How do sessions go on after a crash, and what becomes of messages that no session expects?

`UnexpectedMessages` decides about these messages. `Resumption` opens the next attempt if this
party drives the session; otherwise `RestartNotice` reminds the active party. `Expiry` ends idle
sessions. `UnsequencedSender` sends messages that belong to no session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from fedmq.errors import Aborted, DataError, FedmqError, LinkError, Refused, Replayed, SourceAway
from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.identity.sealer import RELEASE, Sealer
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.sessions.sessions import RunningSession, Sessions
from fedmq.party.store.database import DiskTroubles, until_taken
from fedmq.party.store.journal import OpenedSessions, SessionStore, StoredSession
from fedmq.party.store.transcripts import forget_older
from fedmq.protocol.machine import UNLOADED
from fedmq.protocol.session import Decision, StoredState, decide
from fedmq.protocol.session_records import ActiveTree, Checkpoint
from fedmq.protocol.training.terms import ActiveTable
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.link import Link

__all__ = [
    "NOTHING_SAVED",
    "Expiry",
    "Opening",
    "RestartNotice",
    "Resumable",
    "Resume",
    "Resumption",
    "SavedProgress",
    "UnexpectedMessages",
    "UnsequencedSender",
    "check_same_table",
    "saved_progress",
]

Opening = Callable[[Envelope], Awaitable[RunningSession]]
"""Joins the session, or the new attempt at one, that an envelope opens."""


class UnexpectedMessages:
    """Decides about each message whose attempt does not run at ``party``, and acts on it.

    ``openings`` join the sessions of the ``active`` party, by the body that opens them.
    """

    def __init__(
        self,
        *,
        party: str,
        active: str,
        openings: Mapping[type[Body], Opening],
        sessions: Sessions,
        store: SessionStore,
        opened_sessions: OpenedSessions,
        resumption: Resumption,
        consent: PolicyConsent,
        sender: UnsequencedSender,
    ) -> None:
        self._disk_troubles = DiskTroubles()
        self._party = party
        self._active = active
        self._openings = openings
        self._sessions = sessions
        self._store = store
        self._opened_sessions = opened_sessions
        self._resumption = resumption
        self._consent = consent
        self._sender = sender

    @property
    def disk_trouble(self) -> str:
        """Why no session can be joined now; empty while the disk accepts records."""
        return str(self._disk_troubles)

    async def take(self, envelope: Envelope) -> SessionRunner | None:
        """The runner that takes ``envelope``, if the envelope opens a session or an attempt here.

        Raises:
            Replayed: the envelope opens an attempt that was opened before.
        """
        header, body = envelope.header, envelope.body
        opening = self._openings.get(type(body))
        stored = await self._store.find(header.session)
        match decide(
            header,
            body,
            None if stored is None else StoredState(stored.attempt, stored.state == "failed"),
            opens=opening is not None and header.sender == self._active != self._party,
            drives=self._party == self._active,
        ):
            case Decision.JOIN:
                assert opening is not None
                return await self._join(opening, envelope)
            case Decision.GO_ON:
                assert stored is not None
                self._resumption.resume(stored)
            case Decision.END:
                assert isinstance(body, Abort)
                await self._end(header, body, stored)
            case Decision.REFUSE:
                await self._refuse(header, stored)
            case Decision.REPLY_UNKNOWN:
                await self._sender.reply(header, SessionUnknown())
            case Decision.DROP:
                pass
        return None

    async def refuse_unreadable(self, header: Header) -> None:
        """End a session whose opening this party cannot read; the reason names both releases.

        Only openings of the active party are answered, so never an answer, and no session that is
        known here: it goes on once both have the same release. The seal of ``header`` was checked.
        """
        if header.sequence != 1 or header.sender != self._active or self._party == self._active:
            return
        if await self._store.find(header.session) is not None:
            return
        other = self._sender.releases.get(header.sender)
        reason = (
            f"{self._party} cannot read the message {header.kind!r}; {self._party} runs fedmq "
            f"{RELEASE}, {header.sender} {f'fedmq {other}' if other else 'another one'}: bring "
            "both to the same release"
        )
        log.warning("refused session %s: %s", header.session, reason)
        await self._sender.reply(header, Abort(reason=reason))

    async def _join(self, opening: Opening, envelope: Envelope) -> SessionRunner:
        header = envelope.header
        if not await until_taken(
            lambda: self._opened_sessions.record_opening(header),
            on_trouble=self._disk_troubles.another(),
        ):
            await self._sender.reply(header, SessionUnknown())
            raise Replayed(f"{header.sender} opened session {header.session} here before")
        # Joining asks for consent first, and the consent has to be recorded.
        await self._consent.audit.until_recordable(self._disk_troubles.another())
        return (await opening(envelope)).runner

    async def _end(self, header: Header, body: Abort, stored: StoredSession | None) -> None:
        reason = f"{header.sender} gave up: {body.reason}"
        await self._resumption.end(header.session, reason)
        earlier = self._sessions.running.get(header.session)
        if earlier is not None:
            earlier.runner.cancel(reason)
            earlier.runner.stop_resending(header.sender)
        elif stored is not None:
            about = {"session": stored.id}
            log.warning("session %s of %s ended: %s", stored.id, stored.model, reason, extra=about)
        if header.sequence:  # it is resent until somebody answers
            await self._sender.reply(header, SessionUnknown())

    async def _refuse(self, header: Header, stored: StoredSession | None) -> None:
        earlier = self._sessions.running.get(header.session)
        if earlier is not None:
            earlier.runner.stop_resending(header.sender)
        party = self._party
        unknown = (
            f"{party} has no such session: if it began there, the state of {party} is old, as if "
            "put back from a backup"
        )
        reason = stored.reason if stored else unknown
        await self._sender.reply(header, Abort(reason=reason))


log = logging.getLogger(__name__)

_UNTIL_IN_REACH = Backoff(first=1.0, limit=60.0)

Resume = Callable[[], object]
"""Opens the next attempt at a session, with its reloaded data."""


class Resumable(Protocol):
    """A kind of session that goes on after its driving party crashes."""

    def drives(self, session: str) -> bool:
        """Whether attempts at ``session`` are already being opened."""

    async def reload(self, session: StoredSession) -> Resume:
        """Read the data of ``session`` again.

        Raises:
            SourceAway: the data cannot be reached now.
            Refused: the data differ from those with which the session began.
            DataError: the data cannot be read.
        """


class Resumption:
    """Goes on with the sessions of ``store`` that have not ended.

    The active party opens a new attempt at each, through ``trainings``. A passive party reminds
    the active party through ``notice``. ``state`` is the party's state folder. ``withdraw`` takes
    back the question to the owner when a session ends.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        sessions: Sessions,
        notice: RestartNotice,
        trainings: Resumable | None,
        state: Path,
        withdraw: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._notice = notice
        self._trainings = trainings
        self._state = state
        self._withdraw = withdraw
        self._reloading: set[str] = set()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Resume the sessions that were under way when this party stopped."""
        self._tasks.spawn(self._notice.run())
        self._tasks.spawn(self._resume_all())

    def cancel(self) -> None:
        """Stop resuming and reminding."""
        self._tasks.cancel()

    def resume(self, session: StoredSession) -> None:
        """Open a new attempt at a session that this party drives, once its data are there."""
        self._tasks.spawn(self._resume(session))

    async def idle(self) -> list[StoredSession]:
        """Sessions that have not ended and have no attempt here."""
        stored = await self._store.running()
        return [session for session in stored if session.id not in self._sessions.running]

    async def end_idle(self, session: str, reason: str) -> bool:
        """End a session without an attempt here; True if it had none and still has none."""
        stored = await self._store.find(session)
        if stored is None or stored.state != "running" or session in self._sessions.running:
            return False
        await self.end(session, reason)
        return session not in self._sessions.running

    async def end(self, session: str, reason: str, own_reason: str = "") -> None:
        """Record that a session has failed for good; other parties may read ``reason``."""
        await self._store.end(session, "failed", reason, own_reason)
        await self._withdraw(session)
        self._notice.discard(session)
        await forget_older(self._state, {session.id for session in await self._store.running()})

    async def _resume_all(self) -> None:
        for session in await self._store.running():
            if self._trainings is not None:
                self.resume(session)
            elif session.id not in self._sessions.running:
                self._notice.add(session.id)

    async def _resume(self, session: StoredSession) -> None:
        assert self._trainings is not None
        if self._trainings.drives(session.id) or session.id in self._reloading:
            return
        self._reloading.add(session.id)
        try:
            await self._resume_or_end(self._trainings, session)
        except FedmqError as error:
            log.warning("session %s cannot go on: %s", session.id, error)
        finally:
            self._reloading.discard(session.id)

    async def _resume_or_end(self, trainings: Resumable, session: StoredSession) -> None:
        """Errors as for ``Resumable.reload``, except SourceAway: wait until it is over."""
        try:
            resume = await self._reloaded(trainings, session)
            if resume is not None and await self._is_wanted(session.id):
                resume()
        except Refused as error:
            await self.end(session.id, str(error))
            raise
        except DataError as error:
            await self.end(session.id, UNLOADED, str(error))
            raise

    async def _reloaded(self, trainings: Resumable, session: StoredSession) -> Resume | None:
        """Wait until the data can be reached; None if the session was cancelled meanwhile."""
        for delay in _UNTIL_IN_REACH.delays(Random()):
            try:
                return await trainings.reload(session)
            except SourceAway as error:
                log.warning("session %s waits for this party's data: %s", session.id, error)
            await asyncio.sleep(delay)
            if not await self._is_wanted(session.id):
                break
        return None

    async def _is_wanted(self, session: str) -> bool:
        stored = await self._store.find(session)
        return stored is not None and stored.state != "failed"


@dataclass(frozen=True, slots=True)
class SavedProgress:
    """A session's progress on disk: its finished ``trees``, and whether its owner paused it."""

    trees: Sequence[Checkpoint] = ()
    paused: bool = False


NOTHING_SAVED = SavedProgress()


async def saved_progress(store: SessionStore, sessions: Sessions, session: str) -> SavedProgress:
    """The checkpoint from which the next attempt at a session starts.

    The caller opens the attempt before it awaits anything else: the owner may cancel or pause
    the session at any time, and the next attempt has to know.

    Raises:
        Aborted: the session has ended since its last attempt.
    """
    trees = await store.checkpoints(session)
    stored = await store.find(session)  # last, because a large session's trees take time to read
    if stored is not None and stored.state == "failed":
        raise Aborted(stored.reason)
    last = sessions.running.get(session)
    if last is not None:
        outcome = last.runner.outcome
        if outcome.done() and not outcome.cancelled() and outcome.exception() is not None:
            raise Aborted(str(outcome.exception()))
    return SavedProgress(trees, stored is not None and stored.paused)


def check_same_table(
    party: str, session: str, table: ActiveTable, trees: Sequence[Checkpoint]
) -> None:
    """Raise Refused if ``trees`` were grown on another table than ``table``."""
    for tree in trees:
        assert isinstance(tree, ActiveTree)
        grown_on = tree.records.feature_names
        # Several classes have one margin each per row.
        margins = 0 if tree.margin is None else tree.margin.size
        same = grown_on == table.features and margins % max(1, len(table.label)) == 0
        if not same or tree.table not in ("", table.digest):
            what = "values" if same else "rows or columns"
            raise Refused(
                f"the table of {party} has other {what} than when session {session} "
                "began, so the session has ended; train anew with: fedmq train"
            )


log = logging.getLogger(__name__)

_WAITS = Backoff(first=1.0, limit=60.0)


class RestartNotice:
    """Tells the ``active`` party which sessions are idle here, until each has a new attempt.

    The notice is repeated: it may get lost, or the active party may be away.
    """

    def __init__(self, store: SessionStore, sender: UnsequencedSender, active: str) -> None:
        self._store = store
        self._sender = sender
        self._active = active
        self._idle: set[str] = set()
        self._news = asyncio.Event()

    def add(self, session: str) -> None:
        """Note that the session waits for a new attempt."""
        self._idle.add(session)
        self._news.set()

    def discard(self, session: str) -> None:
        """Note that the session has a new attempt, or has ended."""
        self._idle.discard(session)

    def on_idle(self, session: str, idle: bool) -> None:
        """Note that the session waits for a new attempt, or has one."""
        if idle:
            self.add(session)
        else:
            self.discard(session)

    async def run(self) -> None:
        """Send notices forever."""
        while True:
            await self._news.wait()
            self._news.clear()
            for delay in _WAITS.delays(Random()):
                for session in sorted(self._idle):
                    try:
                        await self._send(session)
                    except LinkError as error:
                        log.info("session %s: no reminder was sent: %s", session, error)
                if not self._idle:
                    break
                await asyncio.sleep(delay)

    async def _send(self, session: str) -> None:
        stored = await self._store.find(session)
        if stored is None or stored.state != "running":
            self.discard(session)
            return
        await self._sender.send(self._active, session, stored.attempt, SessionUnknown())


log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 2.0


class UnsequencedSender:
    """Sends bodies outside any running session, so no mailbox resends them."""

    def __init__(self, federation: str, link: Link, sealer: Sealer) -> None:
        self._federation = federation
        self._link = link
        self._sealer = sealer

    @property
    def releases(self) -> Mapping[str, str]:
        """By party that keys are agreed on with, its release of fedmq; empty if it says none."""
        return self._sealer.releases

    async def send(self, recipient: str, session: str, attempt: int, body: Body) -> None:
        """Send ``body`` about an attempt at a session; LinkError if the link refuses it."""
        party = self._link.party
        header = Header.unsequenced(
            f"{session}/{attempt}/{party}/{recipient}/{body.kind}",
            federation=self._federation,
            session=session,
            attempt=attempt,
            sender=party,
            recipient=recipient,
            kind=body.kind,
        )
        await self._sealer.ready(header, _HANDSHAKE_SECONDS)
        data = self._sealer.seal(Envelope(header, body))
        await self._link.publish(recipient, "training", data, message_id=header.id)

    async def reply(self, header: Header, body: Body) -> None:
        """Answer the sender of ``header``; a sender that misses the answer resends its message."""
        try:
            await self.send(header.sender, header.session, header.attempt, body)
        except LinkError as error:
            log.warning("%s: could not answer %s: %s", self._link.party, header.sender, error)


log = logging.getLogger(__name__)

_STEP_SECONDS = 600.0
_DAY_SECONDS = 24 * 3600.0


class Expiry:
    """Ends the trainings of ``store`` without attempt or tree for ``most_days()``.

    This frees the training's reserved budget, and its transcript expires like those of ended
    sessions. Only time counts that this party has lived through, by ``clock`` (seconds), which
    never jumps: neither a step of the machine's time nor this party's own absence ends a training.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        sessions: Sessions,
        resumption: Resumption,
        most_days: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._resumption = resumption
        self._most_days = most_days
        self._clock = clock
        self._counted = clock()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Look every ten minutes, and store the time in steps of as many."""
        self._tasks.spawn(self._run())

    def cancel(self) -> None:
        """Look no more."""
        self._tasks.cancel()

    async def give_up(self) -> None:
        """End the sessions that were idle for too long, with or without a waiting attempt."""
        now = self._clock()
        lived, self._counted = now - self._counted, now
        await self._store.live_through(lived)
        days = self._most_days()
        reason = f"it made no progress for {days:g} days (most_idle_days)"
        for session in await self._store.unchanged(days * _DAY_SECONDS):
            running = self._sessions.running.get(session.id)
            if running is not None:
                running.runner.cancel(reason)
            elif await self._resumption.end_idle(session.id, reason):
                log.warning("training %s of %s ended: %s", session.id, session.model, reason)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_STEP_SECONDS)
            try:
                await self.give_up()
            except FedmqError as error:
                log.warning("idle trainings: %s", error)
