"""A party's table: float32 features by id, from any source.

A column may also be read as text, to group or date people without learning from it.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import DataError
from fedmq.party.configuration.data import BesideLabel, DataSection
from fedmq.party.data.columns import (
    BesideColumns,
    CategoryColumn,
    DateColumn,
    FeatureColumn,
    LabelColumn,
    NumberSpelling,
)
from fedmq.party.data.id_column import IdColumns
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.sources.source import Source

__all__ = [
    "NO_ID",
    "Roles",
    "Table",
    "feature_column",
    "ids_digest",
    "in_batch",
    "label_column",
    "numbered_columns",
    "read_table",
    "read_text_column",
    "table_of",
]

NO_ID = ""
"""The id of a row of a person whom the party lacks. No table has it: empty ids are refused."""
_SHOWN = 8  # most columns that a message quotes


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows in ascending order of their ids.

    ``values`` float32 (rows, features), NaN is missing; ``label`` float32 (rows,), or (rows, 2) for
    bounds of times, or (rows, labels) of several, None if the party has none; ``weight`` and
    ``base_margin`` float32 (rows,) of its rows, or None. A category column COLUMN is one feature
    ``COLUMN=CATEGORY`` per category, 1 or 0; ``uncategorised`` says for each such column in which
    rows it is missing, and ``category_columns`` which its features are.
    """

    ids: tuple[str, ...]
    features: tuple[str, ...]
    values: NDArray[np.float32]
    label: NDArray[np.float32] | None
    uncategorised: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    weight: NDArray[np.float32] | None = None
    base_margin: NDArray[np.float32] | None = None
    category_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def digest(self, salt: str) -> str:
        """The SHA-256 of the ids, in hex; parties with the same ids have the same digest."""
        return ids_digest(self.ids, salt)

    def fingerprint(self) -> str:
        """The SHA-256 of ids, features and labels, in hex; the source's order does not matter."""
        digest = hashlib.sha256(repr((self.features, len(self.ids))).encode())
        for name in self.ids:
            digest.update(name.encode() + b"\x00")
        digest.update(np.ascontiguousarray(self.values).data)
        beside = {"": self.label, "weight": self.weight, "base_margin": self.base_margin}
        for name, held in beside.items():
            if held is not None:
                digest.update(name.encode() + np.ascontiguousarray(held).tobytes())
        return digest.hexdigest()

    def taken(self, rows: Sequence[int]) -> Table:
        """These rows, in this order."""
        return Table(
            tuple(self.ids[row] for row in rows),
            self.features,
            self.values[rows],
            None if self.label is None else self.label[rows],
            {name: missing[rows] for name, missing in self.uncategorised.items()},
            None if self.weight is None else self.weight[rows],
            None if self.base_margin is None else self.base_margin[rows],
            self.category_columns,
        )

    def with_missing_row(self) -> Table:
        """The table, and as its last row one without an id whose values are all missing."""
        missing = np.full((1, len(self.features)), np.nan, np.float32)

        def more(held: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            if held is None:
                return None
            return np.concatenate([held, np.full((1, *held.shape[1:]), np.nan, np.float32)])

        return Table(
            (*self.ids, NO_ID),
            self.features,
            np.concatenate([self.values, missing]),
            more(self.label),
            {name: np.append(without, True) for name, without in self.uncategorised.items()},
            more(self.weight),
            more(self.base_margin),
            self.category_columns,
        )

    def columns(self, names: Sequence[str]) -> NDArray[np.float32]:
        """The features ``names``, float32 (rows, names); KeyError names a missing one.

        A category that does not occur here is a column of zeros.
        """
        places = {name: place for place, name in enumerate(self.features)}
        chosen = np.empty((len(self.values), len(names)), dtype=np.float32)
        for target, name in enumerate(names):
            if name in places:
                chosen[:, target] = self.values[:, places[name]]
            else:
                chosen[:, target] = self._absent_category(name, places)
        return chosen

    def _absent_category(self, name: str, places: Mapping[str, int]) -> NDArray[np.float32]:
        ends = [place for place, letter in enumerate(name) if letter == "="]
        for column in (name[:end] for end in ends):
            if column in self.uncategorised:
                missing = self.uncategorised[column]
                return np.where(missing, np.float32(np.nan), np.float32(0))
            if column in places and np.isnan(self.values[:, places[column]]).all():
                return self.values[:, places[column]]
        raise KeyError(name)


def numbered_columns(
    table: Table, permitted: tuple[str, ...] | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    """The columns that a screen numbers, from 1 on, each with its ``permitted`` features."""
    column_of = {name: column for column, names in table.category_columns.items() for name in names}
    found: dict[str, list[str]] = {}
    for name in table.features:
        if permitted is None or name in permitted:
            found.setdefault(column_of.get(name, name), []).append(name)
    return [(column, tuple(names)) for column, names in found.items()]


def ids_digest(ids: Iterable[str], salt: str) -> str:
    """The SHA-256 of ``ids`` in their order, in hex."""
    digest = hashlib.sha256(salt.encode())
    for name in ids:
        digest.update(b"\x00" + name.encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each column of a source; ``labels`` is empty if they are not read.

    ``beside_label``: columns read with the label, by role.
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    features: tuple[str, ...]
    beside_label: Mapping[BesideLabel, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, data: DataSection, labelled: bool) -> Roles:
        """Raise DataError naming the columns that the source lacks."""
        labels = data.labels if labelled else ()
        beside = data.beside_label if labelled else {}
        of_labels = [("label", column) for column in labels]
        named: list[tuple[str, str]] = [("id", column) for column in data.ids]
        named += [*of_labels, *beside.items()]
        others = (*data.features, *data.ignore, *data.types, *data.columns, *data.reasons)
        named += [("", column) for column in others]
        named += [("changes", column) for column in data.changes.columns]
        lacking = {column: role for role, column in reversed(named) if column not in source.columns}
        if lacking:
            said = [f"{name!r}" + f" ({role})" * bool(role) for name, role in lacking.items()]
            raise DataError(
                f"{source.name}: there is no column {', nor '.join(reversed(said))}; "
                f"{_columns(source.columns, [*reversed(lacking)])}"
            )
        left_out = {*data.ids, *data.labels, *data.beside_label.values(), *data.ignore}
        wanted = data.features or source.columns
        features = tuple(column for column in wanted if column not in left_out)
        return cls(data.ids, labels, features, beside)

    def narrowed(self, wanted: Sequence[str]) -> Roles:
        """A copy with only the feature columns that can yield the features ``wanted``."""
        sources = {*wanted}
        for name in wanted:  # COLUMN=CATEGORY, or COLUMN.PART of a date
            sources |= {name[:end] for end, letter in enumerate(name) if letter in "=."}
        features = tuple(column for column in self.features if column in sources)
        return Roles(self.ids, self.labels, features, self.beside_label)

    @property
    def all(self) -> tuple[str, ...]:
        """All columns to read."""
        beside = self.beside_label.values()
        return tuple(dict.fromkeys((*self.ids, *self.labels, *beside, *self.features)))


def _columns(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """A short list of the existing columns, and the likely intended ones."""
    some = ", ".join(map(repr, columns[:_SHOWN]))
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    meant = ", ".join(repr(name) for key in wanted for name in _near(columns, key))
    return f"there are {some}{more}" + f"; did you mean {meant}?" * bool(meant)


def _near(columns: Sequence[str], wanted: str) -> list[str]:
    """The column that was likely intended, if there is one."""
    spelt = {name.strip().lower(): name for name in columns}
    key = wanted.strip().lower()
    within = [name for name in spelt if key in re.split(r"[^a-z0-9]+", name)]
    near = within if len(within) == 1 else difflib.get_close_matches(key, list(spelt), n=1)
    return [spelt[name] for name in near]


@computation("ReadTable")
def read_table(
    where: str,
    data: DataSection,
    check_label: Callable[[NDArray[np.float64], str], NDArray[np.float32]] | None = None,
    wanted: tuple[str, ...] | None = None,
) -> Table:
    """Read ``data`` at the party ``where``; the label column only with a check for it.

    ``check_label`` takes the labels in the order of the source and their place for messages, and
    returns float32. ``wanted``: features to read; all when left out. Raises DataError naming party,
    place, row and column.
    """
    with source_of(where, data) as source:
        roles = Roles.of(source, data, check_label is not None)
        if wanted is not None:
            roles = roles.narrowed(wanted)
        return table_of(source, data, roles, check_label)


def table_of(
    source: Source,
    data: DataSection,
    roles: Roles,
    check_label: Callable[[NDArray[np.float64], str], NDArray[np.float32]] | None = None,
) -> Table:
    """All rows of the open ``source``, as ``data`` describes them.

    ``check_label`` is the one of ``read_table``.

    Raises:
        DataError: naming the source, row and column.
    """
    ids = IdColumns(source.name, source.unit, data)
    labels = {name: label_column(name, data) for name in roles.labels}
    beside = BesideColumns(source.name, roles.beside_label, data)
    features = {name: feature_column(name, data) for name in roles.features}
    for batch in source.batches(roles.all):
        where = in_batch(source, batch.numbers)
        ids.take(batch.cells, batch.numbers)
        for name, label in labels.items():
            label.take(batch.cells[name], where)
        beside.take(batch.cells, where)
        for name, column in features.items():
            column.take(batch.cells[name], where)
    rows = ids.rows()
    checked = None
    if check_label is not None:
        found = [label.values for label in labels.values()]
        given = beside.joined(found[0]) if len(found) == 1 else np.stack(found, axis=1)
        where_read = f"{source.name}, column {' and '.join(map(repr, labels))}"
        checked = check_label(given, where_read)[rows]
    decided = {
        name: column.decided if isinstance(column, FeatureColumn) else column
        for name, column in features.items()
    }
    features.clear()
    names: list[str] = []
    uncategorised = {}
    category_columns = {}
    for name, own in decided.items():
        names += own.features
        if isinstance(own, CategoryColumn):
            uncategorised[name] = own.missing[rows]
            category_columns[name] = own.features
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise DataError(f"{source.name}: column {twice!r} is a category of another as well")
    values = np.empty((len(rows), len(names)), dtype=np.float32)
    place = 0
    for name in tuple(decided):  # a column's batches go before the next one is copied
        for vector in decided.pop(name).vectors():
            values[:, place] = vector[rows]
            place += 1
    weight, base_margin = beside.checked("weight"), beside.checked("base_margin")
    return Table(
        tuple(ids.values(rows)),
        tuple(names),
        values,
        checked,
        uncategorised,
        None if weight is None else weight[rows],
        None if base_margin is None else base_margin[rows],
        category_columns,
    )


def feature_column(name: str, data: DataSection) -> FeatureColumn | DateColumn:
    """An empty column of the type that ``data`` declares for it."""
    section = data.columns.get(name)
    if section is not None and section.kind == "date":
        return DateColumn(name, data.missing, section)
    declared = data.types.get(name) if section is None else section.kind
    assert declared != "date"
    spelling = NumberSpelling.of(data)
    return FeatureColumn(name, data.missing, data.max_categories, declared, spelling)


def label_column(name: str, data: DataSection) -> LabelColumn:
    """An empty label column."""
    return LabelColumn(name, data.missing, NumberSpelling.of(data), data.label_classes)


def in_batch(source: Source, numbers: Sequence[int]) -> Callable[[int], str]:
    """From the index of a cell in a batch with these row ``numbers`` to its place, for messages."""
    return lambda index: f"{source.name}, {source.unit} {numbers[index]}"


@computation("ReadTextColumn")
def read_text_column(where: str, data: DataSection, column: str) -> dict[str, str]:
    """The text of each id in ``column`` of ``data`` at the party ``where``; an empty cell is "".

    Raises:
        DataError: there is no such column, or an id is missing or repeated against the rule.
    """
    texts: list[str] = []
    with source_of(where, data) as source:
        for wanted in (*data.ids, column):
            if wanted not in source.columns:
                known = ", ".join(map(repr, source.columns[:8]))
                raise DataError(f"{source.name}: there is no column {wanted!r}; there are {known}")
        ids = IdColumns(source.name, source.unit, data)
        for batch in source.batches(list(dict.fromkeys((*data.ids, column)))):
            ids.take(batch.cells, batch.numbers)
            cells = batch.cells[column]
            values = cells.tolist() if isinstance(cells, np.ndarray) else cells
            texts += ["" if value is None else str(value).strip() for value in values]
    rows = ids.rows()
    return dict(zip(ids.values(rows), (texts[row] for row in rows.tolist()), strict=True))
