"""What must no session forget? A journal of each attempt, in tables of the party's SQLite file.

`StoreJournal` writes the records of one attempt. Below it are the tables, each with its readers.
`SessionStore` keeps the sessions that survive a crash, with a checkpoint after each tree: JSON, and
the margins as raw bytes. `AnsweredSumsStore` counts the answered sums about the same rows, over all
trainings. `ConsentRequestStore` keeps the requests to this party's owner, and the answers.
`OpenedSessions` records the sessions opened here, so that a replayed message opens none again.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from fedmq.boosting.model.share import WITHHELD_NOTHING, Withheld
from fedmq.boosting.model.tree import LookupTable, Tree
from fedmq.errors import Aborted, ConfigError, Refused
from fedmq.messages.envelope import Header
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.policy import AskedSession
from fedmq.party.store.answered_people import AnsweredPeopleStore
from fedmq.party.store.database import Database, until_taken
from fedmq.party.store.transcripts import TranscriptWriter, forget_older
from fedmq.protocol.session_records import (
    ActiveTree,
    AnsweredTraining,
    Checkpoint,
    Commitment,
    EarlierSums,
    NodesWon,
    PassiveTree,
    PeopleAnswered,
    Record,
    RowSet,
    SignedStatement,
    SumBudget,
    SumsAnswered,
    TranscriptMessage,
)

__all__ = [
    "NULL_JOURNAL",
    "AnsweredSumsStore",
    "ConsentRequest",
    "ConsentRequestStore",
    "Journal",
    "Lifecycle",
    "NullJournal",
    "OpenedSessions",
    "PeopleJournal",
    "RequestState",
    "Row",
    "SessionStore",
    "StoreJournal",
    "StoredSession",
    "checkpoint_of",
    "row_of",
]


class Journal(Protocol):
    """All that one attempt at a session must not forget; each call returns once it is on disk."""

    async def begin(self) -> None:
        """The attempt begins."""

    async def write(self, record: Record) -> None:
        """Put ``record`` on disk before any later message leaves."""

    def note(self, noted: TranscriptMessage | NodesWon) -> None:
        """A message was taken or is sent, or nodes were won; on disk with the next checkpoint."""

    async def finish(self, result: Any) -> None:
        """The session has reached its end."""

    async def fail(self, reason: str, own_reason: str) -> None:
        """Record that the session has ended without a result.

        ``reason`` is for the other parties to read, ``own_reason`` for the owner alone.
        """


class NullJournal:
    """Keeps nothing."""

    async def begin(self) -> None: ...

    async def write(self, record: Record) -> None: ...

    def note(self, noted: TranscriptMessage | NodesWon) -> None: ...

    async def finish(self, result: Any) -> None: ...

    async def fail(self, reason: str, own_reason: str) -> None: ...


NULL_JOURNAL: Journal = NullJournal()
"""Keeps nothing: for sessions whose owner repeats the request after a crash."""


class PeopleJournal(NullJournal):
    """Keeps the people whom ``session`` is about, and nothing else, as `StoreJournal` does."""

    def __init__(self, database: Database, session: str, smallest_difference: int) -> None:
        self._people = AnsweredPeopleStore(database)
        self._session = session
        self._smallest_difference = smallest_difference

    async def write(self, record: Record) -> None:
        if isinstance(record, PeopleAnswered) and self._smallest_difference:
            await self._people.keep(self._session, record, self._smallest_difference)


class StoreJournal:
    """Keeps one attempt in ``store``; ``on_result`` stores the result itself.

    ``on_budget`` records the expected disclosure of a training. Messages, commitments and
    signatures go to ``transcript``, if there is one. People answered about are kept, and compared
    with those of earlier sessions, if ``smallest_difference`` is not 0.
    """

    def __init__(
        self,
        store: SessionStore,
        session: StoredSession,
        on_result: Callable[[Any], None],
        on_budget: Callable[[SumBudget], Awaitable[None]] | None = None,
        transcript: TranscriptWriter | None = None,
        smallest_difference: int = 0,
    ) -> None:
        self._store = store
        self._answered = AnsweredSumsStore(store.database)
        self._session = session
        self._on_result = on_result
        self._on_budget = on_budget
        self._transcript = transcript
        self._people = AnsweredPeopleStore(store.database)
        self._smallest_difference = smallest_difference
        self._limit = math.inf
        """Sums per row, once agreed on."""

    async def begin(self) -> None:
        await self._store.begin(self._session)

    async def write(self, record: Record) -> None:
        session, transcript = self._session, self._transcript
        match record:
            case ActiveTree() | PassiveTree():
                if transcript is not None:
                    await transcript.flush()
                await self._store.save(session.id, record)
            case SumBudget():
                self._limit = record.limit
                await self._answered.reserve(
                    session.id, record.row_set, record.reserved, record.limit
                )
                if self._on_budget is not None:
                    await self._on_budget(record)
            case SumsAnswered(tree, sums, row_set):
                await self._answered.keep(
                    session.id, session.attempt, tree, sums, row_set, self._limit
                )
            case PeopleAnswered() if self._smallest_difference:
                await self._people.keep(session.id, record, self._smallest_difference)
            case Commitment() if transcript is not None:
                await transcript.commit(record)
            case SignedStatement() if transcript is not None:
                await transcript.attest(record)

    def note(self, noted: TranscriptMessage | NodesWon) -> None:
        if self._transcript is not None:
            self._transcript.note(noted)

    async def finish(self, result: Any) -> None:
        if self._transcript is not None:
            await self._transcript.close()
        await until_taken(lambda: asyncio.to_thread(self._on_result, result))
        await self._store.end(self._session.id, "finished")
        await self._forget_transcripts()

    async def fail(self, reason: str, own_reason: str) -> None:
        await self._store.end(self._session.id, "failed", reason, own_reason)
        if self._transcript is not None:
            await self._transcript.close()
        await self._forget_transcripts()

    async def _forget_transcripts(self) -> None:
        if self._transcript is not None:
            running = await self._store.running()
            await forget_older(self._transcript.state, {session.id for session in running})


Lifecycle = Literal["running", "finished", "failed"]

_KEPT_SECONDS = 7 * 24 * 3600.0
"""Another party may still ask how a session that has finished here ended."""
_KEPT_ENDED = 20
_LONGEST = 2000  # characters of a reason
_MARGINS = 2
"""A party may be one tree behind: keep the margins of the last tree and of the one before.

Models that grow in turns each have a last tree: keep theirs, and the one before all these."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One training session. ``job`` is the request to the active party, as JSON.

    ``begun`` is in seconds since the epoch, by this party's clock. ``terms``: the digest of the
    terms that a passive party agreed to at its first attempt. ``own_reason``: why it failed, for
    the owner alone; other parties may read ``reason``.
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
        """Why it failed, with all words that its owner may read."""
        return self.own_reason or self.reason


_SESSION_COLUMNS = "id, model, attempt, state, reason, paused, job, begun, terms, own_reason"


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

    async def is_running(self, session: str) -> bool:
        """Whether the session is known here and has not ended."""
        found = await self.find(session)
        return found is not None and found.state == "running"

    async def running(self) -> list[StoredSession]:
        """The sessions that have not ended, the oldest first."""
        return await self._select("WHERE state = 'running' ORDER BY rowid")

    async def live_through(self, seconds: float) -> None:
        """Count the ``seconds`` for all running sessions, as time without attempt and tree."""
        await self._write("UPDATE sessions SET idle = idle + ? WHERE state = 'running'", (seconds,))

    async def unchanged(self, seconds: float) -> list[StoredSession]:
        """Sessions of ``running`` with ``seconds`` lived through since the last attempt or tree."""
        return await self._select("WHERE state = 'running' AND idle > ? ORDER BY rowid", seconds)

    async def ended(self, most: int) -> list[tuple[StoredSession, float]]:
        """The last ``most`` ended sessions, the oldest first, each with its end (Unix seconds)."""
        query = (
            f"SELECT {_SESSION_COLUMNS}, changed FROM sessions WHERE state != 'running' "
            "ORDER BY changed DESC LIMIT ?"
        )
        rows = await self.database.read(lambda found: found.execute(query, (most,)).fetchall())
        return [(_stored(row[:-1]), float(row[-1])) for row in reversed(rows)]

    async def checkpoints(self, session: str) -> list[Checkpoint]:
        """The saved trees of a session, the first one first."""

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
            "attempt = excluded.attempt, changed = excluded.changed, idle = 0, state = 'running', "
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
                needless = -1 if checkpoint.adds_alone else needless - (checkpoint.folds - 1)
            connection.execute("DELETE FROM steps WHERE session = ? AND tree >= ?", (session, tree))
            connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (session, tree, data))
            connection.execute(
                "DELETE FROM margins WHERE session = ? AND (tree >= ? OR tree <= ?)",
                (session, tree, needless),
            )
            connection.execute(
                "UPDATE sessions SET changed = ?, idle = 0 WHERE id = ?", (self._clock(), session)
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
        """Record how a session ended; other parties may also read ``reason``.

        A failed session does not go on, so its trees are dropped; old sessions are dropped too.
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
        """Forget sessions that ended long ago, and all but the last of the ended ones."""
        await self.database.write(self._prune)

    def _prune(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM sessions WHERE state != 'running' AND (changed < ? OR id NOT IN ("
            "SELECT id FROM sessions WHERE state != 'running' ORDER BY changed DESC LIMIT ?))",
            (self._clock() - _KEPT_SECONDS, _KEPT_ENDED),
        )

    async def _select(self, where: str, *values: Any) -> list[StoredSession]:
        def select(connection: sqlite3.Connection) -> list[Any]:
            query = f"SELECT {_SESSION_COLUMNS} FROM sessions {where}"
            return connection.execute(query, values).fetchall()

        rows = await self.database.read(select)
        return list(map(_stored, rows))

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self.database.write(lambda connection: connection.execute(statement, values) and None)


def _stored(row: tuple[Any, ...]) -> StoredSession:
    """The session in a row of `_SESSION_COLUMNS`."""
    name, model, attempt, state, reason, paused, *more = row
    return StoredSession(name, model, attempt, state, reason, bool(paused), *more)


Row = tuple[int, str, bytes | None]
"""Number of the tree, its data as JSON, and its margins (little-endian float32), if any."""


def row_of(checkpoint: Checkpoint, first: bool = True) -> Row:
    """``checkpoint`` as a row.

    All checkpoints of a session share the names of the columns and the digest of the table. Only
    its ``first`` row holds them: for a thousand columns they are larger than a tree.
    """
    records = json.loads(checkpoint.records.model_dump_json())
    data: dict[str, Any] = {"records": records}
    if not first:
        del records["feature_names"]
    elif checkpoint.table:
        data["table"] = checkpoint.table
    if isinstance(checkpoint, PassiveTree):
        if checkpoint.nodes:
            data["nodes"] = checkpoint.nodes
        if checkpoint.withheld != WITHHELD_NOTHING:
            data["withheld"] = checkpoint.withheld.model_dump()
        return checkpoint.number, json.dumps(data), None
    data["tree"] = json.loads(checkpoint.tree.model_dump_json())
    data["before"] = dict(checkpoint.before)
    if checkpoint.adds_alone:
        data["adds_alone"] = True
    if checkpoint.folds > 1:
        data["turns"] = checkpoint.folds
    margin = None if checkpoint.margin is None else checkpoint.margin.astype("<f4").tobytes()
    return checkpoint.number, json.dumps(data), margin


def checkpoint_of(row: Row, first: Checkpoint | None = None) -> Checkpoint:
    """Restore a checkpoint bit for bit; ``first`` is the session's first, None if ``row`` is it."""
    number, text, margin = row
    data = json.loads(text)
    if first is not None:
        data["records"].setdefault("feature_names", first.records.feature_names)
    records = LookupTable.model_validate(data["records"])
    table = data.get("table", first.table if first is not None else "")
    if "tree" not in data:
        withheld = Withheld.model_validate(data.get("withheld", {}))
        return PassiveTree(number, records, table, tuple(data.get("nodes", ())), withheld)
    return ActiveTree(
        number,
        Tree.model_validate(data["tree"]),
        records,
        data["before"],
        None if margin is None else np.frombuffer(margin, dtype="<f4").astype(np.float32),
        table,
        data.get("adds_alone", False),
        data.get("turns", 1),
    )


_ROUNDING = 1e-6  # of sums per row, which the forecast adds up in another order


class AnsweredSumsStore:
    """Counts by session, tree and attempt, in a :class:`Database`; none is ever forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trainings(self) -> tuple[AnsweredTraining, ...]:
        """Answered and reserved sums by session, the oldest first."""
        return await self._database.read(_trainings)

    async def reserve(self, session: str, row_set: RowSet, reserved: float, limit: float) -> None:
        """Reserve for ``session`` its most sums per row, while it is open.

        Raises:
            Refused: with the answered and reserved sums of others it exceeds ``limit``, or the
            session was about other rows before.
        """

        def write(connection: sqlite3.Connection) -> None:
            _note_rows(connection, session, row_set)
            _check_budget(connection, session, row_set, reserved, limit)
            connection.execute(
                "UPDATE answered_rows SET reserved = ? WHERE session = ?", (reserved, session)
            )

        await self._database.write(write)

    async def keep(
        self,
        session: str,
        attempt: int,
        tree: int,
        sums: int,
        row_set: RowSet,
        limit: float = math.inf,
    ) -> None:
        """Count ``sums`` of a tree before the answer leaves, with those answered before.

        Errors as for ``reserve``; reserved sums may always be answered.
        """

        def write(connection: sqlite3.Connection) -> None:
            _note_rows(connection, session, row_set)
            connection.execute(
                "INSERT OR REPLACE INTO answered_trees VALUES (?, ?, ?, ?)",
                (session, tree, attempt, sums),
            )
            of_session = {
                (tree, attempt): count
                for tree, attempt, count in connection.execute(
                    "SELECT tree, attempt, sums FROM answered_trees WHERE session = ?", (session,)
                )
            }
            query = "SELECT reserved FROM answered_rows WHERE session = ?"
            (reserved,) = connection.execute(query, (session,)).fetchone()
            per_row = AnsweredTraining(session, row_set, of_session).per_row
            if per_row > reserved + _ROUNDING:
                _check_budget(connection, session, row_set, per_row, limit)

        await self._database.write(write)


def _trainings(connection: sqlite3.Connection) -> tuple[AnsweredTraining, ...]:
    sums: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    trees = "SELECT session, tree, attempt, sums FROM answered_trees"
    for session, tree, attempt, count in connection.execute(trees):
        sums[session][tree, attempt] = count
    # A session that has ended answers nothing more, so it reserves nothing.
    sets = (
        "SELECT session, row_count, sketch, reserved * EXISTS (SELECT 1 FROM sessions "
        "WHERE id = session AND state = 'running') FROM answered_rows ORDER BY rowid"
    )
    row_sets: dict[tuple[int, bytes], RowSet] = {}  # few, and each is large

    def row_set(rows: int, sketch: bytes) -> RowSet:
        if (rows, sketch) not in row_sets:
            row_sets[rows, sketch] = RowSet(rows, np.frombuffer(sketch, "<u8").astype(np.uint64))
        return row_sets[rows, sketch]

    return tuple(
        AnsweredTraining(session, row_set(rows, sketch), sums[session], reserved)
        for session, rows, sketch, reserved in connection.execute(sets)
    )


def _note_rows(connection: sqlite3.Connection, session: str, row_set: RowSet) -> None:
    """Record the rows of ``session``; Refused if they differ from those recorded before."""
    rows = row_set.rows, row_set.sketch.astype("<u8").tobytes()
    connection.execute(
        "INSERT OR IGNORE INTO answered_rows (session, row_count, sketch) VALUES (?, ?, ?)",
        (session, *rows),
    )
    query = "SELECT row_count, sketch FROM answered_rows WHERE session = ?"
    if connection.execute(query, (session,)).fetchone() != rows:
        raise Refused(
            f"session {session} is about other rows than when it began; train anew with: "
            "fedmq train"
        )


def _check_budget(
    connection: sqlite3.Connection, session: str, row_set: RowSet, per_row: float, limit: float
) -> None:
    if math.isinf(limit):
        return
    known = EarlierSums.of(session, 0, limit, _trainings(connection))
    others = known.by_others(row_set)
    if others + per_row > limit + _ROUNDING:
        raise Refused(
            f"{limit:,g} sums per row are answered at most (most_equations_per_row): other "
            f"trainings, those that are open included, take {others:,.1f} of these "
            f"{row_set.rows:,} rows, and this one would take {per_row:,.1f}"
        )


RequestState = Literal["waiting", "approved", "refused", "withdrawn"]

_KEPT_REQUESTS = 200
"""Number of decided requests to keep; the audit log keeps all."""


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """An alignment, training or activation that waits, or waited, for the owner's answer.

    ``name``: of the model or alignment. ``digest``: identifies the terms. ``terms``: plain data
    for people. ``asked``, ``until`` and ``decided`` in seconds since the epoch; after ``until`` the
    answer is no. ``used``: a session has begun with the approval.
    """

    id: str
    session: str
    kind: AskedSession
    peer: str
    name: str
    digest: str
    terms: Mapping[str, Any]
    asked: float
    until: float
    state: RequestState = "waiting"
    reason: str = ""
    decided_by: str = ""
    decided: float = 0.0
    used: bool = False


_REQUEST_COLUMNS = tuple(column.name for column in fields(ConsentRequest))


class ConsentRequestStore:
    """Requests in a :class:`Database`; ``clock`` gives seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def find(self, request: str) -> ConsentRequest | None:
        """The request with this id, if it is known."""
        return await self._one("WHERE id = ?", request)

    async def of_session(self, session: str) -> ConsentRequest | None:
        """The last request of ``session``."""
        return await self._one("WHERE session = ? ORDER BY rowid DESC LIMIT 1", session)

    async def unused(self, peer: str, digest: str) -> ConsentRequest | None:
        """The last request of ``peer`` on the terms of ``digest`` that no session has used yet.

        It waits, or was approved.
        """
        return await self._one(
            "WHERE peer = ? AND digest = ? AND state IN ('waiting', 'approved') AND NOT used "
            "ORDER BY rowid DESC LIMIT 1",
            peer,
            digest,
        )

    async def waiting(self) -> list[ConsentRequest]:
        """Requests without an answer, the oldest first."""
        return await self._select("WHERE state = 'waiting' ORDER BY rowid")

    async def all(self) -> list[ConsentRequest]:
        """All kept requests, the oldest first."""
        return await self._select("ORDER BY rowid")

    async def add(self, request: ConsentRequest) -> None:
        """Keep a new request, and forget those decided long ago."""
        values = [*{**asdict(request), "terms": json.dumps(request.terms)}.values()]

        def write(connection: sqlite3.Connection) -> None:
            places = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO consent_requests VALUES ({places})", values)
            connection.execute(
                "DELETE FROM consent_requests WHERE state != 'waiting' AND id NOT IN (SELECT id "
                "FROM consent_requests WHERE state != 'waiting' ORDER BY rowid DESC LIMIT ?)",
                (_KEPT_REQUESTS,),
            )

        await self._database.write(write)

    async def decide(
        self, request: str, state: RequestState, reason: str = "", by: str = ""
    ) -> None:
        """Record the answer to a waiting request."""
        await self._write(
            "UPDATE consent_requests SET state = ?, reason = ?, decided_by = ?, decided = ? "
            "WHERE id = ? AND state = 'waiting'",
            (state, reason, by, self._clock(), request),
        )

    async def belongs_to(self, request: str, session: str) -> None:
        """Assign the request to ``session``; its earlier session is gone."""
        await self._write(
            "UPDATE consent_requests SET session = ? WHERE id = ?", (session, request)
        )

    async def use(self, request: str) -> None:
        """Mark the approval as used by a session: no other session may use it."""
        await self._write("UPDATE consent_requests SET used = 1 WHERE id = ?", (request,))

    async def _one(self, where: str, *values: Any) -> ConsentRequest | None:
        found = await self._select(where, *values)
        return found[0] if found else None

    async def _select(self, where: str, *values: Any) -> list[ConsentRequest]:
        query = f"SELECT {', '.join(_REQUEST_COLUMNS)} FROM consent_requests {where}"
        rows = await self._database.read(lambda found: found.execute(query, values).fetchall())
        return list(map(_request, rows))

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self._database.write(
            lambda connection: connection.execute(statement, values) and None
        )


def _request(row: tuple[Any, ...]) -> ConsentRequest:
    """The request in a row of `_REQUEST_COLUMNS`."""
    found = dict(zip(_REQUEST_COLUMNS, row, strict=True))
    terms, used = json.loads(found["terms"]), bool(found["used"])
    return ConsentRequest(**{**found, "terms": terms, "used": used})


_DAY = 24 * 3600
_KEPT_OPENINGS = 8 * _DAY
"""Seconds after which an opening may be forgotten: no party resends it by then."""

_Key = tuple[str, str, int]


class OpenedSessions:
    """A file with one line per opened attempt at a session; it outlives the daemon.

    It is rewritten once a day without its old lines, and whenever a line may have been cut short.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = state / "openings.jsonl"
        self._clock = clock
        self._seen: dict[_Key, float] | None = None
        self._rewritten_at = float("-inf")
        self._writing = threading.Lock()

    async def record_opening(self, header: Header) -> bool:
        """Record the opening on disk; True if this attempt is opened for the first time.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        key = header.sender, header.session, header.attempt
        return await asyncio.to_thread(self._record, key)

    def _record(self, key: _Key) -> bool:
        # The lock makes exactly one of two openings of the same attempt the first.
        with self._writing:
            return self._append(key)

    def _append(self, key: _Key) -> bool:
        try:
            now = self._clock()
            if self._seen is None:
                self._seen = self._read()
            if now - self._rewritten_at > _DAY:
                self._rewrite(self._seen, now)
            first = key not in self._seen
            # A repetition may have been sealed just now too, and stays valid for as long.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(key, now))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._rewritten_at = float("-inf")
            raise ConfigError(f"{self._path}: cannot be used: {error.strerror}") from None
        self._seen[key] = now
        return first

    def _read(self) -> dict[_Key, float]:
        seen: dict[_Key, float] = {}
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                sender, session, attempt, at = json.loads(line)
            except ValueError:
                continue  # cut short by a crash of the machine, so its session never opened
            seen[sender, session, attempt] = at
        return seen

    def _rewrite(self, seen: dict[_Key, float], now: float) -> None:
        for key in [key for key, at in seen.items() if at < now - _KEPT_OPENINGS]:
            del seen[key]
        write_atomically(self._path, "".join(_line(key, at) for key, at in seen.items()))
        self._rewritten_at = now


def _line(key: _Key, at: float) -> str:
    return json.dumps([*key, at]) + "\n"
