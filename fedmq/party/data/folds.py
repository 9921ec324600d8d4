"""Which rows does each fold of a cross-validation learn from, and on which is it scored?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError

__all__ = ["Fold", "folds_of"]

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Numbers of the rows to learn from, and of those to score."""

Seed = int | NDArray[np.uint32]
"""Of ``numpy.random.RandomState``; an array of words where nobody may guess it."""


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
    """The folds of rows with these labels; those of ``xgb.cv`` for the same arguments.

    ``folds``: pairs of row numbers, or a splitter of scikit-learn. ``groups`` (rows,): rows of one
    group are in one fold. ``stratified`` folds, which need scikit-learn, have the classes' shares.

    Raises:
        ConfigError: ``nfold`` does not fit, or two ways to choose folds are given.
        DataError: a fold is empty, or names rows that do not exist.
    """
    if sum((stratified, folds is not None, groups is not None)) > 1:
        raise ConfigError("cv: stratified, folds and groups are three ways; give one of them")
    if folds is not None:
        found = _given(folds, label)
    elif groups is not None:
        found = _grouped(np.asarray(groups), len(label), nfold, shuffle, seed)
    elif stratified:
        found = _split(_stratified(nfold, seed), label)
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


def _stratified(nfold: int, seed: Seed) -> Any:
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
    # The generator of xgb.cv, so that folds are its own for the same seed.
    return np.random.RandomState(seed).permutation(count) if shuffle else np.arange(count)


def _check_nfold(nfold: int, most: int, what: str) -> None:
    if not 2 <= nfold <= most:
        raise ConfigError(f"cv: nfold = {nfold}; between 2 and {most}, the number of {what}")
