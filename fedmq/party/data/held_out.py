"""The rows that a training holds out, and the folds of a cross-validation.

Every row has a place from 0 to 1, drawn or by its date; each set takes a stretch of places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.job import ByGroup, Split, column_of

__all__ = ["EvaluationShares", "Fold", "folds_of"]

_MOST_CLASSES = 1000

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Numbers of the rows to learn from, and of those to score."""

Seed = int | NDArray[np.uint32]
"""A seed of ``numpy.random.RandomState``; an array of words if it must be unguessable."""


@dataclass(frozen=True, slots=True)
class EvaluationShares:
    """The ``shares`` of the rows by set, and the rule that chooses rows."""

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
        together: Sequence[str] | None = None,
    ) -> dict[str, NDArray[np.bool_]]:
        """The disjoint rows of each set: bool (rows,).

        ``label`` (rows,) or (rows, 2); ``texts`` reads the column of the split, if it has one. Rows
        that are drawn stay ``together`` with those of the same text.

        Raises:
            DataError: a set would be empty, or the column has an empty cell.
        """
        if not self.shares:
            return {}
        places = self._places(party, label, seed, texts, together)
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
        together: Sequence[str] | None,
    ) -> NDArray[np.float64]:
        rows = len(label)
        numbers = np.random.SeedSequence(seed, spawn_key=(rows,))
        drawn = np.random.Generator(np.random.Philox(numbers)).random(rows)
        if self.split == "random":
            return drawn if together is None else drawn[_groups(together)]
        if self.split == "stratified":
            return _stratified(party, label, drawn)
        read = texts()
        if "" in read:
            raise DataError(
                f"{party}, column {column_of(self.split)!r}: row {read.index('') + 1} in the order "
                "of ids is empty; every row needs a value to split by"
            )
        if isinstance(self.split, ByGroup):
            return drawn[_groups(read)]  # a place each: there are no more groups than rows
        return _newest_first(read)


def _groups(texts: Sequence[str]) -> NDArray[np.intp]:
    _, group = np.unique(np.asarray(texts, dtype=object).astype(str), return_inverse=True)
    return group


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


def folds_of(
    label: NDArray[np.float32],
    *,
    nfold: int = 3,
    stratified: bool = False,
    folds: Any = None,
    groups: Any = None,
    shuffle: bool = True,
    seed: Seed = 0,
) -> list[Fold]:
    """The folds of rows with these labels, equal to those of ``xgb.cv`` for the same arguments.

    ``folds``: pairs of row numbers, or a splitter of scikit-learn. ``groups`` (rows,): rows of one
    group are in one fold. ``stratified`` folds, which need scikit-learn, have the classes' shares.

    Raises:
        ConfigError: ``nfold`` does not fit, or two ways to choose folds are given.
        DataError: a fold is empty, or names rows that do not exist.
    """
    if sum((stratified, folds is not None, groups is not None)) > 1:
        raise ConfigError("cv: stratified, folds and groups are alternatives; give only one")
    if folds is not None:
        found = _given(folds, label)
    elif groups is not None:
        found = _grouped(np.asarray(groups), len(label), nfold, shuffle, seed)
    elif stratified:
        found = _split(_stratified_folds(nfold, seed), label)
    else:
        _check_nfold(nfold, len(label), "rows")
        order = _order(len(label), shuffle, seed)
        found = _complements(np.array_split(order, nfold))
    for number, (train, test) in enumerate(found):
        if not len(train) or not len(test):
            raise DataError(f"cv: fold {number} has no rows to learn from, or none to score")
    return found


def _given(folds: Any, label: NDArray[np.float32]) -> list[Fold]:
    if hasattr(folds, "split"):
        return _split(folds, label)
    found = []
    for number, (train, test) in enumerate(folds):
        pair = np.asarray(train), np.asarray(test)
        for rows in pair:
            inside = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows)
            if not inside or rows.min() < 0 or rows.max() >= len(label):
                raise DataError(
                    f"cv: fold {number} names no rows, or some that do not exist; numbers of rows "
                    f"from 0 to {len(label) - 1} are needed"
                )
        found.append(pair)
    return found


def _split(splitter: Any, label: NDArray[np.float32]) -> list[Fold]:
    try:
        return [(train, test) for train, test in splitter.split(X=label, y=label)]
    except ValueError as error:
        raise ConfigError(f"cv: {error}") from None


def _stratified_folds(nfold: int, seed: Seed) -> Any:
    try:
        from sklearn.model_selection import StratifiedKFold
    except ImportError:
        raise ConfigError(
            "cv: stratified folds need scikit-learn; run: pip install 'fedmq[sklearn]'"
        ) from None
    return StratifiedKFold(n_splits=nfold, shuffle=True, random_state=np.random.RandomState(seed))


def _grouped(groups: NDArray[Any], rows: int, nfold: int, shuffle: bool, seed: Seed) -> list[Fold]:
    """Groups dealt out in turn, the largest first, each to the fold with the fewest rows."""
    if groups.shape != (rows,):
        raise DataError(f"cv: groups has shape {groups.shape}, one value per row is needed")
    names, group = np.unique(groups, return_inverse=True)
    _check_nfold(nfold, len(names), "groups")
    sizes = np.bincount(group)
    order = _order(len(names), shuffle, seed)
    fold_of, filled = np.empty(len(names), np.intp), np.zeros(nfold, np.intp)
    for name in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[name] = np.argmin(filled)
        filled[fold_of[name]] += sizes[name]
    return _complements([np.flatnonzero(fold_of[group] == fold) for fold in range(nfold)])


def _complements(tests: Sequence[NDArray[np.intp]]) -> list[Fold]:
    """Each fold learns from the rows of all others."""
    return [
        (np.concatenate([rows for other, rows in enumerate(tests) if other != fold]), test)
        for fold, test in enumerate(tests)
    ]


def _order(count: int, shuffle: bool, seed: Seed) -> NDArray[np.intp]:
    # The generator of xgb.cv, so the same seed gives the same folds.
    return np.random.RandomState(seed).permutation(count) if shuffle else np.arange(count)


def _check_nfold(nfold: int, limit: int, what: str) -> None:
    if not 2 <= nfold <= limit:
        raise ConfigError(f"cv: nfold = {nfold}; between 2 and {limit}, the number of {what}")
