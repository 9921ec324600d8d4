"""How the rows of an SQL source are found by id, and what their cells mean for a model."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmq.errors import DataError
from fedmq.party.configuration.data import ColumnType, DataSection
from fedmq.party.data.id_column import comparable
from fedmq.party.data.loading import model_columns
from fedmq.party.data.sources.fetched import Fetched
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.sources.source import Batch
from fedmq.party.data.sources.sql_engine import driver_line
from fedmq.party.data.table import Roles, table_of
from fedmq.party.online.rows.row_cache import Known

__all__ = ["Lookup", "PlanLookup"]

log = logging.getLogger(__name__)

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")  # as Python writes it
_LARGEST = 2**63 - 1  # of a database's whole numbers
_TEXT = re.compile(r"[^\0]*")


@dataclass(frozen=True, slots=True)
class Lookup:
    """The columns ``roles`` of ``data`` at ``party`` make the ``features`` of model ``model``.

    ``whole`` says that the id column holds whole numbers, not text.
    """

    party: str
    data: DataSection
    roles: Roles
    features: tuple[str, ...]
    model: str
    whole: bool

    def read(self, connection: Any, ids: Sequence[str]) -> Known:
        """The rows of ``ids``, by one statement if all is well.

        An id counts as unknown if its row cannot be read, or if it has several rows where the
        data section allows one. That is logged; all others get their answer.
        """
        # A database reports an error for an id that no column of this type can hold.
        wanted = [name for name in ids if self._fits_column(name)]
        known = dict.fromkeys(ids)
        rows = self._fetched(connection, wanted) if wanted else []
        if rows:
            known |= {name: row for name, row in self._read(rows).items() if name in known}
        return known

    def _fits_column(self, name: str) -> bool:
        if not self.whole:
            return _TEXT.fullmatch(name) is not None
        return _WHOLE.fullmatch(name) is not None and -_LARGEST <= int(name) <= _LARGEST

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

    def _log_unknown(self, name: str, reason: str) -> None:
        log.warning("%s: id %r counts as unknown: %s", self.party, name, reason)

    def _statement(self, ids: Sequence[str]) -> Any:
        import sqlalchemy as sql

        assert self.data.query is not None
        query = self.data.query.rstrip().removesuffix(";") + "\n"  # it may end in a comment
        asked = sql.text(query).columns(*map(sql.column, self.roles.all)).subquery("asked")
        keys = [int(name) for name in ids] if self.whole else ids
        columns = [asked.c[column] for column in self.roles.all]
        return sql.select(*columns).where(asked.c[self.roles.id].in_(keys))

    def _read(self, rows: Sequence[Sequence[Any]]) -> Known:
        try:
            return self._values(rows)
        except DataError:
            by_id: dict[str, list[Sequence[Any]]] = {}
            for row in rows:
                by_id.setdefault(str(row[0]), []).append(row)
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


def _known(name: str, batch: Batch, lookup: Lookup) -> Known:
    table = table_of(Fetched(name, batch), lookup.data, lookup.roles)
    values = model_columns(lookup.party, lookup.data, table, lookup.features, lookup.model)
    return dict(zip(table.ids, values, strict=True))


@dataclass(frozen=True, slots=True)
class PlanLookup:
    """Find out how to look up the ``features`` of model ``model`` in ``data`` at ``party``."""

    label: ClassVar[str] = "PlanLookup"
    party: str
    data: DataSection
    features: tuple[str, ...]
    model: str

    def run(self) -> Lookup:
        """Read the first rows: what is wrong with the source as a whole shows now.

        Raises:
            DataError: naming party, source, column, and what to do.
        """
        data = self.data
        where = f"{self.party}: {data.place}"
        if "sha256" in data.normalise and not data.hashed:
            raise DataError(
                f"{where}: ids are compared as their SHA-256, by which they cannot be found here; "
                "let the query yield that and say hashed = true, or keep the rows in memory with "
                "online.lookup.enabled = false"
            )
        with source_of(self.party, data) as source:
            roles = Roles.of(source, data, labelled=False).narrowed(self.features)
            first = next(source.batches(roles.all), None)
        if first is None:
            raise DataError(f"{where}: there are no rows")
        # The model's features show of what type a column is; a few rows do not.
        types = {**_types(self.features, roles.features), **data.types}
        ids = first.cells[roles.id]
        lookup = Lookup(
            self.party,
            data.model_copy(update={"types": types}),
            roles,
            self.features,
            self.model,
            whole=isinstance(ids[0], int),
        )
        _known(where, first, lookup)
        for name, compared in zip(ids, comparable(list(map(str, ids)), data), strict=True):
            if str(name) != compared:
                raise DataError(
                    f"{where}: the id {str(name)[:40]!r} is compared as {compared[:40]!r}, by "
                    "which it cannot be found; let the query yield ids in that form, or keep the "
                    "rows in memory with online.lookup.enabled = false"
                )
        return lookup


def _types(features: Sequence[str], columns: Sequence[str]) -> Mapping[str, ColumnType]:
    """The types of ``columns``: a number's feature is named COLUMN, a category's COLUMN=VALUE."""
    return {column: "number" if column in features else "category" for column in columns}
