"""How does a passive party guess labels? From nodes, gradients, and the weights of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.privacy.masking import leverages

__all__ = [
    "LeafWeights",
    "bare_rows",
    "exact_counts",
    "label_scores_from_noise",
    "labels_from_signs",
    "labels_from_spaces",
    "leaf_purity",
    "positive_shares",
    "positives_from_weight",
]

_NEGLIGIBLE = 1e-9


def leaf_purity(leaves: Sequence[NDArray[np.integer]], labels: NDArray[np.float32]) -> float:
    """The share of rows whose label is that of their leaf's majority; leaves are given by rows."""
    leaves = [rows for rows in leaves if len(rows)]
    majorities = sum(max(labels[rows].sum(), len(rows) - labels[rows].sum()) for rows in leaves)
    return float(majorities / sum(len(rows) for rows in leaves))


def labels_from_spaces(
    trees: Sequence[Sequence[NDArray[np.integer]]],
    known: NDArray[np.bool_],
    labels: NDArray[np.float32],
) -> NDArray[np.float64]:
    """A score per row (rows,): the mean label of the ``known`` rows it shared its nodes with.

    ``trees`` holds per tree the deepest nodes the attacker saw, as rows. ``labels`` are read only
    where ``known`` (rows,). A node without a known label counts as the average.
    """
    prior = float(labels[known].mean()) if known.any() else 0.5
    scores = np.zeros(len(known))
    for nodes in trees:
        of_tree = np.full(len(known), prior)
        for rows in nodes:
            seen = rows[known[rows]]
            of_tree[rows] = (labels[seen].sum() + prior) / (len(seen) + 1)
        scores += of_tree
    return scores / max(len(trees), 1)


def label_scores_from_noise(
    rows: int, broadcasts: Sequence[tuple[NDArray[np.integer], NDArray[np.number]]]
) -> NDArray[np.float64]:
    """A score per row (rows,), larger for label 1: minus the mean g that was disclosed.

    ``broadcasts``: per tree the rows and their perturbed g. A positive score reads as label 1.
    """
    total, times = np.zeros(rows), np.zeros(rows)
    for carried, gradients in broadcasts:
        total[carried] -= gradients
        times[carried] += 1
    return total / np.maximum(times, 1)


def labels_from_signs(hidden: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Labels (rows,) from the answer W for g (rows,)."""
    return hidden < 0


def bare_rows(vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows in which all ``vectors`` (rows, r) vanish: there W is g itself. bool (rows,)."""
    taken = leverages(vectors)
    return taken <= _NEGLIGIBLE * max(float(taken.mean()), np.finfo(float).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class LeafWeights:
    """``values`` (rows, trees): what each tree adds to each row's margin; and the parameters.

    ``params``: all of them, from which gradients follow. ``leaves`` int64 (rows, trees): the heap
    numbers of the leaves; None where a tree is too deep for them.
    """

    values: NDArray[np.float32]
    eta: float
    reg_lambda: float
    base_score: float
    params: TrainParams | None = None
    leaves: NDArray[np.int64] | None = None


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
