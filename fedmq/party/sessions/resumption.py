"""What must be there for a session to go on after a crash, and how it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from fedmq.errors import Aborted, DataError, FedmqError, Refused, SourceAway
from fedmq.party.sessions.open_sessions import Sessions
from fedmq.party.sessions.restart_notice import RestartNotice
from fedmq.party.store.sessions import SessionStore, StoredSession
from fedmq.party.store.transcripts import forget_older
from fedmq.protocol.machine import UNLOADED
from fedmq.protocol.records import ActiveTree, Checkpoint
from fedmq.protocol.training.tables import ActiveTable
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff

__all__ = [
    "NOTHING_SAVED",
    "Resumable",
    "Resume",
    "Resumption",
    "SavedProgress",
    "check_same_table",
    "saved_progress",
]

log = logging.getLogger(__name__)

_UNTIL_IN_REACH = Backoff(first=1.0, limit=60.0)

Resume = Callable[[], object]
"""Opens the next attempt at a session, with what was read again for it."""


class Resumable(Protocol):
    """A kind of session that goes on after a crash of the party that drives it."""

    def drives(self, session: str) -> bool:
        """Whether attempts at ``session`` are being opened already."""

    async def reload(self, session: StoredSession) -> Resume:
        """Read again what ``session`` needs.

        Raises:
            SourceAway: the data cannot be reached now.
            Refused: the data are not those with which the session began.
            DataError: the data cannot be read.
        """


class Resumption:
    """Goes on with the sessions of ``store`` that have not ended.

    The active party opens a new attempt at each, by way of ``trainings``. Another party has none to
    open: it reminds the active party through ``notice``. ``state`` is the party's state folder. The
    owner is asked no more about what ends, by ``withdraw``.
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
        """Go on with what was under way when this party stopped."""
        self._tasks.spawn(self._notice.run())
        self._tasks.spawn(self._resume_all())

    def cancel(self) -> None:
        """Resume nothing any more, and remind nobody."""
        self._tasks.cancel()

    def resume(self, session: StoredSession) -> None:
        """Open a new attempt at a session that this party drives, once its data are there."""
        self._tasks.spawn(self._resume(session))

    async def idle(self) -> list[StoredSession]:
        """Sessions that have not ended, and have no attempt here."""
        stored = await self._store.running()
        return [session for session in stored if session.id not in self._sessions.running]

    async def end_idle(self, session: str, reason: str) -> bool:
        """End a session that has no attempt here; whether it had none, and still has none."""
        stored = await self._store.find(session)
        if stored is None or stored.state != "running" or session in self._sessions.running:
            return False
        await self.end(session, reason)
        return session not in self._sessions.running

    async def end(self, session: str, reason: str, own_reason: str = "") -> None:
        """Write down that a session has failed, and is not resumed; others may read ``reason``."""
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
        """Errors as for ``Resumable.reload``, but for SourceAway, which is waited out."""
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
        """Wait for the data to be in reach; None if the session was cancelled meanwhile."""
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
    """How far a session is on disk: its finished ``trees``, and whether its owner paused it."""

    trees: Sequence[Checkpoint] = ()
    paused: bool = False


NOTHING_SAVED = SavedProgress()


async def saved_progress(store: SessionStore, sessions: Sessions, session: str) -> SavedProgress:
    """What the next attempt at a session begins with.

    Its caller opens the attempt before it awaits anything else: the owner may cancel or pause the
    session at any time, and the next attempt has to know.

    Raises:
        Aborted: the session was ended since its last attempt.
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
    """Raise Refused where ``trees`` were grown on another table than ``table``."""
    for tree in trees:
        assert isinstance(tree, ActiveTree)
        grown_on = tree.records.feature_names
        # Margins of several classes are as many times the rows.
        margins = 0 if tree.margin is None else tree.margin.size
        same = grown_on == table.features and margins % max(1, len(table.label)) == 0
        if not same or tree.table not in ("", table.digest):
            what = "values" if same else "rows or columns"
            raise Refused(
                f"the table of {party} has other {what} than when session {session} "
                "began, so the session has ended; train anew with: fedmq train"
            )
