"""How do tables like the one that was trained on fall into parties and features?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.estimators.party_columns import PartyColumns, column_names, is_per_party
from fedmq.party.data.data_frame import feature_table, party_features, trained_columns
from fedmq.simulation.active_table import ACTIVE
from fedmq.simulation.row_index import MatchedRows, by_index
from fedmq.simulation.training import check_parties

__all__ = ["TrainedColumns"]

_Values = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class TrainedColumns:
    """The ``features`` of each party, the label holder's first.

    ``dealt``: how the columns of one table are dealt out; None where there is a table per party.
    ``numbered``: that table was an array, whose columns have numbers and no names.
    ``category_columns``: of each party, the features of each column of categories.
    """

    features: Mapping[str, tuple[str, ...]]
    dealt: PartyColumns | None
    numbered: bool
    category_columns: Mapping[str, Mapping[str, tuple[str, ...]]]

    @classmethod
    def of(
        cls, X: Any, parties: Any, beside: Mapping[str, Any]
    ) -> tuple[TrainedColumns, _Values, Mapping[str, Any]]:
        """How ``X`` falls apart, the features of each party, and what stands ``beside`` its rows.

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
        matched = _matched(X, dealt, beside)
        tables = {party: party_features(table, party) for party, table in matched.tables.items()}
        features = {party: held.names for party, held in tables.items()}
        category_columns = {party: held.category_columns for party, held in tables.items()}
        numbered = dealt is not None and names is None
        if dealt is not None and numbered:
            features = {party: dealt.features(party) for party in features}
        values = {party: held.values for party, held in tables.items()}
        return cls(features, dealt, numbered, category_columns), values, matched.beside

    def values(self, X: Any, beside: Mapping[str, Any]) -> tuple[_Values, Mapping[str, Any]]:
        """The features of each party, float32 (rows, features), and what is ``beside``.

        Raises:
            DataError: ``X`` has other columns, or rows cannot be matched.
        """
        matched = _matched(X, self.dealt, beside)
        missing = self.features.keys() - matched.tables.keys()
        if missing:
            raise DataError(f"the table of {sorted(missing)[0]} is missing")
        by_place = self.dealt is not None and (self.numbered or column_names(X) is None)
        read = _by_place if by_place else trained_columns
        values = {
            party: read(matched.tables[party], party, features)
            for party, features in self.features.items()
        }
        return values, matched.beside

    def signs(self, given: Any) -> Any:
        """Monotone constraints by the training's names of columns.

        ``given`` by the table's own names, or one for each of its columns in order.
        """
        dealt = self.dealt
        if dealt is None:
            return given
        if isinstance(given, Sequence) and not isinstance(given, str):
            if len(given) != len(dealt.names):
                raise ConfigError(
                    f"monotone_constraints: {len(given)} signs for {len(dealt.names)} columns"
                )
            given = dict(zip(dealt.names, given, strict=True))
        if not isinstance(given, Mapping):
            return given
        return {dealt.qualified(name): sign for name, sign in given.items()}


def _matched(X: Any, dealt: PartyColumns | None, beside: Mapping[str, Any]) -> MatchedRows:
    if dealt is not None:
        if is_per_party(X):
            raise DataError("one table is needed, as in fit, not a table per party")
        return MatchedRows(dealt.tables(X), by_index({ACTIVE: X}, beside).beside)
    if not is_per_party(X) or ACTIVE not in X:
        raise DataError(f"a dict of tables by party is needed, the label holder's as {ACTIVE!r}")
    others = {party: table for party, table in X.items() if party != ACTIVE}
    check_parties(others)
    return by_index({ACTIVE: X[ACTIVE], **others}, beside)


def _by_place(table: Any, party: str, features: tuple[str, ...]) -> NDArray[np.float32]:
    values, found = feature_table(table, party)
    if len(found) != len(features):
        raise DataError(
            f"{party}: {len(found)} columns of numbers, {len(features)} features were trained "
            "on; categories need a data frame"
        )
    return values
