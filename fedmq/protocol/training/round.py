"""Which margins has a round, whose trees all grow from the same gradients?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.privacy.plan import Plan

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

    @property
    def evaluated(self) -> NDArray[np.float32]:
        """The margins that are scored: the same."""
        return self.margin

    @property
    def tree_weights(self) -> tuple[float, ...]:
        """All trees weigh the same."""
        return ()

    def refresh(self) -> Plan[None]:
        """The margins are made as trees are added."""
        yield from ()

    def add(self, increments: NDArray[np.float32]) -> None:
        """The next tree adds ``increments``; after the last one a new round begins.

        (rows,), or (rows, outputs) where leaves are vectors.
        """
        self._added.append(increments)
        if len(self._added) < self._params.trees_per_round:
            return
        columns = self.margin.reshape(len(self.margin), -1).copy()
        for tree, added in enumerate(self._added):  # one by one, as XGBoost adds them
            first, vectors = self._params.output_of(tree), added.reshape(len(added), -1)
            columns[:, first : first + vectors.shape[1]] += vectors
        self.margin = columns.reshape(self.margin.shape)
        self._added = []

    def saved(self) -> NDArray[np.float32]:
        """What a checkpoint keeps: the margin, beside it what the trees so far have added.

        float32 (rows,) where a round is one tree with a number in each leaf, else (rows, outputs +
        what leaves have of the trees so far).
        """
        if self._params.trees_per_round == 1:
            return self.margin
        return np.column_stack((self.margin, *self._added))

    def restore(self, saved: Sequence[NDArray[np.float32] | None]) -> bool:
        """Go on from what the checkpoints of all trees kept; whether the last has anything.

        Its shape may be lost.
        """
        if not saved:
            return True
        if saved[-1] is None:
            return False
        columns = saved[-1].reshape(len(self.margin), -1)
        outputs, width = self._params.outputs, self._params.vector_outputs
        self.margin = np.ascontiguousarray(columns[:, :outputs]).reshape(self.margin.shape)
        trees = columns[:, outputs:].T.reshape(-1, width, len(columns))
        self._added = [tree.T if width > 1 else tree[0] for tree in trees]
        return True
