"""Connections to a database that stay open, and threads that wait for it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fedmq.errors import DataError
from fedmq.party.data.sources.sql_engine import driver_line, sql_engine, sqlite_file

__all__ = ["SqlPool"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class SqlPool:
    """At most ``connections`` to ``url`` at once, opened when they are first needed.

    Nothing takes longer than ``seconds``, whether the database is away, slow or silent. Every
    connection is tested before use, so the pool works again as soon as the database does.
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
            # Every question is one statement: no transaction has to be opened and closed.
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
        """Give up what is under way, and close the connections."""
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
        """Drop the connections when another file has taken the name: they read the old one."""
        if self._file is None:
            return
        try:
            seen = self._file.stat()
        except OSError:
            self._engine.dispose()  # so that the next connection reports that it is gone
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
                # whose other end is gone; otherwise threads would wait for ever.
                milliseconds = math.ceil(self._seconds * 1000)
                own = url.query.get("options", "")
                return {
                    "connect_timeout": max(2, math.ceil(self._seconds)),  # libpq's smallest
                    "tcp_user_timeout": milliseconds,
                    "options": f"{own} -c statement_timeout={milliseconds}".strip(),
                }
        return {}
