"""The parties' columns of one table, in the training and afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.party.data.data_frame import feature_table, party_features, trained_columns
from fedmq.simulation.repeated_ids import by_person
from fedmq.simulation.signs import by_name, columns_of, in_order
from fedmq.simulation.simulate import check_parties
from fedmq.simulation.tables import ACTIVE, MatchedRows, by_index, has_own_index

__all__ = ["PartyColumns", "TrainedColumns", "column_names", "is_per_party"]

_Values = dict[str, NDArray[np.float32]]


def is_per_party(X: Any) -> bool:
    """Whether ``X`` is a dict of tables; a sparse matrix may also be a dict, but has a shape."""
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def column_names(table: Any) -> list[str] | None:
    """The column names of a data frame, or None."""
    names = getattr(table, "column_names", None)  # Arrow
    if names is None:
        names = getattr(table, "columns", None)  # pandas, Polars
    return None if names is None else [str(name) for name in names]


@dataclass(frozen=True, slots=True)
class PartyColumns:
    """The columns of each party by their places in the table, the active party's first."""

    names: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, parties: Any, table: Any, names: Sequence[str]) -> PartyColumns:
        """The columns that ``parties`` names; all others are the active party's.

        A party's columns are given as scikit-learn's ``ColumnTransformer`` takes them: names or
        places, a slice or a bool mask of places, or a function of the table that returns one of
        these.

        Raises:
            ConfigError: a column does not exist, or belongs to two parties.
        """
        parties = {} if parties is None else parties
        check_parties(parties)
        owners: dict[int, str] = {}
        for party, columns in parties.items():
            chosen = columns(table) if callable(columns) else columns
            for place in _places(party, chosen, names):
                if place in owners:
                    raise ConfigError(
                        f"parties: column {names[place]!r} is given to {owners[place]} and {party}"
                    )
                owners[place] = party
        places = {
            party: tuple(place for place in range(len(names)) if owners.get(place, ACTIVE) == party)
            for party in (ACTIVE, *parties)
        }
        return cls(tuple(names), places)

    def tables(self, table: Any) -> dict[str, Any]:
        """The part of ``table``, an array or a data frame, that each party holds."""
        if column_names(table) is None:
            return {party: table[:, list(places)] for party, places in self.places.items()}
        labels = list(getattr(table, "column_names", None) or table.columns)
        chosen = {
            party: [labels[place] for place in places] for party, places in self.places.items()
        }
        if hasattr(table, "select"):  # Arrow, Polars
            return {party: table.select(columns) for party, columns in chosen.items()}
        return {party: table[columns] for party, columns in chosen.items()}

    def features(self, party: str) -> tuple[str, ...]:
        """The names of a party's columns."""
        return tuple(self.names[place] for place in self.places[party])

    def qualified(self, name: str) -> str:
        """The training's name of the column ``name``: ``party.column`` at another party."""
        for party, places in self.places.items():
            if any(self.names[place] == name for place in places):
                return name if party == ACTIVE else f"{party}.{name}"
        return name


def _places(party: str, columns: Any, names: Sequence[str]) -> Iterable[int]:
    if isinstance(columns, slice) and not isinstance(columns.start or columns.stop, str):
        return range(len(names))[columns]
    given = [columns] if isinstance(columns, str | int) else list(columns)
    if given and all(isinstance(column, bool | np.bool_) for column in given):
        if len(given) != len(names):
            raise ConfigError(
                f"parties: the mask of {party} has {len(given)} places, there are "
                f"{len(names)} columns"
            )
        return np.flatnonzero(given).tolist()
    return [_place(party, column, names) for column in given]


def _place(party: str, column: Any, names: Sequence[str]) -> int:
    if isinstance(column, str):
        if column not in names:
            raise ConfigError(f"parties: {party} is given column {column!r}, which does not exist")
        return names.index(column)
    if isinstance(column, int | np.integer) and -len(names) <= column < len(names):
        return int(column) % len(names)
    raise ConfigError(
        f"parties: {party} is given column {column!r}; names, or places from 0 to "
        f"{len(names) - 1}, are needed"
    )


@dataclass(frozen=True, slots=True)
class TrainedColumns:
    """The ``features`` of each party, the active party's first.

    ``dealt``: the parties' columns of one table; None with a table per party. ``numbered``: the
    table was an array, with numbers instead of column names. ``category_columns``: by party, the
    features of each column of categories. ``hides_people``: in a training the other parties do not
    learn how many rows a person has.
    """

    features: Mapping[str, tuple[str, ...]]
    dealt: PartyColumns | None
    numbered: bool
    category_columns: Mapping[str, Mapping[str, tuple[str, ...]]]
    hides_people: bool = False

    @classmethod
    def of(
        cls, X: Any, parties: Any, beside: Mapping[str, Any], *, hides_people: bool = False
    ) -> tuple[TrainedColumns, _Values, MatchedRows]:
        """The columns of ``X`` by party, each party's features, and what stands beside the rows.

        Raises:
            ConfigError: ``parties`` do not fit the columns.
            DataError: a table is wrong, or rows cannot be matched.
        """
        dealt, names = None, None
        if not is_per_party(X):
            names = column_names(X)
            numbers = [f"f{place}" for place in range(X.shape[1])]
            dealt = PartyColumns.of(parties, X, numbers if names is None else names)
        elif parties is not None:
            raise ConfigError("parties: a table per party is given; no column is left to deal out")
        matched = _matched(X, dealt, beside, hides_people)
        tables = {party: party_features(table, party) for party, table in matched.tables.items()}
        features = {party: held.names for party, held in tables.items()}
        category_columns = {party: held.category_columns for party, held in tables.items()}
        numbered = dealt is not None and names is None
        if dealt is not None and numbered:
            features = {party: dealt.features(party) for party in features}
        values = {party: held.values for party, held in tables.items()}
        return cls(features, dealt, numbered, category_columns, hides_people), values, matched

    def values(
        self, X: Any, beside: Mapping[str, Any], *, trains: bool = False
    ) -> tuple[_Values, MatchedRows]:
        """The features of each party, float32 (rows, features), and the values ``beside`` them.

        ``trains``: they are rows of a training, and so the other parties' may be those of people.

        Raises:
            DataError: ``X`` has other columns, or rows cannot be matched.
        """
        matched = _matched(X, self.dealt, beside, trains and self.hides_people)
        missing = self.features.keys() - matched.tables.keys()
        if missing:
            raise DataError(f"the table of {sorted(missing)[0]} is missing")
        by_place = self.dealt is not None and (self.numbered or column_names(X) is None)
        read = _by_place if by_place else trained_columns
        values = {
            party: read(matched.tables[party], party, features)
            for party, features in self.features.items()
        }
        return values, matched

    def by_column(self) -> list[tuple[str, ...]]:
        """The names in the model, ``party.feature``, of each column's features.

        In the order of the table's columns, or the active party's first with a table per party.
        """
        grouped: dict[str, dict[str, list[str]]] = {}
        for party, features in self.features.items():
            categories = self.category_columns[party]
            column_of = {held: column for column, several in categories.items() for held in several}
            groups = grouped[party] = {}
            for feature in features:
                column = column_of.get(feature, feature)
                groups.setdefault(column, []).append(f"{party}.{feature}")
            for column in categories:  # split by sets, the model has the column itself
                groups[column].append(f"{party}.{column}")
        if self.dealt is None:
            return [tuple(names) for groups in grouped.values() for names in groups.values()]
        owners = {place: party for party, places in self.dealt.places.items() for place in places}
        return [
            tuple(groups.get(name) or groups.get(f"{name}.days") or ())
            for place, name in enumerate(self.dealt.names)
            for groups in (grouped[owners[place]],)
        ]

    def signs(self, given: Any) -> Any:
        """Monotone constraints by the training's names of columns.

        ``given`` by the table's own names, or one for each of its columns in order, also as the
        text in which XGBoost takes them, "(1,0,-1)"; with a table per party in `by_column`'s order.
        """
        dealt = self.dealt
        signs = in_order(given)
        if signs is not None:
            names = dealt.names if dealt else columns_of(self.features, self.category_columns)
            given = by_name(signs, names)
        if dealt is None or not isinstance(given, Mapping):
            return given
        return {dealt.qualified(name): sign for name, sign in given.items()}


def _matched(
    X: Any, dealt: PartyColumns | None, beside: Mapping[str, Any], hides_people: bool
) -> MatchedRows:
    if dealt is not None:
        if is_per_party(X):
            raise DataError("one table is needed, as in fit, not a table per party")
        tables = dealt.tables(X)
        if hides_people:
            return by_person(_of_people(tables), beside, "same")
        return MatchedRows(tables, by_index({ACTIVE: X}, beside).beside)
    if not is_per_party(X) or ACTIVE not in X:
        raise DataError(f"a dict of tables by party is needed, the active party's as {ACTIVE!r}")
    others = {party: table for party, table in X.items() if party != ACTIVE}
    check_parties(others)
    if hides_people:
        return by_person({ACTIVE: X[ACTIVE], **others}, beside, "same")
    return by_index({ACTIVE: X[ACTIVE], **others}, beside)


def _of_people(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of one table: of the active party all rows, of others one for each of its ids.

    Raises:
        ConfigError: the table has no index of ids.
        DataError: rows of one person differ in the columns of another party, which has one row.
    """
    found = dict(tables)
    for party, table in tables.items():
        if party == ACTIVE or not has_own_index(table):
            continue  # who matches people refuses a table without ids
        found[party] = people = table[~table.index.duplicated()]
        same = people.loc[table.index]
        unlike = np.flatnonzero(~((same == table) | (same.isna() & table.isna())).all(axis=1))
        if len(unlike):
            raise DataError(
                f"{party}: rows of {table.index[unlike[0]]!r} differ in its columns; with "
                'duplicates = "hidden" a party has one row of a person'
            )
    return found


def _by_place(table: Any, party: str, features: tuple[str, ...]) -> NDArray[np.float32]:
    values, found = feature_table(table, party)
    if len(found) != len(features):
        raise DataError(
            f"{party}: {len(found)} columns of numbers, {len(features)} features were trained "
            "on; categories need a data frame"
        )
    return values
