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

        A row that cannot be read, or an id with several rows where the data section allows but
        one, counts as unknown and stands in the log: it must not cost all others their answer.
        """
        # What no such column can hold is unknown, and would be an error to ask about.
        wanted = [each for each in ids if self._may_be_there(each)]
        known = dict.fromkeys(ids)
        rows = self._fetched(connection, wanted) if wanted else []
        if rows:
            known |= {each: row for each, row in self._read(rows).items() if each in known}
        return known

    def _may_be_there(self, each: str) -> bool:
        if not self.whole:
            return _TEXT.fullmatch(each) is not None
        return _WHOLE.fullmatch(each) is not None and -_LARGEST <= int(each) <= _LARGEST

    def _fetched(self, connection: Any, ids: Sequence[str]) -> Sequence[Sequence[Any]]:
        from sqlalchemy.exc import DataError as Unfit

        try:
            rows: Sequence[Sequence[Any]] = connection.execute(self._statement(ids)).all()
        except Unfit as error:
            # An id that the database cannot spell, or a row on which the query itself fails.
            if len(ids) == 1:
                self._log(ids[0], driver_line(error))
                return []
            half = len(ids) // 2
            first = self._fetched(connection, ids[:half])
            return [*first, *self._fetched(connection, ids[half:])]
        return rows

    def _log(self, unread: str, reason: str) -> None:
        log.warning("%s: id %r counts as unknown: %s", self.party, unread, reason)

    def _statement(self, ids: Sequence[str]) -> Any:
        import sqlalchemy as sql

        assert self.data.query is not None
        query = self.data.query.rstrip().removesuffix(";") + "\n"  # it may end in a comment
        asked = sql.text(query).columns(*map(sql.column, self.roles.all)).subquery("asked")
        keys = [int(each) for each in ids] if self.whole else ids
        chosen = [asked.c[name] for name in self.roles.all]
        return sql.select(*chosen).where(asked.c[self.roles.id].in_(keys))

    def _read(self, rows: Sequence[Sequence[Any]]) -> Known:
        try:
            return self._values(rows)
        except DataError:
            by_id: dict[str, list[Sequence[Any]]] = {}
            for row in rows:
                by_id.setdefault(str(row[0]), []).append(row)
            known: dict[str, Any] = {}
            for each, own in by_id.items():
                try:
                    known |= self._values(own)
                except DataError as error:
                    self._log(each, str(error))
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
    """Find out how the ``features`` of model ``model`` are looked up in ``data`` at ``party``."""

    label: ClassVar[str] = "PlanLookup"
    party: str
    data: DataSection
    features: tuple[str, ...]
    model: str

    def run(self) -> Lookup:
        """Look at the first rows, to see now what would go wrong with every one later.

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
        # A few rows do not show of what type a column is; the model's features do.
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
        for each, compared in zip(ids, comparable(list(map(str, ids)), data), strict=True):
            if str(each) != compared:
                raise DataError(
                    f"{where}: the id {str(each)[:40]!r} is compared as {compared[:40]!r}, by "
                    "which it cannot be found; let the query yield ids in that form, or keep the "
                    "rows in memory with online.lookup.enabled = false"
                )
        return lookup


def _types(features: Sequence[str], columns: Sequence[str]) -> Mapping[str, ColumnType]:
    """What ``columns`` hold if ``features`` came from them: COLUMN is a number, COLUMN=X none."""
    return {each: "number" if each in features else "category" for each in columns}
