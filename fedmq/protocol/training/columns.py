"""What do parameters ask of columns, and what do parties disclose of the columns of candidates?

Parameters name the active party's own columns, and another party's as ``party.column``. Interaction
constraints may also name groups of columns that an owner's file defines, and ``*``, all of them.

With the sums of a node, an owner tells of each opaque candidate its sign, which constraints hold
its column, and which candidates are categories of one column: neither columns nor categories have
names. `ColumnMarks` is what an owner shows; `CandidateSigns`, `CandidateConstraints` and
`CandidateCategories` are what the active party keeps of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import ALONE, CandidateTable, ColumnsInPath
from fedmq.errors import ConfigError, ProtocolError, Refused
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.training import HistogramReply, TrainingOpen
from fedmq.privacy.engine import Engine
from fedmq.protocol.training.consistency import ConsistencyCheck
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = [
    "ALL_COLUMNS",
    "CandidateCategories",
    "CandidateConstraints",
    "CandidateSigns",
    "ColumnConstraints",
    "ColumnMarks",
    "KeptConstraints",
    "category_places",
    "columns_by_sets",
    "kept_constraints",
    "shown_categories",
    "shown_constraints",
    "shown_signs",
]


def category_places(table: ActiveTable | PassiveTable) -> Mapping[str, tuple[int, ...]]:
    """By column of categories, where its features stand; ascending."""
    places = {name: place for place, name in enumerate(table.features)}
    columns = {
        column: tuple(sorted(places[name] for name in names if name in places))
        for column, names in table.category_columns.items()
    }
    return {column: held for column, held in columns.items() if held}


def columns_by_sets(table: ActiveTable | PassiveTable, cuts: Cuts) -> dict[str, tuple[int, ...]]:
    """The columns that ``cuts`` of ``table`` split by sets, as a `LookupTable` has them."""
    chosen = {}
    for column, held in category_places(table).items():
        if held in cuts.category_columns:
            occurring = cuts.categories(held)
            chosen[column] = (*occurring, *sorted(set(held) - set(occurring)))
    return chosen


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
        if self.signs.any() and not engine.shows_exact_sums:
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
    """Of a passive party's columns: ``signs`` int8 and ``interactions`` uint64 (columns,).

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
    if (signs.any() or terms.together) and not engine.shows_exact_sums:
        kind = "a monotone constraint" if signs.any() else "interaction constraints"
        raise Refused(f"{party} has columns under {kind}, which engine {engine.name!r} cannot keep")
    return KeptConstraints(signs, interactions, len(terms.together))


# What an owner shows, with the sums of a node.


class ColumnMarks:
    """The marks of columns under constraints, while a tree grows."""

    def __init__(self, constraints: KeptConstraints) -> None:
        self._constraints = constraints
        self._columns = ColumnsInPath(constraints.interactions)

    def split(self, node: int, column: int) -> None:
        """One of the columns splits ``node``."""
        self._columns.split(node, column)

    def shown(self, node: int, columns: NDArray[np.int32]) -> dict[str, Any]:
        """Fields of the first piece of a reply about ``node``, whose candidates are of ``columns``.

        ``columns`` (candidates,) in the order in which candidates are shown.
        """
        kept = self._constraints
        marks: dict[str, Any] = {}
        if kept.signs.any():
            marks |= shown_signs(kept.signs[columns])
        if kept.count:
            shown = self._columns.of(node, columns)
            marks["constraints"] = shown_constraints(shown, kept.count)
        return marks


# Signs, under monotone constraints: one for each candidate, not by which column.


def shown_signs(signs: NDArray[np.int8]) -> dict[str, Bitmap]:
    """The fields of the first piece of a reply that carry ``signs`` (candidates,), as shown."""
    return {"rising": Bitmap.of(signs > 0), "falling": Bitmap.of(signs < 0)}


class CandidateSigns:
    """The signs of candidates as the ``signed`` peers showed them, by peer and node of a tree."""

    def __init__(self, signed: Sequence[str]) -> None:
        self._signed = frozenset(signed)
        self._signs: dict[tuple[str, int], NDArray[np.int8]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the signs in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though the peer announced them, or the other way round.
            Inconsistent: there are more than candidates.
        """
        told = body.rising is not None and body.falling is not None
        if told != (peer in self._signed and body.piece == 0):
            raise ProtocolError(f"signs of the candidates of node {body.node}, out of place")
        if body.rising is None or body.falling is None:
            return
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(max(body.rising.count, body.falling.count), candidates)
        rising, falling = body.rising.numpy(), body.falling.numpy()
        if len(rising) != len(falling) or (rising & falling).any():
            raise ProtocolError(f"signs of the candidates of node {body.node} that contradict")
        self._signs[peer, body.node] = rising.astype(np.int8) - falling.astype(np.int8)

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.int8]:
        """The signs of all that ``peer`` showed in ``node``; zeros where it announced none.

        Raises:
            ProtocolError: there are not as many as candidates.
        """
        signs = self._signs.get((peer, node), np.zeros(candidates, np.int8))
        if peer in self._signed and len(signs) != candidates:
            raise ProtocolError(f"{len(signs)} signs for {candidates} candidates of node {node}")
        return signs


# Interaction constraints: those that hold the column of each candidate; below a split of the root
# by a column in none, which candidates are that column's.


def shown_constraints(constraints: NDArray[np.uint64], count: int) -> tuple[Bitmap, ...]:
    """The field of the first piece of a reply: a bitmap for each of ``count`` constraints, one more
    for a column that is alone. ``constraints`` uint64 (candidates,), as shown.
    """
    bits = [*(np.uint64(1 << number) for number in range(count)), ALONE]
    return tuple(Bitmap.of((constraints & bit) != 0) for bit in bits)


class CandidateConstraints:
    """The constraints of candidates as peers showed them, by peer and node of a tree.

    ``count``: how many the training has; 0 where nobody shows any.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._shown: dict[tuple[str, int], NDArray[np.uint64]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though they are due, or the other way round.
            Inconsistent: there are more than candidates.
        """
        due = self._count + 1 if self._count and body.piece == 0 else 0
        lengths = {bitmap.count for bitmap in body.constraints}
        if len(body.constraints) != due or len(lengths) > 1:
            raise ProtocolError(f"constraints of the candidates of node {body.node}, out of place")
        if not due:
            return
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(max(lengths), candidates)
        shown = np.zeros(max(lengths), np.uint64)
        for number, bitmap in enumerate(body.constraints):
            bit = ALONE if number == self._count else np.uint64(1 << number)
            shown |= np.where(bitmap.numpy(), bit, np.uint64(0))
        self._shown[peer, body.node] = shown

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.uint64]:
        """Those of all that ``peer`` showed in ``node``; zeros where there are no constraints.

        Raises:
            ProtocolError: they are not as many as candidates.
        """
        if not self._count:
            return np.zeros(candidates, np.uint64)
        shown = self._shown[peer, node]
        if len(shown) != candidates:
            raise ProtocolError(
                f"constraints of {len(shown)} candidates, node {node} has {candidates}"
            )
        return shown


# Sets of categories: which candidates are of one column, and in which order its owner has them.


def shown_categories(table: CandidateTable, order: NDArray[np.int64]) -> tuple[Array, ...]:
    """The field of the first piece of a reply; ``order``: which of ``table`` are shown, and how."""
    positions = np.full(len(table), -1, np.int64)
    positions[order] = np.arange(len(order))
    shown = [positions[held] for held in table.categories]
    return tuple(Array.of(held.astype(np.uint32)) for held in shown if (held >= 0).all())


class CandidateCategories:
    """The columns of categories as peers showed them, by peer and node of a tree.

    ``by_sets``: the peers that announced such columns.
    """

    def __init__(self, by_sets: Collection[str]) -> None:
        self._by_sets = frozenset(by_sets)
        self._shown: dict[tuple[str, int], Sequence[NDArray[np.int64]]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: they are out of place, or one candidate stands twice.
            Inconsistent: there are more of them than candidates.
        """
        if not body.categories:
            return
        if peer not in self._by_sets or body.piece:
            raise ProtocolError(f"categories of the candidates of node {body.node}, out of place")
        columns = [array.numpy().astype(np.int64) for array in body.categories]
        together = np.concatenate(columns)
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(int(together.max(initial=-1)) + 1, candidates)
        if min(map(len, columns)) < 2 or len(np.unique(together)) < len(together):
            raise ProtocolError(f"categories of the candidates of node {body.node} that overlap")
        self._shown[peer, body.node] = columns

    def of(self, peer: str, node: int, candidates: int) -> Sequence[NDArray[np.int64]]:
        """Those of all candidates that ``peer`` showed in ``node``.

        Raises:
            ProtocolError: they name candidates that were not shown.
        """
        columns = self._shown.get((peer, node), ())
        if any(int(column.max()) >= candidates for column in columns):
            raise ProtocolError(f"categories of node {node} beyond its {candidates} candidates")
        return columns
