"""Histograms: exact sums of g and h per node, feature and bin.

A histogram is int64 (cells, 2) over the cells of ``Cuts``; several nodes' are (nodes, cells, 2).
Of vector leaves each output has two columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix

__all__ = ["histograms"]


def histograms(
    bins: BinMatrix, gradients: NDArray[np.int64], nodes: Sequence[NDArray[np.integer]]
) -> NDArray[np.int64]:
    """Histograms of ``nodes``, each given by its rows; int64 (nodes, cells, columns).

    ``gradients`` is int64 (rows, columns) as ``FixedPoint.encode`` gives it. ``numpy.bincount``
    sums in float64, which is exact to 53 bits only; ``numpy.add.at`` adds integers, and is the
    faster one.
    """
    cuts = bins.cuts
    sums = np.zeros((gradients.shape[1], len(nodes) * cuts.n_cells), dtype=np.int64)
    rows = np.concatenate([np.asarray(node, np.intp) for node in nodes] or [np.empty(0, np.intp)])
    first = np.repeat(np.arange(len(nodes)) * cuts.n_cells, [len(node) for node in nodes])
    columns = np.ascontiguousarray(gradients[rows].T)
    for feature in range(cuts.n_features):
        cells = first + cuts.first_cell[feature] + bins.codes[rows, feature]
        for summed, column in zip(sums, columns, strict=True):
            np.add.at(summed, cells, column)
    return np.ascontiguousarray(sums.T).reshape(len(nodes), cuts.n_cells, len(sums))
