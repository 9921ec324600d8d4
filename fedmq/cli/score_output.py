"""Where ids of people to score come from, and where scores go.

Ids come from a query; scores go to a CSV file in the party's own dialect, a Parquet file, or a
database's table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import csv_for_people, write_atomically
from fedmq.party.configuration.data import DataSection, checked_query
from fedmq.party.data.id_column import joined, parts_of
from fedmq.party.data.sources.sql import SqlQuery, driver_line, sql_engine

__all__ = [
    "ScoreRows",
    "ScoreTable",
    "check_file",
    "headers_of_scores",
    "queried_ids",
    "write_file",
]

_SCORES = re.compile(r"[^,]+(,[^,]+)*,score(_0(,score_[0-9]+)+)?(,reason)?(,.+,bias(_[0-9]+)?)?")
"""The headers of a file of scores."""
_PARQUET = ".parquet"
_LONGEST_LINE = 1_000_000  # bytes of headers: a file of anything else may be one line


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """Headers, and a row for each id: the id, its scores, the reason of a blank, contributions.

    ``id_columns``: how many of the first columns are those of the id.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    id_columns: int = 1

    @classmethod
    def of(
        cls, columns: Sequence[str], ids: Sequence[str], result: Mapping[str, Any], strict: bool
    ) -> ScoreRows:
        """The rows of a prediction's ``result``; ``columns`` are the headers of ``ids``.

        Ids that are hashes have one column, of the columns' names together.
        """
        parts = [[name] if len(columns) == 1 else parts_of(name) for name in ids]
        if any(len(one) != len(columns) for one in parts):
            columns, parts = (joined(columns),), [[name] for name in ids]
        scores = result["scores"]
        several = next((score for score in scores if isinstance(score, list)), None)
        width = 1 if several is None else len(several)
        headers = ["score"] if several is None else [f"score_{name}" for name in range(width)]
        rows: list[list[Any]] = [
            [*name, *(score if isinstance(score, list) else [score] * width)]
            for name, score in zip(parts, scores, strict=True)
        ]
        if not strict:
            headers.append("reason")
            for row, found, fallback in zip(
                rows, result["unknown_at"], result["fallback"], strict=True
            ):
                row.append(_reason(found, result["without"], fallback))
        if "players" in result:
            outputs = next((len(row) for row in result["contributions"] if row is not None), 1)
            suffixes = [""] if outputs == 1 else [f"_{name}" for name in range(outputs)]
            added = [f"{player}{suffix}" for suffix in suffixes for player in result["players"]]
            headers += added
            for row, values in zip(rows, result["contributions"], strict=True):
                row.extend([None] * len(added) if values is None else chain(*values))
        return cls((*columns, *headers), tuple(map(tuple, rows)), len(columns))


def _reason(unknown_at: Sequence[str], without: Sequence[str], fallback: str | None) -> str:
    """Why a row has no score, or one by a fallback model; empty where all is as it should be."""
    unknown = f"unknown at {', '.join(unknown_at)}" if unknown_at else ""
    absent = f"without {', '.join(without)}" if without else ""
    by = f"scored by {fallback}" if fallback else ""
    return "; ".join(filter(None, (unknown, absent, by)))


def check_file(output: Path, data: DataSection) -> None:
    """ConfigError if ``output`` cannot be written, or is a file of anything but scores."""
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: there is no folder {output.parent}; make it first")
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; name a file in it")
    if output.suffix == _PARQUET:
        _arrow()
    written = output.is_file() and output.stat().st_size > 0
    if written and not _SCORES.fullmatch(_headers(output, data)):
        raise ConfigError(f"{output}: exists already and holds no scores; choose another")


def headers_of_scores(output: Path, data: DataSection) -> list[str]:
    """The headers of a file of scores; none of any other file, and of one that cannot be read."""
    try:
        headers = _headers(output, data)
    except (OSError, ConfigError):
        return []
    return headers.split(",") if _SCORES.fullmatch(headers) else []


def _headers(output: Path, data: DataSection) -> str:
    """The headers of a file, with commas between them; empty if it has none."""
    if output.suffix == _PARQUET:
        arrow, parquet = _arrow()
        try:
            return ",".join(parquet.read_schema(output).names)
        except (OSError, arrow.ArrowException):
            return ""
    with output.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    return first.decode(data.encoding, "replace").strip().replace(data.separator, ",")


def write_file(output: Path, scored: ScoreRows, data: DataSection) -> None:
    """Write all rows or no file; write directly into a pipe or link, such as /dev/stdout.

    A name that ends in .parquet gets a Parquet file; any other CSV with the separator, decimals and
    encoding of ``data``.

    Raises:
        ConfigError: the disk refuses.
        DataError: an id cannot be written in the party's encoding.
    """
    content = _parquet(scored) if output.suffix == _PARQUET else _csv(output, scored, data)
    try:
        if not output.is_symlink() and (output.is_file() or not output.exists()):
            write_atomically(output, content)
        else:
            output.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None


def _csv(output: Path, scored: ScoreRows, data: DataSection) -> bytes:
    def cell(value: str | float | None) -> str:
        if isinstance(value, str):
            return value
        return "" if value is None else f"{value:.9g}".replace(".", data.decimal)

    rows = [[cell(value) for value in row] for row in scored.rows]
    text = csv_for_people([scored.headers, *rows], data.separator)
    try:
        return text.encode(data.encoding)
    except UnicodeEncodeError as error:
        letter = error.object[error.start : error.end]
        raise DataError(
            f"{output}: {letter!r} cannot be written in {data.encoding}, the encoding of the "
            "party's own file; write a .parquet file instead"
        ) from None


def _parquet(scored: ScoreRows) -> bytes:
    arrow, parquet = _arrow()
    columns = list(zip(*scored.rows, strict=True)) or [()] * len(scored.headers)
    types = [
        arrow.string() if place < scored.id_columns or name == "reason" else arrow.float64()
        for place, name in enumerate(scored.headers)
    ]
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(arrays, names=list(scored.headers)), sink)
    return bytes(sink.getvalue())


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError("pyarrow is not installed; run: pip install 'fedmq[parquet]'") from None
    return arrow, parquet


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The table ``name``, or SCHEMA.NAME, in the database of ``data``.

    It has the columns of a file of scores, and ``model`` and ``day`` beside the id: each person has
    one row a model and day, however often they are written.
    """

    name: str
    data: DataSection

    def check(self) -> None:
        """Connect.

        Raises:
            ConfigError: ``data`` names no database, or one whose inserts are not known.
            DataError: the database cannot be reached, or the table is another one.
        """
        with self._connected() as connection:
            import sqlalchemy  # it is there: the connection came from it

            looked = sqlalchemy.inspect(connection)
            schema, name = self._place
            if looked.has_table(name, schema):
                there = {column["name"] for column in looked.get_columns(name, schema)}
                together = joined(self.data.ids)
                ids = (together,) if together in there else self.data.ids
                missing = {*ids, "model", "day", "reason"} - there
                if missing:
                    raise DataError(
                        f"{self._where}: there is no column {min(missing)!r}, so it is no table of "
                        "scores; name another one"
                    )

    def write(self, scored: ScoreRows, model: str, day: date) -> int:
        """Write all rows in one transaction; returns how many were not there already.

        Raises:
            DataError: the database refuses; nothing is written then.
        """
        with self._connected() as connection:
            import sqlalchemy
            from sqlalchemy.dialects import postgresql, sqlite

            schema, name = self._place
            ids = scored.headers[: scored.id_columns]
            texts = {*ids, "reason"}
            columns = [
                sqlalchemy.Column(
                    header, sqlalchemy.Text() if header in texts else sqlalchemy.Double()
                )
                for header in scored.headers
            ]
            table = sqlalchemy.Table(
                name,
                sqlalchemy.MetaData(),
                *columns,
                sqlalchemy.Column("model", sqlalchemy.Text()),
                sqlalchemy.Column("day", sqlalchemy.Date()),
                sqlalchemy.PrimaryKeyConstraint(*ids, "model", "day"),
                schema=schema,
            )
            table.create(connection, checkfirst=True)
            ours = sqlalchemy.select(sqlalchemy.func.count()).where(
                table.c.model == model, table.c.day == day
            )
            before = connection.execute(ours).scalar_one()
            known: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
            insert = known[connection.dialect.name](table).on_conflict_do_nothing()
            rows = [
                {**dict(zip(scored.headers, row, strict=True)), "model": model, "day": day}
                for row in scored.rows
            ]
            connection.execute(insert, rows)
            return int(connection.execute(ours).scalar_one()) - int(before)

    @property
    def _place(self) -> tuple[str | None, str]:
        schema, _, name = self.name.rpartition(".")
        return schema or None, name

    @property
    def _where(self) -> str:
        return f"{self.data.place}: table {self.name}"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection in a transaction, which ends with the block."""
        if self.data.url is None:
            raise ConfigError(
                'a table of scores needs the party\'s database: type = "sql" and url under [data] '
                "or [serving]"
            )
        engine = sql_engine(self._where, self.data.url, lambda _: {})
        from sqlalchemy.exc import SQLAlchemyError

        if engine.dialect.name not in ("postgresql", "sqlite"):
            raise ConfigError(f"{self._where}: scores are written into PostgreSQL and SQLite alone")
        try:
            with engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise DataError(f"{self._where}: {driver_line(error)}; nothing is written") from None
        finally:
            engine.dispose()


def queried_ids(query: str, data: DataSection) -> list[str]:
    """The ids that ``query`` yields from the database of ``data``.

    Raises:
        ConfigError: ``data`` names no database, or the query would change it.
        DataError: the query fails, or has no column of ids, or no row.
    """
    if data.url is None:
        raise ConfigError(
            '--ids-query: the party\'s rows come from no database: type = "sql" and url under '
            "[data] or [serving]"
        )
    try:
        checked_query(query)
    except ValueError as error:
        raise ConfigError(f"--ids-query: {error}") from None
    where = f"{data.place}: --ids-query"
    with SqlQuery(where, data.url, query) as source:
        missing = next((name for name in data.ids if name not in source.columns), None)
        columns = data.ids if missing is None else source.columns
        if missing is not None and (len(columns) > 1 or len(data.ids) > 1):
            raise DataError(
                f"{where}: there is no column {missing!r}, but {list(source.columns[:5])}; name "
                "it so with AS"
            )
        rows = [
            cells
            for batch in source.batches(columns)
            for cells in zip(*(batch.cells[column] for column in columns), strict=True)
        ]
    empty = next((row for row, cells in enumerate(rows, 1) if None in cells), None)
    if empty is not None:
        raise DataError(f"{where}, row {empty}: the id is empty")
    if not rows:
        raise DataError(f"{where}: there are no ids")
    return [joined([str(cell).strip() for cell in cells]) for cells in rows]
