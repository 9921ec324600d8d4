"""In which order does an owner show a node's candidates?

At random, so that a number says nothing of column and bin; but canonical among candidates that part
the node's rows into as many and as many. Candidates that part the rows alike are always among them,
so that the lowest number of those whose sums tie is XGBoost's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable

__all__ = ["CountLeft", "shown_order"]


@dataclass(frozen=True, slots=True, eq=False)
class CountLeft:
    """How many of each node's ``rows`` go left per candidate: int64 (nodes, candidates)."""

    label: ClassVar[str] = "CountLeft"
    bins: BinMatrix
    candidates: CandidateTable
    nodes: Sequence[NDArray[np.int32]]

    def run(self) -> NDArray[np.int64]:
        cuts = self.bins.cuts
        counts = np.zeros((len(self.nodes), cuts.n_cells, 1), np.int64)
        features = np.unique(self.candidates.feature).tolist()
        for node, rows in enumerate(self.nodes):
            for feature in features:
                first, stop = cuts.first_cell[feature], cuts.first_cell[feature + 1]
                counts[node, first:stop, 0] = np.bincount(
                    self.bins.codes[:, feature].take(rows), minlength=int(stop - first)
                )
        return self.candidates.left_sums(counts)[..., 0]


def shown_order(
    left: NDArray[np.int64], rows: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """A permutation of the candidates of a node with ``rows`` rows, ``left`` (candidates,) of each.

    Random, but canonical among those with the same pair of rows left and right, either way round.
    """
    order = random.permutation(len(left))
    smaller = np.minimum(left, rows - left)
    # Places and candidates, both by class: the places of a class are filled canonically.
    places = np.argsort(smaller[order], kind="stable")
    order[places] = np.argsort(smaller, kind="stable")
    return order
