"""All trees of a model side by side, so that rows walk down all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import LEAF, Tree
from fedmq.boosting.params import TrainParams

__all__ = ["Forest"]


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The nodes of all trees in one vector each; ``roots`` int32 (trees,).

    ``owner``, ``record``, ``left``, ``right`` and ``weight`` are as in :class:`Tree`, with node
    numbers that count through all trees. ``output`` (trees,): the margin to which a tree adds.
    """

    roots: NDArray[np.int32]
    owner: NDArray[np.int16]
    record: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    weight: NDArray[np.float32]
    output: NDArray[np.intp]

    @classmethod
    def of(cls, trees: Sequence[Tree], params: TrainParams) -> Forest:
        """The trees in their order, as ``params`` have grown them."""
        sizes = np.array([0, *(len(tree) for tree in trees)])
        roots = np.cumsum(sizes)[:-1].astype(np.int32)

        def joined(name: str, dtype: type, shift: bool = False) -> NDArray[Any]:
            columns = [
                getattr(tree, name) + (root if shift else 0)
                for tree, root in zip(trees, roots, strict=True)
            ]
            return np.concatenate([np.empty(0, dtype), *columns]).astype(dtype)

        shape = trees[0].weight.shape[1:] if trees else ()
        return cls(
            roots,
            joined("owner", np.int16),
            joined("record", np.int32),
            joined("left", np.int32, shift=True),
            joined("right", np.int32, shift=True),
            np.concatenate([np.empty((0, *shape), np.float32), *(tree.weight for tree in trees)]),
            np.array([params.output_of(tree) for tree in range(len(trees))], np.intp),
        )

    def is_leaf(self, nodes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of ``nodes`` are leaves."""
        return np.equal(self.owner[nodes], LEAF)

    def below(self, nodes: NDArray[np.int32], left: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The child of each of ``nodes`` where its row goes ``left`` or not: int32 (n,)."""
        return np.where(left, self.left[nodes], self.right[nodes])

    def margins(
        self, leaves: NDArray[np.int32], base: np.float32 | NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Leaves (rows, trees) to margins (rows,), added tree by tree in float32 like XGBoost.

        With a ``base`` (classes,): margins (rows, classes), to which vector leaves add as a whole.
        """
        first = np.full((len(leaves), *np.shape(base)), base, np.float32)
        return self.added(leaves, first)

    def added(self, leaves: NDArray[np.int32], margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``margins``, (rows,) or (rows, classes), and what all ``leaves`` (rows, trees) add."""
        columns = margins.reshape(len(leaves), -1).copy()
        if self.weight.ndim > 1:
            for tree in range(leaves.shape[1]):
                columns += self.weight[leaves[:, tree]]
            return columns
        for tree in range(leaves.shape[1]):
            columns[:, self.output[tree]] += self.weight[leaves[:, tree]]
        return columns.reshape(margins.shape)
