"""Databases read through SQLAlchemy, as one query or over pooled connections.

Needs the extra fedmq[sql].
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from fedmq.errors import ConfigError, DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Source

__all__ = ["SqlPool", "SqlQuery", "driver_line", "sql_engine", "sqlite_file"]

log = logging.getLogger(__name__)

_BATCH_ROWS = 10_000
_SECONDS_TO_CONNECT = 10
T = TypeVar("T")


class SqlQuery(Source):
    """The result of ``query`` at the database ``url``, with a server-side cursor."""

    def __init__(self, name: str, url: str, query: str) -> None:
        super().__init__(name)
        self._url = url
        self._query = query
        self._open = ExitStack()
        self._result: Any

    def __enter__(self) -> Self:
        engine = sql_engine(self.name, self._url, _connecting)
        import sqlalchemy  # it is there: the engine came from it

        self._open.callback(engine.dispose)
        try:
            connection = self._open.enter_context(engine.connect())
        except sqlalchemy.exc.SQLAlchemyError as error:
            self._open.close()
            raise SourceAway(f"{self.name}: no connection: {driver_line(error)}") from None
        try:
            streaming = connection.execution_options(stream_results=True, yield_per=_BATCH_ROWS)
            self._result = streaming.execute(sqlalchemy.text(self._query))
            self._open.callback(self._result.close)
            self.columns = tuple(self._result.keys())
        except sqlalchemy.exc.SQLAlchemyError as error:
            self._open.close()
            raise DataError(f"{self.name}: the query failed: {driver_line(error)}") from None
        twice = [column for column in self.columns if self.columns.count(column) > 1]
        if twice:
            self._open.close()
            raise DataError(f"{self.name}: column {twice[0]!r} appears more than once")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        from sqlalchemy.exc import SQLAlchemyError

        places = [self.columns.index(column) for column in columns]
        first = 1
        try:
            for rows in self._result.partitions(_BATCH_ROWS):
                by_column = list(zip(*rows, strict=True))
                cells = {name: by_column[at] for name, at in zip(columns, places, strict=True)}
                yield Batch(range(first, first + len(rows)), cells)
                first += len(rows)
        except SQLAlchemyError as error:
            raise DataError(f"{self.name}: the query broke off: {driver_line(error)}") from None


def _connecting(url: Any) -> dict[str, Any]:
    # Otherwise a host that drops packets would hold the session for minutes.
    is_postgresql = url.get_backend_name() == "postgresql"
    return {"connect_timeout": _SECONDS_TO_CONNECT} if is_postgresql else {}


class SqlPool:
    """At most ``connections`` to ``url`` at once, opened when they are first needed.

    Every call ends within ``seconds``, even if the database is away, slow or silent. Every
    connection is tested before use, so the pool recovers together with the database.
    """

    def __init__(self, name: str, url: str, connections: int, seconds: float) -> None:
        self.trouble = ""
        """Why the database cannot be used now; empty while it can."""
        self._name = name
        self._seconds = seconds
        self._engine = sql_engine(
            name,
            url,
            self._connecting,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=seconds,
            pool_pre_ping=True,
            # Every request is one statement: it needs no transaction.
            isolation_level="AUTOCOMMIT",
        )
        self._file = sqlite_file(self._engine)
        self._seen: tuple[int, int] | None = None
        # As many threads as connections: no thread waits for a connection.
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="fedmq-sql")

    async def run(self, work: Callable[[Any], T]) -> T:
        """The result of ``work`` on a connection, in a thread.

        Raises:
            DataError: the database cannot be reached, refuses, or takes too long.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                done = await loop.run_in_executor(self._threads, self._with_connection, work)
        except TimeoutError:
            raise self._failed(f"no answer within {self._seconds:g} s") from None
        except DataError as error:
            raise self._failed(str(error).removeprefix(f"{self._name}: ")) from None
        if self.trouble:
            log.warning("%s: answers again", self._name)
            self.trouble = ""
        return done

    def close(self) -> None:
        """Abandon running work, and close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()

    def _with_connection(self, work: Callable[[Any], T]) -> T:
        from sqlalchemy.exc import SQLAlchemyError

        self._drop_replaced_file()
        try:
            with self._engine.connect() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            raise DataError(driver_line(error)) from None

    def _drop_replaced_file(self) -> None:
        """Drop the connections when another file replaced the database: they read the old file."""
        if self._file is None:
            return
        try:
            seen = self._file.stat()
        except OSError:
            self._engine.dispose()  # so the next connection reports that the file is gone
            return
        if self._seen not in (None, (seen.st_dev, seen.st_ino)):
            self._engine.dispose()
        self._seen = seen.st_dev, seen.st_ino

    def _failed(self, reason: str) -> DataError:
        if not self.trouble:
            log.error("%s: rows cannot be looked up: %s", self._name, reason)
        self.trouble = reason
        return DataError(f"{self._name}: {reason}")

    def _connecting(self, url: Any) -> dict[str, Any]:
        match url.get_backend_name():
            case "sqlite":
                return {"timeout": self._seconds}
            case "postgresql":
                # The server ends a statement that takes too long, and the kernel ends a connection
                # whose other end is gone; otherwise threads would wait without end.
                milliseconds = math.ceil(self._seconds * 1000)
                own = url.query.get("options", "")
                return {
                    "connect_timeout": max(2, math.ceil(self._seconds)),  # libpq's smallest
                    "tcp_user_timeout": milliseconds,
                    "options": f"{own} -c statement_timeout={milliseconds}".strip(),
                }
        return {}


def sql_engine(
    name: str, url: str, connecting: Callable[[Any], dict[str, Any]], **pool: Any
) -> Any:
    """An engine for ``url``; ``name`` begins every message. Connecting makes no SQLite file.

    ``connecting`` makes the driver's arguments from the parsed URL; ``pool`` are SQLAlchemy's.

    Raises:
        ConfigError: a package is not installed, or ``url`` is not a database URL.
    """
    try:
        import sqlalchemy
    except ImportError:
        raise ConfigError("sqlalchemy is not installed; run: pip install 'fedmq[sql]'") from None
    try:
        parsed = sqlalchemy.make_url(url)
        engine = sqlalchemy.create_engine(parsed, connect_args=connecting(parsed), **pool)
    except (sqlalchemy.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            f"{name}: url: its driver is not installed ({driver_line(error)}); "
            "for PostgreSQL: pip install 'fedmq[postgresql]'"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError):  # which may quote a password
        raise ConfigError(f"{name}: url: not a database URL") from None
    file = sqlite_file(engine)
    if file is not None:

        @sqlalchemy.event.listens_for(engine, "do_connect")
        def check(*_: Any) -> None:
            if not file.exists():
                raise SourceAway(f"{name}: there is no such file")

    return engine


def sqlite_file(engine: Any) -> Path | None:
    """The file of a SQLite database; None for one in memory, and for any other database."""
    url = engine.url
    named = url.database and not url.database.startswith((":", "file:"))
    return Path(url.database) if url.get_backend_name() == "sqlite" and named else None


def driver_line(error: BaseException) -> str:
    """The driver's own message, in one line; SQLAlchemy would add the whole statement."""
    reason = str(getattr(error, "orig", None) or error).strip()
    return reason.splitlines()[0] if reason else type(error).__name__
