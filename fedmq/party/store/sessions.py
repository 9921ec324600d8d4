"""The sessions that survive a crash: which there are, how far they are, and how they ended."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from fedmq.errors import Aborted
from fedmq.party.store.checkpoints import checkpoint_of, row_of
from fedmq.party.store.database import Database
from fedmq.protocol.records import ActiveTree, Checkpoint

__all__ = ["Lifecycle", "SessionStore", "StoredSession"]

Lifecycle = Literal["running", "finished", "failed"]

_KEPT_SECONDS = 7 * 24 * 3600.0
"""Another party may still ask how a session ended that is finished here."""
_KEPT = 20
_LONGEST = 2000  # characters of a reason
_MARGINS = 2
"""A party may be one tree behind: the margins of the last tree and of the one before are kept.

Where models grow in turns, those of the last tree of each, and of the one before all these."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One training session. ``job`` is what the active party was asked for, as JSON.

    ``begun`` is in seconds since the epoch, by this party's clock. ``terms``: the digest of those
    to which another party agreed at its first attempt. ``own_reason``: why it failed, for the
    owner alone; ``reason`` is for the other parties to read.
    """

    id: str
    model: str
    attempt: int
    state: Lifecycle = "running"
    reason: str = ""
    paused: bool = False
    job: str = ""
    begun: float = field(default_factory=time.time)
    terms: str = ""
    own_reason: str = ""

    @property
    def why(self) -> str:
        """Why it failed, in all words that its owner may read."""
        return self.own_reason or self.reason


_COLUMNS = "id, model, attempt, state, reason, paused, job, begun, terms, own_reason"


class SessionStore:
    """Sessions and their checkpoints, in a :class:`Database`.

    ``clock`` gives seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self._clock = clock

    async def find(self, session: str) -> StoredSession | None:
        """The session, if it is known here."""
        found = await self._select("WHERE id = ?", session)
        return found[0] if found else None

    async def running(self) -> list[StoredSession]:
        """The sessions that have not ended, the oldest first."""
        return await self._select("WHERE state = 'running' ORDER BY rowid")

    async def unchanged(self, seconds: float) -> list[StoredSession]:
        """Those of ``running`` whose last attempt and last tree are so many seconds ago."""
        latest = self._clock() - seconds
        return await self._select("WHERE state = 'running' AND changed < ? ORDER BY rowid", latest)

    async def ended(self, most: int) -> list[tuple[StoredSession, float]]:
        """The last ``most`` that ended, the oldest first, each with when it did (Unix seconds)."""
        query = (
            f"SELECT {_COLUMNS}, changed FROM sessions WHERE state != 'running' "
            "ORDER BY changed DESC LIMIT ?"
        )
        rows = await self.database.read(lambda found: found.execute(query, (most,)).fetchall())
        return [(_stored(row[:-1]), float(row[-1])) for row in reversed(rows)]

    async def checkpoints(self, session: str) -> list[Checkpoint]:
        """The trees of a session that are saved here, the first one first."""

        def select(connection: sqlite3.Connection) -> list[Any]:
            query = (
                "SELECT tree, data, margin FROM steps LEFT JOIN margins USING (session, tree) "
                "WHERE session = ? ORDER BY tree"
            )
            return connection.execute(query, (session,)).fetchall()

        saved: list[Checkpoint] = []
        for row in await self.database.read(select):
            saved.append(checkpoint_of(row, saved[0] if saved else None))
        return saved

    async def begin(self, session: StoredSession) -> None:
        """Record a new attempt at a session, known or not; it replaces all earlier attempts.

        Raises:
            Aborted: the session failed before.
        """
        values = (
            session.id,
            session.model,
            session.attempt,
            session.paused,
            session.job,
            session.begun,
            session.terms,
            self._clock(),
        )
        statement = (
            "INSERT INTO sessions "
            "(id, model, attempt, paused, job, begun, terms, changed, state, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', '') ON CONFLICT (id) DO UPDATE SET "
            "attempt = excluded.attempt, changed = excluded.changed, state = 'running', "
            "terms = CASE terms WHEN '' THEN excluded.terms ELSE terms END, "
            "reason = '', own_reason = '' WHERE state != 'failed'"
        )

        def write(connection: sqlite3.Connection) -> None:
            if connection.execute(statement, values).rowcount == 0:
                query = "SELECT reason FROM sessions WHERE id = ?"
                (reason,) = connection.execute(query, (session.id,)).fetchone()
                raise Aborted(reason)

        await self.database.write(write)

    async def save(self, session: str, checkpoint: Checkpoint) -> None:
        """Save a finished tree, and forget this and all later trees of earlier attempts."""

        def write(connection: sqlite3.Connection) -> None:
            query = "SELECT NOT EXISTS (SELECT 1 FROM steps WHERE session = ? AND tree < ?)"
            (first,) = connection.execute(query, (session, checkpoint.number)).fetchone()
            tree, data, margin = row_of(checkpoint, first=bool(first))
            needless = tree - _MARGINS
            if isinstance(checkpoint, ActiveTree):
                needless = -1 if checkpoint.adds_alone else needless - (checkpoint.turns - 1)
            connection.execute("DELETE FROM steps WHERE session = ? AND tree >= ?", (session, tree))
            connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (session, tree, data))
            connection.execute(
                "DELETE FROM margins WHERE session = ? AND (tree >= ? OR tree <= ?)",
                (session, tree, needless),
            )
            connection.execute(
                "UPDATE sessions SET changed = ? WHERE id = ?", (self._clock(), session)
            )
            if margin is not None:
                connection.execute("INSERT INTO margins VALUES (?, ?, ?)", (session, tree, margin))

        await self.database.write(write)

    async def pause(self, session: str, paused: bool) -> None:
        """Remember whether the owner has paused a session."""
        await self._write("UPDATE sessions SET paused = ? WHERE id = ?", (paused, session))

    async def end(
        self, session: str, state: Lifecycle, reason: str = "", own_reason: str = ""
    ) -> None:
        """Record how a session ended; ``reason`` is also for the other parties to read.

        A failed session does not go on, so its trees are dropped; so are old sessions.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE sessions SET state = ?, reason = ?, own_reason = ?, changed = ? "
                "WHERE id = ?",
                (state, reason[:_LONGEST], own_reason[:_LONGEST], self._clock(), session),
            )
            if state == "failed":
                for table in ("steps", "margins"):
                    connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
            self._prune(connection)

        await self.database.write(write)

    async def prune(self) -> None:
        """Forget sessions that ended long ago, and all but the last ones that ended."""
        await self.database.write(self._prune)

    def _prune(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM sessions WHERE state != 'running' AND (changed < ? OR id NOT IN ("
            "SELECT id FROM sessions WHERE state != 'running' ORDER BY changed DESC LIMIT ?))",
            (self._clock() - _KEPT_SECONDS, _KEPT),
        )

    async def _select(self, where: str, *values: Any) -> list[StoredSession]:
        def select(connection: sqlite3.Connection) -> list[Any]:
            query = f"SELECT {_COLUMNS} FROM sessions {where}"
            return connection.execute(query, values).fetchall()

        rows = await self.database.read(select)
        return list(map(_stored, rows))

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self.database.write(lambda connection: connection.execute(statement, values) and None)


def _stored(row: tuple[Any, ...]) -> StoredSession:
    """The session in a row of `_COLUMNS`."""
    name, model, attempt, state, reason, paused, *more = row
    return StoredSession(name, model, attempt, state, reason, bool(paused), *more)
