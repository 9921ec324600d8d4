"""Which columns of one table belong to which party?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmq.errors import ConfigError
from fedmq.simulation.active_table import ACTIVE
from fedmq.simulation.training import check_parties

__all__ = ["PartyColumns", "column_names", "is_per_party"]


def is_per_party(X: Any) -> bool:
    """Whether ``X`` is a dict of tables; a sparse matrix may be a dict, too, but has a shape."""
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def column_names(table: Any) -> list[str] | None:
    """The columns' names of a data frame, None of anything else."""
    names = getattr(table, "column_names", None)  # Arrow
    if names is None:
        names = getattr(table, "columns", None)  # pandas, Polars
    return None if names is None else [str(name) for name in names]


@dataclass(frozen=True, slots=True)
class PartyColumns:
    """The columns of each party by their places in the table, the label holder's first."""

    names: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, parties: Any, table: Any, names: Sequence[str]) -> PartyColumns:
        """The columns that ``parties`` names; all others are the label holder's.

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
        """How a training names the column ``name``: another party's as ``party.column``."""
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
