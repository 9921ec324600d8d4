"""A tree whose splits are records in their owners' lookup tables, and all trees of a model at once.

Whoever holds the tree sees (owner, record) at a split; feature, threshold and default direction are
in the owner's table alone (SecureBoost, arXiv 1901.08755).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from fedmq.boosting.model.numpy_field import Float32s, Int16s, Int32s, Leaves
from fedmq.boosting.params import TrainParams

__all__ = ["LABEL_HOLDER", "LEAF", "Directions", "Forest", "GrowingTree", "Tree", "walk"]

LEAF = -1
"""Owner of a leaf, and child of one."""

LABEL_HOLDER = 0
"""The active party's index among the owners: it comes first, also among ties."""

Directions = Callable[[int, NDArray[np.intp], NDArray[np.int32]], NDArray[np.bool_]]
"""(owner, rows, records) -> which of the rows go left at these records of the owner."""


_Node = tuple[int, int, int, int, float | list[float], float, float]


class Tree(BaseModel):
    """Nodes in order of insertion, the root first; vectors of one length.

    ``owner`` is the owner's index (``LEAF`` for a leaf), ``record`` the split's place in the
    owner's lookup table, ``left`` and ``right`` are nodes, ``weight`` is what a leaf adds to the
    margin, or to each margin of a row: then it is (nodes, outputs). ``gain`` and ``cover`` are
    XGBoost's: loss reduction, and sum of hessians.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner: Int16s
    record: Int32s
    left: Int32s
    right: Int32s
    weight: Leaves
    gain: Float32s
    cover: Float32s

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) != 1 or not len(self):
            raise ValueError("a tree needs vectors of one length, and at least a root")
        split = self.owner != LEAF
        nodes = np.flatnonzero(split)
        children = np.concatenate((self.left[split], self.right[split]))
        if not np.array_equal(np.sort(children), np.arange(1, len(self))):
            raise ValueError("each node but the root must be the child of one other")
        if (self.left[split] <= nodes).any() or (self.right[split] <= nodes).any():
            raise ValueError("a child stands before its parent")
        if (self.owner < LEAF).any() or (self.record[split] < 0).any():
            raise ValueError("negative owner or record")
        return self

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def outputs(self) -> int:
        """Numbers in a leaf."""
        return 1 if self.weight.ndim == 1 else self.weight.shape[1]

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which nodes are leaves; bool (nodes,)."""
        return np.equal(self.owner, LEAF)


class GrowingTree:
    """A tree under construction: every node is made a split or a leaf, once.

    A leaf has ``outputs`` numbers.
    """

    def __init__(self, outputs: int = 1) -> None:
        self._nodes: list[_Node | None] = [None]
        self._no_weight = 0.0 if outputs == 1 else [0.0] * outputs

    def split(
        self, node: int, owner: int, record: int, *, gain: float, cover: float
    ) -> tuple[int, int]:
        """Make ``node`` a split; returns its new children (left, right).

        Raises:
            ValueError: the node is a split or a leaf already.
        """
        left, right = len(self._nodes), len(self._nodes) + 1
        self._settle(node, (owner, record, left, right, self._no_weight, float(gain), float(cover)))
        self._nodes += [None, None]
        return left, right

    def leaf(
        self, node: int, weight: float | np.float32 | NDArray[np.float32], *, cover: float
    ) -> None:
        """Make ``node`` a leaf that adds ``weight`` to the margin, or to each.

        Raises:
            ValueError: the node is a split or a leaf already.
        """
        self._settle(node, (LEAF, LEAF, LEAF, LEAF, np.asarray(weight).tolist(), 0.0, float(cover)))

    def finished(self) -> Tree:
        """The tree.

        Raises:
            ValueError: a node is neither split nor leaf.
        """
        nodes = [node for node in self._nodes if node is not None]
        if len(nodes) < len(self._nodes):
            raise ValueError(f"node {self._nodes.index(None)} is neither split nor leaf")
        columns = zip(Tree.model_fields, zip(*nodes, strict=True), strict=True)
        return Tree.model_validate({name: list(column) for name, column in columns})

    def _settle(self, node: int, content: _Node) -> None:
        if self._nodes[node] is not None:
            raise ValueError(f"node {node} is settled already")
        self._nodes[node] = content


def walk(tree: Tree, n_rows: int, directions: Directions) -> NDArray[np.int32]:
    """The leaf in which each row ends: int32 (n_rows,). ``directions`` answers for the owners."""
    nodes = np.zeros(n_rows, dtype=np.int32)
    walking = np.arange(n_rows)
    while len(walking := walking[tree.owner[nodes[walking]] != LEAF]):
        at = nodes[walking]
        for owner in np.unique(tree.owner[at]).tolist():
            asked = tree.owner[at] == owner
            rows, here = walking[asked], at[asked]
            left = directions(owner, rows, tree.record[here])
            nodes[rows] = np.where(left, tree.left[here], tree.right[here])
    return nodes


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
