"""A party's source described: its columns, and the errors that a session would raise.

Warnings name oddities: seldom intended, but accepted by every session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmq.errors import DataError
from fedmq.party.configuration.data import BesideLabel, DataSection
from fedmq.party.data.columns import (
    BesideColumn,
    CategoryColumn,
    DateColumn,
    FeatureColumn,
    LabelColumn,
    NumberSpelling,
    checked_beside,
    likely_meaning,
)
from fedmq.party.data.given_bins import wrong_bins
from fedmq.party.data.id_column import IdColumns
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.sources.source import Batch, Cells, Source
from fedmq.party.data.table import Roles, feature_column, in_batch, label_column

__all__ = ["SourceWarnings", "ValidatedColumn", "Validation", "validate_source"]

_SHOWN = 3
_UNNAMED = re.compile(r"(Unnamed: \d+)?")
_AS_DECIMAL = re.compile(r"\d+\.0+")
_LEADING_ZERO = re.compile(r"0\d+")
_AS_POWER = re.compile(r"\d(\.\d+)?[eE]\+?\d+")


@dataclass(frozen=True, slots=True)
class ValidatedColumn:
    """A column: its role, its type, and the share of rows (0 to 1) without a value."""

    name: str
    role: str
    type: str
    missing: float | None = None
    categories: int | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """A source: its rows and columns; ``refused`` has one line for each error."""

    place: str
    rows: int
    repeated: int
    repeated_ids: tuple[str, ...]
    duplicates: str
    columns: tuple[ValidatedColumn, ...]
    refused: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Accepted but seldom intended: a line each."""


@dataclass(slots=True)
class _Check:
    """Gives batches to a column until it refuses one; keeps the reason and skips the rest."""

    take: Callable[[Cells, Batch], None]
    problem: str | None = None

    def run_on(self, cells: Cells, batch: Batch) -> None:
        if self.problem is None:
            try:
                self.take(cells, batch)
            except DataError as error:
                self.problem = str(error)


@dataclass(slots=True)
class _Columns:
    """The columns of one source while it is read."""

    source: Source
    data: DataSection
    roles: Roles
    ids: IdColumns = field(init=False)
    labels: Mapping[str, LabelColumn] = field(init=False)
    features: Mapping[str, FeatureColumn | DateColumn] = field(init=False)
    beside: Mapping[BesideLabel, BesideColumn] = field(init=False)
    checks: dict[str, _Check] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = IdColumns(self.source.name, self.source.unit, self.data)
        self.labels = {name: label_column(name, self.data) for name in self.roles.labels}
        self.features = {name: feature_column(name, self.data) for name in self.roles.features}
        self.checks = {
            self.roles.ids[0]: _Check(lambda _, batch: self.ids.take(batch.cells, batch.numbers))
        }
        spelling = NumberSpelling.of(self.data)
        self.beside = {
            role: BesideColumn(name, self.data.missing, spelling)
            for role, name in self.roles.beside_label.items()
        }
        columns: dict[str, Any] = {**self.features, **self.labels}
        for role, beside in self.beside.items():
            columns[self.roles.beside_label[role]] = beside
        for name, column in columns.items():
            self.checks[name] = _Check(
                lambda cells, batch, column=column: column.take(  # type: ignore[misc]
                    cells, in_batch(self.source, batch.numbers)
                )
            )

    def unlabelled(self, batch: Batch) -> dict[str, str]:
        """By label, the place of the first row of the last batch without one."""
        found = {}
        for name, label in self.labels.items():
            empty = np.isnan(label.newest) if self.checks[name].problem is None else np.zeros(0)
            if empty.any():
                found[name] = in_batch(self.source, batch.numbers)(int(np.argmax(empty)))
        return found

    def refused_beside(self) -> Iterator[str]:
        """Weights and margins that no training takes, a line for each column."""
        for role, column in self.beside.items():
            name = self.roles.beside_label[role]
            if self.checks[name].problem is None:
                try:
                    checked_beside(role, column.values, f"{self.source.name}, column {name!r}")
                except DataError as error:
                    yield str(error)

    def warnings(self, rows: int) -> list[str]:
        """Oddities of the columns, a line each."""
        lines = [
            f"{self.source.name}: column {name!r} has no value in any row; leave it out with ignore"
            for name, column in self.features.items()
            if self.checks[name].problem is None and rows and column.missing.all()
        ]
        lines += [
            f"{self.source.name}: column {name!r} is the same in every row, and splits nobody; "
            "leave it out with ignore"
            for name, column in self.features.items()
            if self.checks[name].problem is None and rows > 1 and _is_constant(column)
        ]
        for name, column in self.features.items():
            if self.checks[name].problem is None and isinstance(column, FeatureColumn):
                meant = _of_categories(name, column)
                where = f"{self.source.name}: column {name!r}"
                lines += [f"{where} is a category; {meant}"] * bool(meant)
                lines += [f"{where} {alike}" for alike in _alike(column)]
        for name, label in self.labels.items():
            if self.checks[name].problem is None:
                lines += _of_labels(f"{self.source.name}, column {name!r}", label)
        return lines

    def refused_bins(self) -> Iterator[str]:
        """A line for each of the given bins of no column of numbers."""
        numbers, categories = list[str](), list[str]()
        for name, column in self.features.items():
            if self.checks[name].problem is not None:
                numbers.append(name)  # its own line says more
            elif isinstance(column, DateColumn):
                numbers += [f"{name}.{part}" for part in self.data.columns[name].wanted]
            else:
                known = isinstance(column.decided, CategoryColumn)
                (categories if known else numbers).append(name)
        yield from wrong_bins(f"{self.source.name}: data.bins", self.data.bins, numbers, categories)

    def described(self, name: str) -> ValidatedColumn:
        checked = self.roles.ids[0] if name in self.roles.ids else name
        broken = self.checks[checked].problem is not None if checked in self.checks else False
        if name in self.roles.ids:
            return ValidatedColumn(name, "id", "refused" if broken else "id")
        if name in self.data.labels:
            known = name in self.labels and not broken
            share = _share(self.labels[name].missing) if known else None
            return ValidatedColumn(name, "label", "refused" if broken else "number", share)
        beside = {column: role for role, column in self.roles.beside_label.items()}
        if name in beside:
            return ValidatedColumn(name, beside[name], "refused" if broken else "number")
        if name not in self.features:
            return ValidatedColumn(name, "ignored", "not read")
        if broken:
            return ValidatedColumn(name, "feature", "refused")
        column = self.features[name]
        share = _share(column.missing)
        if isinstance(column, DateColumn):
            return ValidatedColumn(name, "feature", "date", share)
        if isinstance(column.decided, CategoryColumn):
            count = len(column.decided.categories)
            return ValidatedColumn(name, "feature", "category", share, count)
        return ValidatedColumn(name, "feature", "number", share)


def validate_source(
    party: str,
    data: DataSection,
    labelled: bool,
    on_rows: Callable[[int, int | None], None] = lambda _, __: None,
) -> Validation:
    """Read the source of ``party`` once, to its end.

    ``on_rows`` is called with the number of rows read so far, and the total if known.

    Raises:
        DataError: the source cannot be read at all, or lacks a column.
    """
    rows, unlabelled_at = 0, dict[str, str]()
    with source_of(party, data) as source:
        columns = _Columns(source, data, Roles.of(source, data, labelled))
        warnings = SourceWarnings(source, columns.roles)
        for batch in source.batches(columns.roles.all):
            warnings.look_at(batch)
            for name, check in columns.checks.items():
                check.run_on(batch.cells[name], batch)
            unlabelled_at = columns.unlabelled(batch) | unlabelled_at
            rows += len(batch.numbers)
            on_rows(rows, source.rows)
        refused = [check.problem for check in columns.checks.values() if check.problem is not None]
        refused += [*columns.refused_beside(), *columns.refused_bins()]
        again = columns.ids.repeated()
        if columns.checks[columns.roles.ids[0]].problem is None:
            try:
                columns.ids.rows()
            except DataError as error:
                refused.append(str(error))
        for name, place in unlabelled_at.items():
            if columns.checks[name].problem is None:
                unlabelled = int(columns.labels[name].missing.sum())
                refused.append(f"{place}, column {name!r} is empty{_more(unlabelled)}")
        return Validation(
            place=data.place,
            rows=rows,
            repeated=len(again),
            repeated_ids=tuple(dict.fromkeys(name for name, _ in again))[:_SHOWN],
            duplicates=data.duplicates,
            columns=tuple(columns.described(name) for name in source.columns),
            refused=tuple(refused),
            warnings=(*warnings.lines(), *columns.warnings(rows)),
        )


def _more(rows: int) -> str:
    return (
        f", and of {rows - 1} further rows; a training needs all labels"
        if rows > 1
        else ("; a training needs all labels")
    )


def _share(missing: Any) -> float:
    return round(float(np.mean(missing)), 6) if len(missing) else 0.0


def _is_constant(column: FeatureColumn | DateColumn) -> bool:
    """Whether each of its features has one value in all rows; a missing one is another."""
    told = column.decided if isinstance(column, FeatureColumn) else column
    return all(feature.min() == feature.max() for feature in told.vectors())


def _of_categories(name: str, column: FeatureColumn) -> str:
    """The likely type of undeclared category columns."""
    decided = column.decided
    if isinstance(decided, CategoryColumn) and not decided.declared:
        return likely_meaning(name, decided.categories)
    return ""


def _alike(column: FeatureColumn) -> Iterator[str]:
    """The first two categories that a person would read as the same."""
    seen: dict[str, str] = {}
    decided = column.decided
    for category in decided.categories if isinstance(decided, CategoryColumn) else ():
        other = seen.setdefault(" ".join(category.casefold().split()), category)
        if other != category:
            yield (
                f"has the categories {other[:40]!r} and {category[:40]!r}, which differ in "
                "capitals or spaces alone; write them alike"
            )
            return


def _of_labels(where: str, label: LabelColumn) -> list[str]:
    """Oddities of the labels: a single class, or 1 and 2."""
    found = np.unique(label.values[~label.missing])
    if len(found) == 1:
        return [f"{where}: every label is {found[0]:g}; there is nothing to learn"]
    if found.tolist() == [1, 2]:
        return [f"{where}: labels are 1 and 2; binary:logistic takes 0 and 1, so subtract 1"]
    return []


class SourceWarnings:
    """Checks the batches of ``source``, and keeps the first place of each oddity."""

    def __init__(self, source: Source, roles: Roles) -> None:
        self._source = source
        self._roles = roles
        self._found: dict[str, str] = {}

    def look_at(self, batch: Batch) -> None:
        """Take the next rows."""
        for ids in (batch.cells[column] for column in self._roles.ids):
            self._note(
                ids,
                batch,
                "id {!r} was written as a decimal number",
                _AS_DECIMAL.fullmatch,
                "store ids as text",
            )
            self._note(
                ids,
                batch,
                "id {!r} was rounded by a spreadsheet",
                _AS_POWER.fullmatch,
                "store ids as text, and export them anew",
            )
            self._note(
                ids,
                batch,
                "id {!r} has leading zeros",
                _LEADING_ZERO.fullmatch,
                "spreadsheets drop them: ask the other parties whether their ids still have them",
            )
        for name, cells in batch.cells.items():
            self._note(
                cells,
                batch,
                f"column {name!r} holds a NUL character: {{!r}}",
                _has_nul,
                "export the table anew",
            )

    def lines(self) -> list[str]:
        """A line for each oddity."""
        unnamed = [
            f"{self._source.name}: column {place} has no name: is it the index of a data frame? "
            f"Leave it out with ignore = [{name!r}]"
            for place, name in enumerate(self._source.columns, start=1)
            if name in self._roles.features and _UNNAMED.fullmatch(name)
        ]
        return [*unnamed, *self._found.values()]

    def _note(
        self,
        cells: Sequence[Any] | Any,
        batch: Batch,
        what: str,
        is_odd: Callable[[str], Any],
        remedy: str,
    ) -> None:
        if what in self._found:
            return
        for place, cell in enumerate(cells):
            if isinstance(cell, str) and is_odd(cell):
                where = f"{self._source.name}, {self._source.unit} {batch.numbers[place]}"
                self._found[what] = f"{where}: {what.format(cell[:40])}; {remedy}"
                return


def _has_nul(cell: str) -> bool:
    return "\x00" in cell
