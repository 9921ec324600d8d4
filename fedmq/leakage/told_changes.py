"""What do answers to `fedmq changes` tell the active party of an owner's thresholds and values?

An owner answers as a daemon with ``changes = "told"`` does. The active party asks as it should, for
what moves a score across the median, or it lies and chooses the changes whose thresholds it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.changes import (
    MOST_COLUMNS,
    ChangeRules,
    OfferedChanges,
    TargetScore,
    offered_changes,
    smallest_change,
)
from fedmq.boosting.model.served_forest import NONE, ServedForest
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.errors import DataError
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.thresholds_from_changes import bracket, records_told

__all__ = ["thresholds_from_changes"]

_PEOPLE = 200
_ANSWERS = (1, 20, 140)
"""Of one, of a day and of a week, where the owner says nothing else of `most_changes_per_day`."""


def thresholds_from_changes(
    share: ActiveShare,
    values: NDArray[np.float32],
    tables: Mapping[str, NDArray[np.float32]],
    lookup_tables: Mapping[str, LookupTable],
) -> Iterator[Finding]:
    """By party, how many thresholds 1, 20 and 140 answers tell, and how many cells of people.

    ``values`` (rows, features) are the active party's, ``tables`` those of the others, whose splits
    are in ``lookup_tables``. The first 200 people are asked about. Columns of numbers count.

    Raises:
        DataError: a party's columns are not those of its splits.
    """
    served = ServedForest.of(share)
    values = values[:_PEOPLE]
    left = {
        owner: _all_left(party, lookup_tables[party], tables[party][:_PEOPLE])
        for owner, party in served.asked.items()
    }
    directions = served.directions(values, left)
    scores = served.scores(served.leaves(directions))[1]
    for owner, party in served.asked.items():
        asked = _AskedOwner.of(served, owner, lookup_tables[party], tables[party][:_PEOPLE])
        if asked.splits.any():
            yield from _of_owner(asked, party, directions, scores)


def _all_left(party: str, table: LookupTable, values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether each person goes left at each record: bool (people, records)."""
    if values.shape[1] != len(table.feature_names):
        raise DataError(
            f"{party} has {values.shape[1]} columns, and its lookup table "
            f"{len(table.feature_names)}"
        )
    return table.directions_of_all(values, np.arange(len(table)))


@dataclass(frozen=True, slots=True, eq=False)
class _AskedOwner:
    """An owner that tells changes, and its ``splits`` bool (records,) by numbers in the trees."""

    served: ServedForest
    owner: int
    table: LookupTable
    values: NDArray[np.float32]
    splits: NDArray[np.bool_]

    @classmethod
    def of(
        cls, served: ServedForest, owner: int, table: LookupTable, values: NDArray[np.float32]
    ) -> _AskedOwner:
        nodes = served.node_of[owner]
        of_numbers = np.array(
            [name not in table.category_columns and "=" not in name for name in table.feature_names]
        )
        records = len(nodes)
        splits = (nodes != NONE) & np.isfinite(table.threshold[:records])
        return cls(served, owner, table, values, splits & of_numbers[table.feature[:records]])

    def left(self, person: int) -> NDArray[np.bool_]:
        """The person's directions at the records: bool (records,)."""
        records = np.arange(len(self.splits))
        left: NDArray[np.bool_] = self.table.directions_of_all(self.values[[person]], records)[0]
        return left

    def offer(self, person: int) -> OfferedChanges:
        """What the owner offers for this person."""
        return offered_changes(self.table, len(self.splits), self.values[person], ChangeRules())


def _of_owner(
    asked: _AskedOwner,
    party: str,
    directions: NDArray[np.bool_],
    scores: NDArray[np.float32],
) -> Iterator[Finding]:
    people = len(asked.values)
    everybody, one = list(range(people)), [0] * max(_ANSWERS)
    for attack, whom, persons in (
        ("changes as meant", "people", everybody),
        ("changes by lies", "people", everybody),
        ("changes by lies", "one person", one),
    ):
        lies = attack == "changes by lies"
        known = np.full(len(asked.splits), np.nan, np.float32)
        for answers, person in enumerate(persons, start=1):
            offer = asked.offer(person)
            told = _told(asked, person, offer)
            if lies:
                chosen = _lacking(told, known)
            else:
                chosen = _meant(asked, person, offer, directions, scores)
            for number in chosen:
                known[told[number]] = np.float32(offer.told[number][1].split()[-1])
            if answers in _ANSWERS:
                where = f"{answers} answer{'s' * (answers > 1)} about {whom}"
                right = known == asked.table.threshold[: len(known)]
                share = float(right[asked.splits].mean())
                yield Finding(attack, f"{party}'s thresholds", where, "share", share, 0.0)
                cells, chance = _cells(asked, known)
                target = f"{party}'s cells of {people} people"
                yield Finding(attack, target, where, "share", cells, chance)


def _told(asked: _AskedOwner, person: int, offer: OfferedChanges) -> NDArray[np.bool_]:
    """By alternative, the splits by numbers whose threshold it would tell."""
    alternatives = offer.alternatives
    told = records_told(alternatives.column, alternatives.left, asked.left(person))
    return told & asked.splits


def _lacking(told: NDArray[np.bool_], known: NDArray[np.float32]) -> tuple[int, ...]:
    """The alternatives to choose that tell the most thresholds which are not known yet."""
    news = (told & np.isnan(known)).sum(axis=1)
    best = np.argsort(-news, kind="stable")[:MOST_COLUMNS]
    return tuple(int(number) for number in best if news[number])


def _meant(
    asked: _AskedOwner,
    person: int,
    offer: OfferedChanges,
    directions: NDArray[np.bool_],
    scores: NDArray[np.float32],
) -> tuple[int, ...]:
    """The smallest change that takes the person's score to the other side of the median."""
    middle = float(np.median(scores))
    target = TargetScore(middle, above=bool(scores[person] < middle))
    if target.reached(scores[person : person + 1])[0]:
        return ()
    found = smallest_change(
        asked.served, directions[person], asked.owner, offer.alternatives, target
    )
    return () if found is None else found.numbers


def _cells(asked: _AskedOwner, known: NDArray[np.float32]) -> tuple[float, float]:
    """The share of (person, column) cells found with both bounds as numbers, and by guessing.

    The active party has the person's directions. Where a bound is missing it guesses the cell where
    most people stand, and so does who knows nothing.
    """
    right, chance, judged = 0, 0, 0
    feature, thresholds = asked.table.feature[: len(known)], asked.table.threshold[: len(known)]
    for column in np.unique(feature[asked.splits]).tolist():
        own = asked.splits & (feature == column)
        told = own & ~np.isnan(known)
        values = asked.values[:, column]
        values = values[~np.isnan(values)]
        cells = [bracket(thresholds[own], value <= thresholds[own]) for value in values]
        if not cells:
            continue
        common = max(set(cells), key=cells.count)
        for value, cell in zip(values, cells, strict=True):
            found = bracket(known[told], value <= thresholds[told])
            right += cell in (found, common)
            chance += cell == common
        judged += len(cells)
    return (right / judged, chance / judged) if judged else (0.0, 0.0)
