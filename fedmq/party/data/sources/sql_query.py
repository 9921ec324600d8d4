"""The result of an SQL query, through SQLAlchemy. Needs the extra fedmq[sql]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from fedmq.errors import DataError, SourceAway
from fedmq.party.data.sources.source import Batch, Source
from fedmq.party.data.sources.sql_engine import driver_line, sql_engine

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
        engine = sql_engine(self.name, self._url, _connecting)
        import sqlalchemy  # it is there: the engine came from it

        self._open.callback(engine.dispose)
        try:
            connection = self._open.enter_context(engine.connect())
        except sqlalchemy.exc.SQLAlchemyError as error:
            self._open.close()
            raise SourceAway(f"{self.name}: no connection: {driver_line(error)}") from None
        try:
            streaming = connection.execution_options(stream_results=True, yield_per=_BATCH)
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
            raise DataError(f"{self.name}: the query broke off: {driver_line(error)}") from None


def _connecting(url: Any) -> dict[str, Any]:
    # A host that swallows packets would otherwise hold the session for minutes.
    is_postgresql = url.get_backend_name() == "postgresql"
    return {"connect_timeout": _SECONDS_TO_CONNECT} if is_postgresql else {}
