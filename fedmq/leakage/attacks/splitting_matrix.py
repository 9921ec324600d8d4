"""The active party of SMM-1 takes ``W = M - Z' Z'^T M`` apart: which rows go left of what?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["agreement", "majority", "projected", "rounded"]

Matrix = NDArray[np.float64]

_USED = 1e-6
_ROUNDS = 10


def rounded(hidden: Matrix) -> NDArray[np.bool_]:
    """M (rows, candidates) by the nearer of 0 and 1: right while the projection takes little."""
    return hidden > 0.5


def projected(hidden: Matrix, vectors: Matrix) -> NDArray[np.bool_]:
    """M by rounding what the known null space does not explain, again and again.

    ``vectors`` Z (rows, r) were sent; those in use are orthogonal to W, the others are not. A guess
    of M gives the removed projection, and that gives a better guess.
    """
    lengths = np.linalg.norm(vectors.T @ hidden, axis=1)
    used = vectors[:, lengths < _USED * max(float(np.linalg.norm(hidden)), 1)]
    guess = rounded(hidden)
    for _ in range(_ROUNDS):
        better = rounded(hidden + used @ (used.T @ guess))
        if np.array_equal(better, guess):
            break
        guess = better
    return guess


def agreement(guess: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """The mean share of rows on which a column of ``truth`` agrees with its likest in ``guess``.

    Both (rows, candidates), in any order of columns: candidates are shown in a secret one.
    """
    a, b = truth.astype(np.float64), guess.astype(np.float64)
    equal = a.T @ b + (1 - a).T @ (1 - b)
    return float(equal.max(axis=1, initial=0).mean() / max(len(truth), 1))


def majority(truth: NDArray[np.bool_]) -> float:
    """The success of a guess without any view: the mean share of the more frequent side."""
    left = truth.mean(axis=0)
    return float(np.maximum(left, 1 - left).mean())
