"""Which columns may split a node below others, under interaction constraints?

Each constraint is a set of columns that may stand together on a path. As XGBoost 3.2 has it
(``FeatureInteractionConstraintHost`` of ``constraints.cc``): below a split, a column may follow if
it was used above, or if some constraint holds it and all that were. So a column in no constraint
is as if it had one of its own: any node may not follow it, but by itself.

A column's constraints are the bits of a uint64: bit k is set where constraint k holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.node_numbers import ROOT

__all__ = ["ALONE", "MOST_CONSTRAINTS", "ColumnsInPath", "InteractionNode", "InteractionPath"]

MOST_CONSTRAINTS: Final = 63

ALONE = np.uint64(1 << MOST_CONSTRAINTS)
"""The bit of a column in no constraint that has split the root: it alone follows itself."""

_ANY = np.uint64(ALONE - 1)


@dataclass(frozen=True, slots=True)
class InteractionPath:
    """The constraints that hold all columns on the way to a node; at the root any column may split.

    ``owner``: whose column splits the root, if it is in no constraint: below it nobody else's may.
    """

    constraints: np.uint64 = _ANY
    owner: int | None = None

    def allows(self, owner: int, constraints: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of the ``owner``'s candidates may split the node, by their columns: bool (C,)."""
        if self.constraints == _ANY:
            return np.ones(len(constraints), np.bool_)
        if self.owner not in (None, owner):
            return np.zeros(len(constraints), np.bool_)
        shared: NDArray[np.uint64] = constraints & self.constraints
        return shared > 0

    def below(self, owner: int, constraints: np.uint64) -> InteractionPath:
        """The path of both children of a split by a column of ``owner``."""
        shared = constraints & self.constraints
        return InteractionPath(shared, self.owner) if shared else InteractionPath(ALONE, owner)


@dataclass(frozen=True, slots=True, eq=False)
class InteractionNode:
    """A node on ``path`` whose candidates are ``owner``'s; ``constraints`` uint64 (C,) of each."""

    path: InteractionPath
    owner: int
    constraints: NDArray[np.uint64]

    def allows(self) -> NDArray[np.bool_]:
        """Which candidates may split it: bool (C,)."""
        return self.path.allows(self.owner, self.constraints)


class ColumnsInPath:
    """A party's columns while a tree grows; ``constraints`` uint64 (columns,) of each of them."""

    def __init__(self, constraints: NDArray[np.uint64]) -> None:
        self._constraints = constraints
        self._alone: int | None = None

    def split(self, node: int, column: int) -> None:
        """One of them splits ``node``."""
        if node == ROOT and not self._constraints[column]:
            self._alone = column

    def of(self, node: int, columns: NDArray[np.int32]) -> NDArray[np.uint64]:
        """The constraints of candidates of ``node``, given by their ``columns`` (C,): uint64."""
        if node == ROOT or self._alone is None:
            return self._constraints[columns]
        return np.where(columns == self._alone, ALONE, self._constraints[columns])
