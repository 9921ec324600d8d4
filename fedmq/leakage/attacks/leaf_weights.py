"""What the weights of leaves would say about labels (SecureBoost, Theorems 2 and 3).

Only the label holder knows them. These attacks show what a passive party could do with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams

__all__ = ["LeafWeights", "exact_counts", "positive_shares", "positives_from_weight"]


@dataclass(frozen=True, slots=True, eq=False)
class LeafWeights:
    """``values`` (rows, trees): what each tree adds to each row's margin; and the parameters.

    ``params``: all of them, from which gradients follow.
    """

    values: NDArray[np.float32]
    eta: float
    reg_lambda: float
    base_score: float
    params: TrainParams | None = None


def positives_from_weight(
    weight: float, rows: int, *, eta: float, reg_lambda: float, mean_prediction: float = 0.5
) -> float:
    """The number of positive labels among the ``rows`` of a leaf, from the ``weight`` it adds.

    Of ``-eta G / (H + lambda)`` with ``G = rows p - positives`` and ``H = rows p (1 - p)``. Exact
    in a first tree, where p is the base score for all (Theorem 2); in a later one p is the mean
    prediction in the leaf, which is how far Theorem 3's bound on the purity reaches.
    """
    p = mean_prediction
    return rows * p + weight / eta * (rows * p * (1 - p) + reg_lambda)


def positive_shares(disclosed: LeafWeights, tree: int) -> NDArray[np.float64]:
    """By row (rows,): the share of positive labels in its leaf, as the leaf's weight has it."""
    weights, leaf, rows = np.unique(
        disclosed.values[:, tree], return_inverse=True, return_counts=True
    )
    positives = [
        positives_from_weight(
            float(weight),
            int(count),
            eta=disclosed.eta,
            reg_lambda=disclosed.reg_lambda,
            mean_prediction=disclosed.base_score,
        )
        for weight, count in zip(weights, rows, strict=True)
    ]
    return np.clip(np.asarray(positives) / rows, 0, 1)[leaf]


def exact_counts(disclosed: LeafWeights, tree: int, labels: NDArray[np.float32]) -> float:
    """The share of leaves whose number of positive ``labels`` (rows,) the weight gives exactly."""
    _, leaf = np.unique(disclosed.values[:, tree], return_inverse=True)
    truth = np.bincount(leaf, weights=labels)
    guess = np.bincount(leaf, weights=positive_shares(disclosed, tree))
    return float((np.rint(guess) == truth).mean())
