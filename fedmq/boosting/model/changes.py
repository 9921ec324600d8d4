"""Which smallest change of one owner's own columns would have moved a person's score far enough?

An owner offers what it could change (`OfferedChanges`): for each of its columns one alternative for
each other cell between the model's thresholds, as the directions of the person at its records then.
Alternatives stand in the order of how many of these directions differ, so that nothing is told of
values and thresholds but that. The active party, who has the trees, finds the smallest set of
alternatives that reaches a score (`smallest_change`), while all other columns stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import NONE, ServedForest
from fedmq.boosting.model.tree import LookupTable, text_of
from fedmq.errors import DataError

__all__ = [
    "MOST_COLUMNS",
    "MOST_DIRECTIONS",
    "Alternatives",
    "ChangeRules",
    "Changed",
    "OfferedChanges",
    "TargetScore",
    "offered_changes",
    "smallest_change",
]

MOST_COLUMNS = 3
"""Columns that a change touches at most."""
MOST_DIRECTIONS = 4_000_000
"""Directions of all alternatives together; beyond them the largest changes are left out."""
_AT_ONCE = 2**25  # directions of rows at nodes, a byte each


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """What an owner says of its columns, by name: these stay, and these only rise or only fall.

    ``texts``: what it calls a column, where that is not its name.
    """

    fixed: frozenset[str] = frozenset()
    increase: frozenset[str] = frozenset()
    decrease: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """``column`` int32 (alternatives,), ``left`` bool (alternatives, records); the smallest first.

    Columns are numbered in the order in which records use them.
    """

    column: NDArray[np.int32]
    left: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class OfferedChanges:
    """The alternatives, and in words, which stay with the owner, the column and change of each."""

    alternatives: Alternatives
    told: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TargetScore:
    """A score to be reached: ``score`` or more, or ``score`` or less if not ``above``."""

    score: float
    above: bool

    def reached(self, scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which of ``scores`` (n,) reach it."""
        found: NDArray[np.bool_] = scores >= self.score if self.above else scores <= self.score
        return found


@dataclass(frozen=True, slots=True)
class Changed:
    """The ``numbers`` of the alternatives to take together, and the ``score`` that follows."""

    numbers: tuple[int, ...]
    score: float


def offered_changes(
    table: LookupTable, records: int, row: NDArray[np.float32], rules: ChangeRules
) -> OfferedChanges:
    """What an owner could change for the person of ``row`` (features,), at its first ``records``.

    A column without a value is left out, as are changes that no record notices.

    Raises:
        DataError: a column that only rises, or only falls, is a category.
    """
    base = table.directions(row[np.newaxis], np.zeros(records, np.intp), np.arange(records))
    found: list[tuple[int, int, bytes, NDArray[np.bool_], tuple[str, str]]] = []
    for number, (name, features, used) in enumerate(_columns(table, records)):
        for words, changed in _alternatives(table, used, row, name, features, rules):
            left = base.copy()
            rows = np.zeros(len(used), np.intp)
            left[used] = table.directions(changed[np.newaxis], rows, used)
            crossed = int((left != base).sum())
            if crossed:
                text = text_of(name, rules.texts) or name
                found.append((crossed, number, left.tobytes(), left, (text, words)))
    found.sort(key=lambda one: one[:3])
    # Of alternatives that look alike to the trees the first one stands for all.
    alike = {one[:3]: one for one in reversed(found)}
    kept = [alike[key] for key in sorted(alike)][: MOST_DIRECTIONS // max(1, records)]
    return OfferedChanges(
        Alternatives(
            np.array([one[1] for one in kept], np.int32),
            np.array([one[3] for one in kept], np.bool_).reshape(len(kept), records),
        ),
        tuple(one[4] for one in kept),
    )


def _columns(
    table: LookupTable, records: int
) -> Iterator[tuple[str, tuple[int, ...], NDArray[np.intp]]]:
    """Each column that records split: its name, its features, its records; by first use."""
    place = {
        feature: (name, features)
        for name, features in table.columns.items()
        for feature in features
    }
    of_category: dict[str, tuple[int, ...]] = {}
    for feature, name in enumerate(table.feature_names):
        column, equals, _ = name.partition("=")
        if equals:  # COLUMN=CATEGORY
            of_category[column] = (*of_category.get(column, ()), feature)
    used: dict[str, tuple[tuple[int, ...], list[int]]] = {}
    for record, feature in enumerate(table.feature[:records].tolist()):
        name, features = place[feature]
        if name not in table.category_columns and "=" in name:
            name = name.partition("=")[0]
            features = of_category[name]
        used.setdefault(name, (features, []))[1].append(record)
    for name, (features, own) in used.items():
        yield name, features, np.array(own, np.intp)


def _alternatives(
    table: LookupTable,
    used: NDArray[np.intp],
    row: NDArray[np.float32],
    name: str,
    features: tuple[int, ...],
    rules: ChangeRules,
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The rows that differ from ``row`` in this column alone, each with the change in words."""
    values = row[list(features)]
    if np.isnan(values).any() or _named(name, rules.fixed):
        return
    rises, falls = _named(name, rules.increase), _named(name, rules.decrease)
    is_category = name in table.category_columns or table.feature_names[features[0]] != name
    if is_category:
        if rises or falls:
            key = "increase" if rises else "decrease"
            raise DataError(
                f"data.changes.{key}: column {name!r} is a category, which has no order; name it "
                "in fixed, or not at all"
            )
        for feature in features:
            if row[feature] == 0 and np.isin(values, (0, 1)).all():
                changed = row.copy()
                changed[list(features)] = 0
                changed[feature] = 1
                yield table.feature_names[feature].removeprefix(f"{name}="), changed
        return
    (feature,) = features
    value = row[feature]
    cuts = np.unique(table.threshold[used])
    cuts = cuts[np.isfinite(cuts)]
    for cut in cuts:
        changed = row.copy()
        if cut >= value and not falls:
            changed[feature] = np.nextafter(cut, np.float32(np.inf))
            yield f"more than {cut!s}", changed
        elif cut < value and not rises:
            changed[feature] = cut
            yield f"at most {cut!s}", changed


def _named(column: str, names: Collection[str]) -> bool:
    """Whether ``names`` have the column, or the one that it was made from."""
    return bool(text_of(column, dict.fromkeys(names, "named")))


def smallest_change(
    served: ServedForest,
    left: NDArray[np.bool_],
    owner: int,
    offered: Alternatives,
    target: TargetScore,
) -> Changed | None:
    """The smallest change of ``owner`` with which a person reaches ``target``; None without any.

    ``left`` bool (nodes,): the person's directions now. A change of one column is the smallest
    that there is. Where none suffices the best one is taken and another column added, up to
    ``MOST_COLUMNS``: of several columns there may be a smaller one.
    """
    records = offered.left.shape[1]
    nodes = served.node_of[owner][:records]
    of_record = np.flatnonzero(nodes != NONE)
    nodes = nodes[of_record]
    flips = offered.left[:, of_record] != left[nodes]

    def scored(sets: list[tuple[int, ...]]) -> NDArray[np.float32]:
        scores = np.empty(len(sets), np.float32)
        most = max(1, _AT_ONCE // max(1, len(left)))
        for start in range(0, len(sets), most):
            part = sets[start : start + most]
            there = np.tile(left, (len(part), 1))
            flipped = np.array([flips[list(numbers)].any(axis=0) for numbers in part])
            there[:, nodes] ^= flipped.reshape(len(part), len(nodes))
            scores[start : start + len(part)] = served.scores(served.leaves(there))[1]
        return scores

    taken: tuple[int, ...] = ()
    best = scored([()])[0]
    while len(taken) < MOST_COLUMNS:
        columns = {int(offered.column[number]) for number in taken}
        sets = [
            (*taken, number)
            for number, column in enumerate(offered.column.tolist())
            if column not in columns
        ]
        if not sets:
            return None
        scores = scored(sets)
        reached = np.flatnonzero(target.reached(scores))
        if len(reached):
            return _needed(sets[reached[0]], scored, target)
        furthest = int(scores.argmax() if target.above else scores.argmin())
        if not (scores[furthest] > best if target.above else scores[furthest] < best):
            return None
        taken, best = sets[furthest], scores[furthest]
    return None


def _needed(
    numbers: tuple[int, ...],
    scored: Callable[[list[tuple[int, ...]]], NDArray[np.float32]],
    target: TargetScore,
) -> Changed:
    """``numbers``, which reach the target, without those that it does not take."""
    for number in numbers[:-1]:
        fewer = tuple(other for other in numbers if other != number)
        if target.reached(scored([fewer]))[0]:
            numbers = fewer
    return Changed(numbers, float(scored([numbers])[0]))
