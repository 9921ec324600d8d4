"""A tree whose splits are records in their owners' lookup tables.

Whoever holds the tree sees (owner, record) at a split; feature, threshold and default direction are
in the owner's table alone (SecureBoost, arXiv 1901.08755).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from fedmq.boosting.model.numpy_field import Float32s, Int16s, Int32s, Leaves

__all__ = ["LABEL_HOLDER", "LEAF", "Directions", "GrowingTree", "Tree", "walk"]

LEAF = -1
"""Owner of a leaf, and child of one."""

LABEL_HOLDER = 0
"""The label holder's index among the owners: it comes first, also among ties."""

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
