"""A passive party groups people by the nodes they stood in, and knows some of their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["labels_from_spaces"]


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
