"""The party's SQLite file: one thread, a schema version, and writes that wait for a full disk."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from fedmq.errors import ConfigError
from fedmq.transport.backoff import Backoff

__all__ = ["MIGRATIONS", "Database", "DiskTroubles", "until_taken"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MIGRATIONS: Sequence[str] = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        model TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        paused INTEGER NOT NULL,
        job TEXT NOT NULL,
        changed REAL NOT NULL
    ) STRICT;
    CREATE TABLE steps (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        tree INTEGER NOT NULL,
        data TEXT NOT NULL,
        margin BLOB,
        PRIMARY KEY (session, tree)
    ) STRICT;
    """,
    # A row that shrinks leaves a hole in its page; a row that is deleted leaves a page to others.
    """
    CREATE TABLE margins (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        tree INTEGER NOT NULL,
        margin BLOB NOT NULL,
        PRIMARY KEY (session, tree)
    ) STRICT;
    INSERT INTO margins SELECT session, tree, margin FROM steps WHERE margin IS NOT NULL;
    ALTER TABLE steps DROP COLUMN margin;
    """,
    """
    ALTER TABLE sessions ADD COLUMN begun REAL NOT NULL DEFAULT 0;
    UPDATE sessions SET begun = changed;
    """,
    # Answered sums count forever, but sessions are forgotten.
    """
    CREATE TABLE answered_rows (
        session TEXT PRIMARY KEY,
        row_count INTEGER NOT NULL,
        sketch BLOB NOT NULL
    ) STRICT;
    CREATE TABLE answered_trees (
        session TEXT NOT NULL REFERENCES answered_rows (session) ON DELETE CASCADE,
        tree INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        sums INTEGER NOT NULL,
        PRIMARY KEY (session, tree, attempt)
    ) STRICT;
    """,
    """
    ALTER TABLE answered_rows ADD COLUMN reserved REAL NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE sessions ADD COLUMN terms TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE sessions ADD COLUMN own_reason TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE consent_requests (
        id TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        kind TEXT NOT NULL,
        peer TEXT NOT NULL,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        terms TEXT NOT NULL,
        asked REAL NOT NULL,
        until REAL NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        decided_by TEXT NOT NULL,
        decided REAL NOT NULL,
        used INTEGER NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE sessions ADD COLUMN idle REAL NOT NULL DEFAULT 0;
    """,
    # People whom answers were about, as sketches under a secret of this file.
    """
    CREATE TABLE people_secret (secret BLOB NOT NULL) STRICT;
    INSERT INTO people_secret VALUES (randomblob(32));
    CREATE TABLE answered_people (
        session TEXT NOT NULL,
        part TEXT NOT NULL,
        people INTEGER NOT NULL,
        combines INTEGER NOT NULL,
        sketch BLOB NOT NULL
    ) STRICT;
    CREATE INDEX answered_people_by_number ON answered_people (people);
    """,
)
"""Scripts from one schema version to the next; ``user_version`` counts those a file has run."""

_BUSY_SECONDS = 10.0
_LOG_PAGES = 256
"""SQLite moves a longer write-ahead log (in 4 KiB pages) into the file. That waits for the disk
twice more, so it does not happen at every tree."""


class _Full(Exception):
    """The disk is full at the moment."""


class Database:
    """One SQLite file in WAL mode. One thread does all work, in order, in one transaction each."""

    def __init__(self, path: Path, backoff: Backoff | None = None) -> None:
        self.troubles = DiskTroubles()
        self._path = path
        self._backoff = backoff or Backoff(limit=5.0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedmq-store")
        self._connection: sqlite3.Connection | None = None

    @property
    def trouble(self) -> str:
        """Why writing fails at the moment; empty when all is well."""
        return str(self.troubles)

    async def open(self) -> None:
        """Open or make the file, and bring its schema up to date.

        Waits for a full disk.

        Raises:
            ConfigError: the file is damaged, cannot be written, or comes from a newer fedmq.
        """
        try:
            await self._until_taken(self._migrated, _Full)
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{self._path}: the store cannot be used: {error}") from None

    async def close(self) -> None:
        """Wait for the running work, and close the file."""
        closing = self._in_thread(self._disconnect)
        # From here on the thread takes no work, which would open the file again.
        self._thread.shutdown(wait=False)
        await closing

    async def read(self, work: Work[T]) -> T:
        """The result of ``work``; retried like ``write``, because reads may touch the disk too."""
        return await self._until_taken(lambda: work(self._connected()))

    async def write(self, work: Work[T]) -> T:
        """Do ``work`` and put it on disk; retry while the disk refuses.

        A session cannot go on without its store, and a full disk is no reason to lose it.
        """
        return await self._until_taken(lambda: self._committed(work))

    async def _until_taken(
        self, work: Callable[[], T], refusal: type[Exception] = sqlite3.OperationalError
    ) -> T:
        return await until_taken(
            lambda: self._in_thread(work),
            refusal,
            named=f"{self._path} cannot be used: ",
            backoff=self._backoff,
            on_trouble=self.troubles.another(),
        )

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _committed(self, work: Work[T]) -> T:
        # The file stays open after an error: a full disk has no room to open it again either.
        with self._connected() as connection:
            return work(connection)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # Saved data must survive a power loss, not only a crash.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
                # A long write, such as a million margins, must not leave a long log behind.
                connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * 4096}")
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _migrated(self) -> None:
        try:
            self._migrate()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise _Full(str(error)) from None
            raise

    def _migrate(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = self._connected()
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            self._disconnect()
            raise ConfigError(
                f"{self._path}: a newer fedmq has made it (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); use that one"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")


log = logging.getLogger(__name__)

_BACKOFF = Backoff(limit=5.0)


class DiskTroubles:
    """Everything that waits for the disk at the moment, each with the last refusal."""

    def __init__(self) -> None:
        self._waiting: dict[object, str] = {}

    def __str__(self) -> str:
        """The refusal of the longest wait; empty while nothing waits."""
        return next(iter(self._waiting.values()), "")

    def another(self) -> Callable[[str], None]:
        """The ``on_trouble`` of one more call of `until_taken`."""
        key = object()

        def on_trouble(trouble: str) -> None:
            if trouble:
                self._waiting[key] = trouble
            else:
                self._waiting.pop(key, None)

        return on_trouble


async def until_taken(
    work: Callable[[], Awaitable[T]],
    refusal: type[Exception] = ConfigError,
    *,
    named: str = "",
    backoff: Backoff = _BACKOFF,
    on_trouble: Callable[[str], None] = lambda _: None,
) -> T:
    """The result of ``work``, which is retried after every ``refusal`` of the disk.

    The first refusal and the success after it are logged, with ``named`` in front. ``on_trouble``
    gets the text of every refusal, and an empty text at the end: also on cancellation, as when an
    attempt gives way to the next one.
    """
    trouble = ""
    try:
        for delay in backoff.delays(Random()):
            try:
                result = await work()
            except refusal as error:
                if not trouble:
                    log.warning("%s%s; trying again", named, error)
                trouble = f"{named}{error}"
                on_trouble(trouble)
                await asyncio.sleep(delay)
            else:
                if trouble:
                    log.warning("the disk takes again what it refused: %s", trouble)
                return result
    finally:
        if trouble:
            on_trouble("")
    raise AssertionError("the delays have no end")
