"""What do a training's parameters ask of columns, and whose columns are they?

They name the label holder's own columns, and another party's as ``party.column``. Interaction
constraints may also name groups of columns that an owner's file defines, and ``*``, all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, Refused
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import Engine
from fedmq.protocol.training.category_columns import category_places
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = ["ALL_COLUMNS", "ColumnConstraints", "KeptConstraints", "kept_constraints"]

ALL_COLUMNS = "*"


class ColumnConstraints:
    """The constraints of a training of ``party`` with ``peers``, over its own ``table``.

    Raises:
        ConfigError: a column does not exist, or ``engine`` cannot keep a constraint.
    """

    def __init__(
        self,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
    ) -> None:
        self._party = party
        self._table = table
        self._asked: dict[str, dict[str, int]] = {name: {} for name in (party, *peers)}
        for name, sign in params.monotone_constraints.items():
            owner, column = self._owner(name, "monotone_constraints")
            if sign:
                self._asked[owner][column] = sign
        self._together = self._parted(params.interaction_constraints)
        self.signs = _signs(party, table.features, table.signs, self._asked[party])
        """Of the own columns: int8 (columns,)."""
        self.interactions = _interactions(party, table, self._together[party])
        """Of the own columns, which interaction constraints hold them: uint64 (columns,)."""
        if params.max_cat_to_onehot is not None:
            _check_categories(party, table, self.signs, self.interactions)
        if self.signs.any() and not engine.scores_candidates:
            raise ConfigError(f"engine {engine.name} keeps no monotone constraint of {party}")

    def hold(self, signed: Sequence[str]) -> bool:
        """Whether some column is under a monotone constraint, here or at ``signed`` peers."""
        return bool(signed) or bool(self.signs.any())

    def opening(self, peer: str, terms: TrainingOpen) -> TrainingOpen:
        """``terms`` for ``peer``: what others are asked of their columns is not for it."""
        asked = {"signs": self._asked[peer], "together": self._together[peer]}
        return terms.model_copy(update=asked)

    def _parted(
        self, constraints: Sequence[Sequence[str | int]]
    ) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Of each party the names in each interaction constraint."""
        named = [
            [self._owner(name, "interaction_constraints") for name in constraint]
            for constraint in constraints
        ]
        return {
            party: tuple(
                tuple(name for owner, name in constraint if owner == party) for constraint in named
            )
            for party in self._asked
        }

    def _owner(self, name: str | int, parameter: str) -> tuple[str, str]:
        own = self._table.features
        if isinstance(name, int):
            if not 0 <= name < len(own):
                raise ConfigError(
                    f"{parameter}: {self._party} has no column number {name}, it has {len(own)}; "
                    "another party's is named as party.column"
                )
            return self._party, own[name]
        if name in own or (parameter == "interaction_constraints" and self._is_group(name)):
            return self._party, name
        party, _, column = name.partition(".")
        if column and party in self._asked and party != self._party:
            return party, column
        raise ConfigError(
            f"{parameter}: {self._party} has no column {name!r}; another party's is named as "
            "party.column"
        )

    def _is_group(self, name: str) -> bool:
        """Whether it is a group of own columns, or an own column of categories."""
        categories = any(feature.startswith(f"{name}=") for feature in self._table.features)
        return categories or name in (ALL_COLUMNS, *self._table.column_groups)


def _signs(
    party: str, columns: Sequence[str], own: Mapping[str, int], asked: Mapping[str, int]
) -> NDArray[np.int8]:
    """The sign of each of the ``columns`` of ``party``: int8 (columns,).

    ``own`` signs are those of its file, ``asked`` those of the training's parameters.

    Raises:
        ConfigError: a column does not exist, or has two signs.
    """
    signs = np.zeros(len(columns), np.int8)
    for where, named in (("monotone", own), ("monotone_constraints", asked)):
        for column, sign in named.items():
            place = _place(party, columns, column, where)
            if signs[place] == -sign:
                raise ConfigError(
                    f"{where}: column {column!r} has sign {sign}, and {-sign} in the file of "
                    f"{party}"
                )
            signs[place] = sign
    return signs


def _interactions(
    party: str, table: ActiveTable | PassiveTable, constraints: Sequence[Sequence[str]]
) -> NDArray[np.uint64]:
    """Which of the ``constraints`` hold each column of ``party``, as bits: uint64 (columns,).

    Raises:
        ConfigError: a column or group does not exist, or a column has the name of a group.
    """
    columns = table.features
    groups: dict[str, Sequence[str]] = {ALL_COLUMNS: columns, **table.column_groups}
    bits = np.zeros(len(columns), np.uint64)
    for number, names in enumerate(constraints):
        for name in names:
            if name in groups and name in columns:
                raise ConfigError(f"column_groups: {party} has a column {name!r}, too")
            where = "column_groups" if name in groups else "interaction_constraints"
            for column in groups.get(name, (name,)):
                bits[_places(party, columns, column, where)] |= np.uint64(1 << number)
    return bits


def _check_categories(
    party: str,
    table: ActiveTable | PassiveTable,
    signs: NDArray[np.int8],
    interactions: NDArray[np.uint64],
) -> None:
    """Raise `ConfigError` where categories of a column that may be split by sets are set apart."""
    for column, held in category_places(table).items():
        places = list(held)
        if signs[places].any():
            raise ConfigError(
                f"monotone_constraints: {column!r} of {party} holds categories, which "
                "max_cat_to_onehot splits by sets: a set neither rises nor falls"
            )
        if len(np.unique(interactions[places])) > 1:
            raise ConfigError(
                f"interaction_constraints: {column!r} of {party} holds categories, which "
                "max_cat_to_onehot splits by sets: name the column, not some of them"
            )


def _places(party: str, columns: Sequence[str], column: str, where: str) -> list[int]:
    """Where ``column`` stands; of a column of categories, where each of them does."""
    categories = [
        place for place, feature in enumerate(columns) if feature.startswith(f"{column}=")
    ]
    if column not in columns and categories:
        return categories
    return [_place(party, columns, column, where)]


def _place(party: str, columns: Sequence[str], column: str, where: str) -> int:
    if column not in columns:
        raise ConfigError(f"{where}: {party} trains with no column {column!r}")
    return columns.index(column)


@dataclass(frozen=True, slots=True, eq=False)
class KeptConstraints:
    """Of a feature holder's columns: ``signs`` int8 and ``interactions`` uint64 (columns,).

    ``count``: how many interaction constraints the training has.
    """

    signs: NDArray[np.int8]
    interactions: NDArray[np.uint64]
    count: int


def kept_constraints(
    party: str, table: PassiveTable, terms: TrainingOpen, engine: Engine
) -> KeptConstraints:
    """What ``party`` keeps of its columns; Refused where they cannot be kept."""
    try:
        signs = _signs(party, table.features, table.signs, terms.signs)
        interactions = _interactions(party, table, terms.together)
        if terms.max_cat_to_onehot:
            _check_categories(party, table, signs, interactions)
    except ConfigError as error:
        raise Refused(str(error)) from None
    if (signs.any() or terms.together) and not engine.scores_candidates:
        kind = "a monotone constraint" if signs.any() else "interaction constraints"
        raise Refused(f"{party} has columns under {kind}, which engine {engine.name!r} cannot keep")
    return KeptConstraints(signs, interactions, len(terms.together))
