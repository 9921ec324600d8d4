"""Which values has a row? In memory, or looked up in a database by id.

A table is read once and held. Rows of an SQL source are looked up by id on request, and kept
for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation, computation
from fedmq.errors import DataError, RowsUnavailable
from fedmq.party.configuration.data import ColumnType, DataSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.data.id_column import comparable, joined, parts_of
from fedmq.party.data.loading import model_columns, served_columns
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.sources.source import Batch, Fetched
from fedmq.party.data.sources.sql import SqlPool, driver_line
from fedmq.party.data.table import Roles, table_of
from fedmq.party.telemetry.metrics import LookupCounters

__all__ = [
    "Known",
    "LookedUpRows",
    "Lookup",
    "Reading",
    "RowCache",
    "Rows",
    "RowsInMemory",
    "ServedRows",
    "ServingSource",
    "load_rows",
    "plan_lookup",
]

log = logging.getLogger(__name__)

_IDS_PER_STATEMENT = 500  # old SQLite takes 999 parameters, other databases more

Known = Mapping[str, NDArray[np.float32] | None]
"""By id, the values of its row; None if there is no row."""

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # as Python writes it
_LARGEST_WHOLE = 2**63 - 1  # of a database's whole numbers
_TEXT_ID = re.compile(r"[^\0]*")
_ORDERED_BY = re.compile(r"\border\s+by\s+([^()]+?)\s*;?\s*$", re.IGNORECASE)
_ORDER = re.compile(r"\s*\"?(\w+)\"?(?:\s+(asc|desc))?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read at ``party``: by a computation in another process."""

    party: str
    data: DataSection
    by_id: bool

    def of(self, features: tuple[str, ...], model: str) -> Computation:
        """A computation: read the ``features`` of ``model``, or plan how to look them up."""
        if self.by_id:
            return plan_lookup.bind(self.party, self.data, features, model)
        return load_rows.bind(self.party, self.data, features, model)


class ServingSource:
    """Gives every model its rows; models that look rows up share one pool of connections."""

    def __init__(self, party: str, data: DataSection, section: OnlineSection) -> None:
        self.counters = LookupCounters()
        self.reading = Reading(party, data, data.type == "sql" and section.lookup.enabled)
        self._section = section
        self._pool: SqlPool | None = None

    async def open(self) -> None:
        """Connect to a database; it may still be away.

        Raises:
            ConfigError: its driver is not installed, or its URL is invalid.
        """
        if not self.reading.by_id:
            return
        data, section = self.reading.data, self._section.lookup
        assert data.url is not None
        # In a thread, because the driver has to be imported.
        self._pool = await asyncio.to_thread(
            SqlPool,
            f"{self.reading.party}: {data.place}",
            data.url,
            section.connections,
            section.timeout,
        )
        with contextlib.suppress(DataError):
            await self._pool.run(lambda _: None)  # so that the first question finds a connection

    @property
    def trouble(self) -> str:
        """Why rows cannot be looked up now; empty when all is well."""
        return "" if self._pool is None else self._pool.trouble

    def served(self, loaded: Rows | Lookup) -> ServedRows:
        """The rows of a model, from the result of a computation of :class:`Reading`."""
        if isinstance(loaded, Rows):
            return RowsInMemory(loaded)
        section = self._section.lookup
        if self._pool is None:
            data = self.reading.data
            assert data.url is not None
            name = f"{self.reading.party}: {data.place}"
            self._pool = SqlPool(name, data.url, section.connections, section.timeout)
        return LookedUpRows(
            loaded, self._pool, self.counters, section.entries, self._section.max_age
        )

    def stamp(self) -> Any:
        """Changes when rows in memory are out of date; None while the source cannot be reached."""
        path = self.reading.data.path
        if path is None:
            # The result of a query may change unseen, so no two stamps are equal.
            return "" if self.reading.by_id else object()
        try:
            seen = path.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.close()


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Values of rows: ``values`` is float32 (rows + 1, features), ``row_of`` has the row of an id.

    The last row is all missing (NaN); it stands for unknown ids.
    """

    features: tuple[str, ...]
    values: NDArray[np.float32]
    row_of: Mapping[str, int]

    @classmethod
    def of(cls, features: tuple[str, ...], values: NDArray[np.float32], ids: Sequence[str]) -> Rows:
        """Rows of ``ids`` with ``values``, float32 (ids, features), and a row for unknown ids."""
        unknown = np.full((1, len(features)), np.nan, np.float32)
        row_of = {name: row for row, name in enumerate(ids)}
        return cls(features, np.vstack([values, unknown]), row_of)

    def places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id, int64 (ids,); -1, the row without values, if the id is unknown."""
        return np.array([self.row_of.get(name, -1) for name in ids], dtype=np.int64)


class ServedRows(ABC):
    """One party's source of a model's row values."""

    features: tuple[str, ...]
    """The names of the values, in the order of the model's share."""

    @abstractmethod
    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        """Rows with at least those of ``ids`` that the source knows.

        Raises:
            RowsUnavailable: the source cannot be read, or not within ``seconds``.
        """


class RowsInMemory(ServedRows):
    """All rows of the source, as they were when read."""

    def __init__(self, rows: Rows) -> None:
        self.features = rows.features
        self._rows = rows

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        return self._rows


@computation("LoadRows")
def load_rows(party: str, data: DataSection, features: tuple[str, ...], model: str) -> Rows:
    """Read the columns ``features`` of ``data`` at ``party``, in that order, for ``model``.

    Raises:
        DataError: naming party, source and column.
    """
    values, row_of = served_columns(party, data, features, model)
    return Rows.of(features, values, tuple(row_of))


class LookedUpRows(ServedRows):
    """The rows that ``lookup`` finds through ``pool``; a cache keeps them and unknown ids.

    Callers that ask for an id in flight wait for the same statement: repeating questions to a
    slow database does not make it slower.
    """

    def __init__(
        self,
        lookup: Lookup,
        pool: SqlPool,
        counters: LookupCounters,
        entries: int,
        max_age: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.features = lookup.features
        self._lookup = lookup
        self._pool = pool
        self._counters = counters
        self._cache = RowCache(entries, max_age, clock)
        self._fetching: dict[str, asyncio.Task[Known | None]] = {}

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        asked = dict.fromkeys(ids)
        known = dict(self._cache.find(asked))
        missing = [name for name in asked if name not in known]
        self._counters.hits += len(known)
        self._counters.misses += len(missing)
        for part in _parts([name for name in missing if name not in self._fetching]):
            self._fetching |= dict.fromkeys(part, asyncio.create_task(self._fetch(part)))
        fetches = {self._fetching[name] for name in missing}
        if fetches:
            done, failed = await asyncio.wait(fetches, timeout=seconds)
            for fetch in done:
                fetched = None if fetch.cancelled() else fetch.result()
                if fetched is None:
                    failed.add(fetch)
                else:
                    known |= fetched
            if failed:
                raise RowsUnavailable(f"{self._lookup.party}: its rows cannot be looked up now")
        rows = {name: row for name in asked if (row := known[name]) is not None}
        shape = len(rows), len(self.features)
        values = np.array(list(rows.values()), np.float32).reshape(shape)
        return Rows.of(self.features, values, tuple(rows))

    async def _fetch(self, ids: Sequence[str]) -> Known | None:
        """The rows of ``ids``; None if the database does not answer, which is logged."""
        with self._counters.lookup():
            try:
                known = await self._pool.run(partial(self._lookup.read, ids=ids))
            except DataError:
                self._counters.failures += 1
                return None
            finally:
                for name in ids:
                    del self._fetching[name]
        self._cache.put(known)
        return known


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        yield ids[start : start + _IDS_PER_STATEMENT]


class RowCache:
    """At most ``entries`` ids, each for ``max_age`` seconds of ``clock``; the oldest go first."""

    def __init__(self, entries: int, max_age: float, clock: Callable[[], float]) -> None:
        self._most_entries = entries
        self._max_age = max_age
        self._clock = clock
        self._entries: dict[str, tuple[float, NDArray[np.float32] | None]] = {}
        """By id, in order of arrival: when its row was looked up, and its values."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Iterable[str]) -> Known:
        """Those of ``ids`` that are cached and fresh."""
        oldest = self._clock() - self._max_age
        found = {}
        for name in ids:
            entry = self._entries.get(name)
            if entry is not None and entry[0] > oldest:
                found[name] = entry[1]
        return found

    def put(self, known: Known) -> None:
        """Keep ``known`` from now on."""
        now = self._clock()
        for name, values in known.items():
            self._entries.pop(name, None)  # so that it goes to the end
            self._entries[name] = now, values
        while len(self._entries) > self._most_entries:
            del self._entries[next(iter(self._entries))]


@computation("PlanLookup")
def plan_lookup(party: str, data: DataSection, features: tuple[str, ...], model: str) -> Lookup:
    """Find out how to look up the ``features`` of model ``model`` in ``data`` at ``party``.

    Reads the first rows: problems with the source as a whole show now.

    Raises:
        DataError: naming party, source, column, and what to do.
    """
    where = f"{party}: {data.place}"
    if "sha256" in data.normalise and not data.hashed:
        raise DataError(
            f"{where}: ids are compared as their SHA-256, by which they cannot be found here; "
            "let the query yield that and say hashed = true, or keep the rows in memory with "
            "online.lookup.enabled = false"
        )
    with source_of(party, data) as source:
        roles = Roles.of(source, data, labelled=False).narrowed(features)
        first = next(source.batches(roles.all), None)
        order = _order_of(data.query or "", source.columns)
    if first is None:
        raise DataError(f"{where}: there are no rows")
    # The model's features reveal a column's type; a few rows do not.
    types = {**_types(features, roles.features), **data.types}
    columns = [first.cells[column] for column in roles.ids]
    lookup = Lookup(
        party,
        data.model_copy(update={"types": types}),
        roles,
        features,
        model,
        whole=tuple(isinstance(cells[0], int) for cells in columns),
        order=order,
    )
    _known(where, first, lookup)
    ids = [joined(list(map(str, row))) for row in zip(*columns, strict=True)]
    for name, compared in zip(ids, comparable(ids, data), strict=True):
        if name != compared:
            raise DataError(
                f"{where}: the id {name[:40]!r} is compared as {compared[:40]!r}, by "
                "which it cannot be found; let the query yield ids in that form, or keep the "
                "rows in memory with online.lookup.enabled = false"
            )
    return lookup


def _order_of(query: str, yielded: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """The columns by which ``query`` ends in an order, and whether each one falls; or nothing.

    Nothing, too, where a column is not among those that it has ``yielded``.
    """
    ends = _ORDERED_BY.search(query)
    columns = [_ORDER.fullmatch(part) for part in ends[1].split(",")] if ends else []
    order = [(found[1], (found[2] or "").lower() == "desc") for found in columns if found]
    known = len(order) == len(columns) and all(column in yielded for column, _ in order)
    return tuple(order) if known else ()


def _types(features: Sequence[str], columns: Sequence[str]) -> Mapping[str, ColumnType]:
    """The types of ``columns``: a numeric feature is named COLUMN, a category's COLUMN=VALUE."""
    return {column: "number" if column in features else "category" for column in columns}


@dataclass(frozen=True, slots=True)
class Lookup:
    """Makes the ``features`` of ``model`` from the columns ``roles`` of ``data`` at ``party``.

    ``whole``: which columns of the id hold whole numbers, not text.
    """

    party: str
    data: DataSection
    roles: Roles
    features: tuple[str, ...]
    model: str
    whole: tuple[bool, ...]
    order: tuple[tuple[str, bool], ...] = ()
    """Columns by which the query ends in an order, and whether each falls: it numbers a person's
    rows."""

    def read(self, connection: Any, ids: Sequence[str]) -> Known:
        """Read the rows of ``ids``, by one statement if all is well.

        An id counts as unknown if its row cannot be read, or if it has several rows but the data
        section allows one, or the query says no order by which they are numbered. This is logged;
        all other ids get their answer.
        """
        people = dict.fromkeys(people_of(self.data, ids))
        # A database reports an error for an id that does not fit the column's type.
        wanted = [name for name in people if self._fits_columns(self._parts(name))]
        known = dict.fromkeys(ids)
        rows = self._fetched(connection, wanted) if wanted else []
        if self.data.counts_each and not self.order:
            rows = self._of_one_row_each(rows)
        if rows:
            known |= {name: row for name, row in self._read(rows).items() if name in known}
        return known

    def _parts(self, name: str) -> list[str]:
        """What each column of the id holds."""
        return [name] if len(self.whole) == 1 else parts_of(name)

    def _fits_columns(self, parts: Sequence[str]) -> bool:
        return len(parts) == len(self.whole) and all(map(_fits, parts, self.whole))

    def _fetched(self, connection: Any, ids: Sequence[str]) -> Sequence[Sequence[Any]]:
        from sqlalchemy.exc import DataError as DatabaseDataError

        try:
            rows: Sequence[Sequence[Any]] = connection.execute(self._statement(ids)).all()
        except DatabaseDataError as error:
            # The database cannot represent an id, or the query fails on one row; halving finds it.
            if len(ids) == 1:
                self._log_unknown(ids[0], driver_line(error))
                return []
            half = len(ids) // 2
            first = self._fetched(connection, ids[:half])
            return [*first, *self._fetched(connection, ids[half:])]
        return rows

    def _of_one_row_each(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """The ``rows`` of people who have one: no number tells those of others apart."""
        names = [joined(list(map(str, row[: len(self.whole)]))) for row in rows]
        counts = Counter(names)
        for name in (name for name, count in counts.items() if count > 1):
            self._log_unknown(
                name,
                "its rows have no order; end the query in ORDER BY and columns that it yields, or "
                "keep the rows in memory with online.lookup.enabled = false",
            )
        return [row for name, row in zip(names, rows, strict=True) if counts[name] == 1]

    def _log_unknown(self, name: str, reason: str) -> None:
        log.warning("%s: id %r counts as unknown: %s", self.party, name, reason)

    def _statement(self, ids: Sequence[str]) -> Any:
        import sqlalchemy as sql

        assert self.data.query is not None
        query = self.data.query.rstrip().removesuffix(";") + "\n"  # it may end in a comment
        order = self.order if self.data.counts_each else ()
        yielded = dict.fromkeys([*self.roles.all, *(column for column, _ in order)])
        asked = sql.text(query).columns(*map(sql.column, yielded)).subquery("asked")
        keys = [
            tuple(
                int(part) if whole else part for part, whole in zip(parts, self.whole, strict=True)
            )
            for parts in map(self._parts, ids)
        ]
        columns = [asked.c[column] for column in self.roles.all]
        named = [asked.c[column] for column in self.roles.ids]
        # The order of a query within another one is none.
        ordered = sql.select(*columns).order_by(
            *(asked.c[column].desc() if falls else asked.c[column] for column, falls in order)
        )
        if len(named) == 1:
            return ordered.where(named[0].in_([key for (key,) in keys]))
        return ordered.where(sql.tuple_(*named).in_(keys))

    def _read(self, rows: Sequence[Sequence[Any]]) -> Known:
        try:
            return self._values(rows)
        except DataError:
            by_id: dict[str, list[Sequence[Any]]] = {}
            for row in rows:
                name = joined(list(map(str, row[: len(self.whole)])))
                by_id.setdefault(name, []).append(row)
            known: dict[str, Any] = {}
            for name, own_rows in by_id.items():
                try:
                    known |= self._values(own_rows)
                except DataError as error:
                    self._log_unknown(name, str(error))
            return known

    def _values(self, rows: Sequence[Sequence[Any]]) -> Known:
        cells = dict(zip(self.roles.all, zip(*rows, strict=True), strict=True))
        batch = Batch(range(1, len(rows) + 1), cells)
        return _known(f"{self.party}: {self.data.place}", batch, self)


def _fits(part: str, whole: bool) -> bool:
    """Whether a column of ids may hold ``part``; ``whole``: it holds whole numbers."""
    if not whole:
        return _TEXT_ID.fullmatch(part) is not None
    return (
        _WHOLE_NUMBER.fullmatch(part) is not None and -_LARGEST_WHOLE <= int(part) <= _LARGEST_WHOLE
    )


def _known(name: str, batch: Batch, lookup: Lookup) -> Known:
    table = table_of(Fetched(name, batch), lookup.data, lookup.roles)
    values = model_columns(lookup.party, lookup.data, table, lookup.features, lookup.model)
    return dict(zip(table.ids, values, strict=True))
