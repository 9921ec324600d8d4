"""Which margins has a round, whose trees are one for each class?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Round"]


class Round:
    """The ``margin`` that a round begins with, and what its trees have added so far.

    float32 (rows,), or (rows, classes): then the trees of the classes take turns, and the gradients
    of all of them are those of the margins at the beginning.
    """

    def __init__(self, margin: NDArray[np.float32]) -> None:
        self.margin = margin
        self._added: list[NDArray[np.float32]] = []

    def add(self, increments: NDArray[np.float32]) -> None:
        """The next tree adds ``increments`` (rows,); after the last class a new round begins."""
        if self.margin.ndim == 1:
            self.margin = self.margin + increments
            return
        self._added.append(increments)
        if len(self._added) == self.margin.shape[1]:
            self.margin = self.margin + np.stack(self._added, axis=1)
            self._added = []

    def saved(self) -> NDArray[np.float32]:
        """What a checkpoint keeps of it: float32 (rows,), or (rows, classes + trees so far)."""
        if self.margin.ndim == 1:
            return self.margin
        return np.column_stack((self.margin, *self._added))

    def restore(self, saved: NDArray[np.float32]) -> None:
        """Go on from what a checkpoint kept; its shape may be lost."""
        if self.margin.ndim == 1:
            self.margin = saved
            return
        columns = saved.reshape(len(self.margin), -1)
        classes = self.margin.shape[1]
        self.margin = np.ascontiguousarray(columns[:, :classes])
        self._added = list(columns[:, classes:].T)
