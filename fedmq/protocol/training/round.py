"""Which margins has a round, whose trees all grow from the same gradients?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams

__all__ = ["Round"]


class Round:
    """The ``margin`` that a round begins with, and what its trees have added so far.

    float32 (rows,), or (rows, classes). The gradients of all its trees are those of the margins at
    the beginning.
    """

    def __init__(self, margin: NDArray[np.float32], params: TrainParams) -> None:
        self.margin = margin
        self._params = params
        self._added: list[NDArray[np.float32]] = []

    def add(self, increments: NDArray[np.float32]) -> None:
        """The next tree adds ``increments`` (rows,); after the last one a new round begins."""
        self._added.append(increments)
        if len(self._added) < self._params.trees_per_round:
            return
        columns = self.margin.reshape(len(self.margin), -1).copy()
        for tree, added in enumerate(self._added):  # one by one, as XGBoost adds them
            columns[:, self._params.output_of(tree)] += added
        self.margin = columns.reshape(self.margin.shape)
        self._added = []

    def saved(self) -> NDArray[np.float32]:
        """What a checkpoint keeps: the margin, beside it what the trees so far have added.

        float32 (rows,) where a round is one tree, else (rows, outputs + trees so far).
        """
        if self._params.trees_per_round == 1:
            return self.margin
        return np.column_stack((self.margin, *self._added))

    def restore(self, saved: NDArray[np.float32]) -> None:
        """Go on from what a checkpoint kept; its shape may be lost."""
        columns = saved.reshape(len(self.margin), -1)
        outputs = self._params.outputs
        self.margin = np.ascontiguousarray(columns[:, :outputs]).reshape(self.margin.shape)
        self._added = list(columns[:, outputs:].T)
