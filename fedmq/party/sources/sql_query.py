"""The result of an SQL query, through SQLAlchemy. Needs the extra fedmq[sql]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from fedmq.errors import ConfigError, DataError
from fedmq.party.sources.source import Batch, Source

__all__ = ["SqlQuery"]

_BATCH = 10_000
_SECONDS_TO_CONNECT = 10


class SqlQuery(Source):
    """What ``query`` yields at the database ``url``, with a cursor at the server."""

    def __init__(self, name: str, url: str, query: str) -> None:
        super().__init__(name)
        self._url = url
        self._query = query
        self._open = ExitStack()
        self._result: Any

    def __enter__(self) -> Self:
        try:
            import sqlalchemy
        except ImportError:
            raise ConfigError(
                "sqlalchemy is not installed; run: pip install 'fedmq[sql]'"
            ) from None
        try:
            engine = sqlalchemy.create_engine(
                self._url,
                poolclass=sqlalchemy.pool.NullPool,
                connect_args=_connect_arguments(self._url),
            )
        except (sqlalchemy.exc.NoSuchModuleError, ImportError) as error:
            raise ConfigError(
                f"{self.name}: url: its driver is not installed ({_line(error)}); "
                "for PostgreSQL: pip install 'fedmq[postgresql]'"
            ) from None
        except sqlalchemy.exc.ArgumentError:
            raise ConfigError(f"{self.name}: url: not a database URL") from None
        self._open.callback(engine.dispose)
        try:
            connection = self._open.enter_context(engine.connect())
            streaming = connection.execution_options(stream_results=True, yield_per=_BATCH)
            self._result = streaming.execute(sqlalchemy.text(self._query))
            self._open.callback(self._result.close)
            self.columns = tuple(self._result.keys())
        except sqlalchemy.exc.SQLAlchemyError as error:
            self._open.close()
            raise DataError(f"{self.name}: the query failed: {_line(error)}") from None
        twice = [column for column in self.columns if self.columns.count(column) > 1]
        if twice:
            self._open.close()
            raise DataError(f"{self.name}: column {twice[0]!r} appears more than once")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        from sqlalchemy.exc import SQLAlchemyError

        places = [self.columns.index(column) for column in columns]
        first = 1
        try:
            for rows in self._result.partitions(_BATCH):
                by_column = list(zip(*rows, strict=True))
                cells = {name: by_column[at] for name, at in zip(columns, places, strict=True)}
                yield Batch(range(first, first + len(rows)), cells)
                first += len(rows)
        except SQLAlchemyError as error:
            raise DataError(f"{self.name}: the query broke off: {_line(error)}") from None


def _connect_arguments(url: str) -> dict[str, Any]:
    # A host that swallows packets would otherwise hold the session for minutes.
    return {"connect_timeout": _SECONDS_TO_CONNECT} if url.startswith("postgresql") else {}


def _line(error: BaseException) -> str:
    """What the driver says, in one line; SQLAlchemy itself would add the whole statement."""
    reason = str(getattr(error, "orig", None) or error).strip()
    return reason.splitlines()[0] if reason else type(error).__name__
