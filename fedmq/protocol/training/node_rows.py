"""Which rows stand in which node while a tree grows, as the active party sees it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.tree import GrowingTree, Tree
from fedmq.boosting.objectives.objective import quantile
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import (
    ROOT,
    UNBOUNDED,
    UNMARKED,
    ColumnMark,
    InteractionNode,
    InteractionPath,
    MonotoneNode,
    WeightBounds,
    children,
    leaf_weights,
    node_weights,
    parent,
    split_gains,
    vector_leaf_weights,
)

__all__ = ["NodeRows", "Residuals"]


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """What labels are off by, ``values`` float32 (rows,): leaves are the ``quantile`` of them.

    XGBoost's ``UpdateTreeLeaf``; ``weight`` (rows,) as in :class:`ActiveTable`.
    """

    values: NDArray[np.float32]
    weight: NDArray[np.float32] | None
    quantile: float

    def leaf_weight(self, rows: NDArray[np.int32], eta: np.float32) -> np.float32:
        """What a leaf of ``rows``, at least one, adds to the margin: a float32."""
        weight = None if self.weight is None else self.weight[rows]
        return quantile(self.values[rows], self.quantile, weight) * eta


@dataclass(frozen=True, slots=True)
class _Split:
    owner: int
    record: int
    gain: float
    cover: float


class NodeRows:
    """The instance space of each node (rows, int32, ascending), and the tree that comes of it.

    Nodes are known by their heap numbers, as the messages know them. ``constrained``: some column
    of some party is under a monotone constraint. ``interacting``: there are interaction
    constraints.
    """

    def __init__(
        self,
        gradients: Gradients,
        params: TrainParams,
        residuals: Residuals | None = None,
        *,
        constrained: bool = False,
        interacting: bool = False,
    ) -> None:
        self.gradients = gradients
        self.level: tuple[int, ...] = (ROOT,)
        """The nodes of the current level that may still be split."""
        self._params = params
        self._residuals = residuals
        self._rows = {ROOT: np.arange(len(gradients.pairs), dtype=np.int32)}
        self.bounds = {ROOT: gradients.bounds(self._rows[ROOT])}
        """What sums over some of a node's rows can be, by node: see `Gradients.bounds`."""
        self._constrained = constrained
        self._weight_bounds = {ROOT: UNBOUNDED}
        self._paths = {ROOT: InteractionPath()} if interacting else {}
        self._splits: dict[int, _Split] = {}
        self._next: list[int] = []

    def rows(self, node: int) -> NDArray[np.int32]:
        """All rows in ``node``: training, left out by subsampling, and evaluation rows."""
        return self._rows[node]

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows in ``node`` that carry a gradient."""
        rows = self._rows[node]
        return rows[self.gradients.carried[rows]]

    def totals(self, node: int) -> NDArray[np.int64]:
        """The sums G and H of ``node``, in fixed point: int64 (2 * outputs,)."""
        total: NDArray[np.int64] = self.bounds[node].sum(axis=0)
        return total

    def left_totals(self, node: int, left: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The sums of the rows of ``node`` that go left; ``left`` is over ``rows(node)``."""
        below = children(node)
        # Sums are integers: those of the child with fewer rows give the other's by subtraction.
        counted = 0 if 2 * np.count_nonzero(left) <= len(left) else 1
        rows = self._rows[node][left if counted == 0 else ~left]
        bounds = self.gradients.bounds(rows)
        self.bounds[below[counted]] = bounds
        self.bounds[below[1 - counted]] = self.bounds[node] - bounds
        return self.totals(below[0])

    def gain(self, node: int, left: NDArray[np.bool_]) -> float:
        """What a split gains by which the rows of ``left``, over ``rows(node)``, go left."""
        total = self.totals(node)
        of_left = self.left_totals(node, left)
        sums = self.gradients.scale.to_float(np.stack([of_left, total - of_left, total]))
        return float(split_gains(sums[:1], sums[1:2], sums[2], self._params)[0])

    def monotone(self, node: int, signs: NDArray[np.int8]) -> MonotoneNode | None:
        """How monotone constraints bound ``node``, for candidates of these signs; None without."""
        if not self._constrained:
            return None
        return MonotoneNode(signs, self._weight_bounds[node], self._above(node))

    def interactions(
        self, node: int, owner: int, constraints: NDArray[np.uint64]
    ) -> InteractionNode | None:
        """How interaction constraints bound ``node``, for candidates of an ``owner``; None without.

        ``constraints`` (candidates,) are those that hold their columns.
        """
        path = self._paths.get(node)
        return None if path is None else InteractionNode(path, owner, constraints)

    def split(
        self,
        node: int,
        owner: int,
        record: int,
        gain: float,
        left: NDArray[np.bool_],
        column: ColumnMark = UNMARKED,
        *,
        expands: bool = True,
    ) -> None:
        """Split ``node`` by a column of an ``owner``; ``left`` is over ``rows(node)``.

        ``expands``: whether the children may be split as well.
        """
        below, rows = children(node), self._rows[node]
        self._splits[node] = _Split(owner, record, gain, cover=_cover(self._sums(node)))
        if below[0] not in self.bounds:
            self.left_totals(node, left)
        del self._rows[node]
        self._rows |= zip(below, (rows[left], rows[~left]), strict=True)
        bounds = self._weight_bounds[node]
        if column.sign:
            weights = (node_weights(self._sums(child), self._params, bounds) for child in below)
            self._weight_bounds |= zip(below, bounds.below(column.sign, *weights), strict=True)
        else:
            self._weight_bounds |= dict.fromkeys(below, bounds)
        if node in self._paths:
            path = self._paths[node].below(owner, column.constraints)
            self._paths |= dict.fromkeys(below, path)
        if expands:
            self._next.extend(below)

    def next_level(self) -> bool:
        """Go down one level; false when nothing is left to ask."""
        self.level, self._next = tuple(sorted(self._next)), []
        return bool(self.level)

    def finish(self) -> tuple[Tree, NDArray[np.float32]]:
        """The tree, and what it adds to the margin of each row: float32 (rows,).

        Where leaves are vectors: to its margins, float32 (rows, outputs).
        """
        outputs = self.gradients.pairs.shape[1] // 2
        tree, place = GrowingTree(outputs), {ROOT: 0}
        # Level by level from left to right, whichever owner's split came in first.
        for node, split in sorted(self._splits.items()):
            places = tree.split(
                place[node], split.owner, split.record, gain=split.gain, cover=split.cover
            )
            place |= zip(children(node), places, strict=True)
        shape = (len(self.gradients.pairs), *((outputs,) if outputs > 1 else ()))
        increments = np.zeros(shape, dtype=np.float32)
        for node, rows in self._rows.items():
            sums = self._sums(node)
            weight = self._leaf_weight(node, sums)
            tree.leaf(place[node], weight, cover=_cover(sums))
            increments[rows] = weight
        return tree.finished(), increments

    def _leaf_weight(
        self, node: int, sums: NDArray[np.float64]
    ) -> np.float32 | NDArray[np.float32]:
        if len(sums) > 2:
            return vector_leaf_weights(sums, self._params, root=node == ROOT)
        carrying = self.carrying(node)
        if self._residuals is not None and len(carrying):
            return self._residuals.leaf_weight(carrying, self._params.leaf_eta)
        return np.float32(leaf_weights(sums, self._params, self._above(node)))

    def check(self) -> None:
        """Raise AssertionError unless leaves and open nodes partition the rows."""
        together = np.sort(np.concatenate(list(self._rows.values())))
        assert np.array_equal(together, np.arange(len(self.gradients.pairs)))

    def _above(self, node: int) -> WeightBounds:
        """The bounds of a node's parent, within which its own weight lies."""
        return UNBOUNDED if node == ROOT else self._weight_bounds[parent(node)]

    def _sums(self, node: int) -> NDArray[np.float64]:
        """G and H of ``node``, of which its cover and weight are made: exact, not rounded."""
        exact = self.gradients.unrounded_totals(self._rows[node])
        return self.gradients.scale.to_float(self.totals(node)) if exact is None else exact


def _cover(sums: NDArray[np.float64]) -> float:
    """The hessians of a node, those of all outputs together."""
    return float(sums[1::2].sum())
