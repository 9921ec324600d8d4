"""Which rows does a training hold out?

Every row has a place from 0 to 1, drawn or by its date; each set takes a stretch of places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.split import ByGroup, Split, column_of

__all__ = ["EvaluationShares"]

_MOST_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class EvaluationShares:
    """The ``shares`` of the rows by set, and how they are chosen."""

    shares: Mapping[str, float]
    split: Split = "random"

    @classmethod
    def of(cls, evaluation: float | Mapping[str, float], split: Split) -> Self:
        """``evaluation`` is one share, of the set "eval", or several by name."""
        if isinstance(evaluation, Mapping):
            return cls(evaluation, split)
        return cls({"eval": evaluation} if evaluation else {}, split)

    def sets(
        self,
        party: str,
        label: NDArray[np.float32],
        seed: int,
        texts: Callable[[], Sequence[str]],
    ) -> dict[str, NDArray[np.bool_]]:
        """The rows of each set, none of them in two: bool (rows,).

        ``label`` (rows,) or (rows, 2); ``texts`` reads the column of the split, if it has one.

        Raises:
            DataError: a set would be empty, or the column has an empty cell.
        """
        if not self.shares:
            return {}
        places = self._places(party, label, seed, texts)
        sets, below = {}, 0.0
        for name, share in self.shares.items():
            sets[name] = (places >= below) & (places < below + share)
            below += share
            if not sets[name].any():
                raise DataError(
                    f"{party}: evaluation = {share} holds out no row of {len(label)}; "
                    "take a larger share, or leave it out"
                )
        return sets

    def _places(
        self,
        party: str,
        label: NDArray[np.float32],
        seed: int,
        texts: Callable[[], Sequence[str]],
    ) -> NDArray[np.float64]:
        rows = len(label)
        numbers = np.random.SeedSequence(seed, spawn_key=(rows,))
        drawn = np.random.Generator(np.random.Philox(numbers)).random(rows)
        if self.split == "random":
            return drawn
        if self.split == "stratified":
            return _stratified(party, label, drawn)
        read = texts()
        if "" in read:
            raise DataError(
                f"{party}, column {column_of(self.split)!r}: row {read.index('') + 1} in the order "
                "of ids is empty; every row needs a value to split by"
            )
        if isinstance(self.split, ByGroup):
            _, group = np.unique(np.asarray(read, dtype=object).astype(str), return_inverse=True)
            return drawn[group]  # a place for each group: there are no more groups than rows
        return _newest_first(read)


def _stratified(
    party: str, label: NDArray[np.float32], drawn: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Places that are spread evenly over the rows of each class."""
    classes = np.unique(label, axis=0)
    if label.ndim > 1 or len(classes) > _MOST_CLASSES:
        raise DataError(
            f'{party}: split = "stratified" needs classes, and the label has '
            f"{len(classes):,} values"
        )
    places = np.empty(len(label))
    for value in classes:
        rows = np.flatnonzero(label == value)
        places[rows[np.argsort(drawn[rows])]] = np.arange(len(rows)) / len(rows)
    return places


def _newest_first(texts: Sequence[str]) -> NDArray[np.float64]:
    """The share of rows with a later date, or a larger number; rows of one date share a place."""
    try:
        values = np.array([float(text) for text in texts])
    except ValueError:
        values = np.asarray(texts, dtype=object).astype(str)  # as in 2026-11-22: by the alphabet
    ascending = np.sort(values)
    later = len(values) - np.searchsorted(ascending, values, side="right")
    return later / len(values)
