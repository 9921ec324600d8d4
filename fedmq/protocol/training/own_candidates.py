"""What are the label holder's own candidates worth in the nodes of a tree?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, CategorySet, ColumnsInPath, first_named
from fedmq.privacy.engine import Best
from fedmq.protocol.training.candidates import NodeCandidates
from fedmq.protocol.training.computations import ScoreOwnCandidates
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["OwnCandidates"]


class OwnCandidates:
    """The candidates over ``bins`` while the tree of ``builder`` grows.

    ``signs`` int8 and ``constraints`` uint64 (columns,): the monotone constraint of each column,
    and the interaction constraints that hold it.
    ``first_order``: whether they are scored by g alone, as the others' are. ``turns``: so many
    models grow a tree each, and draw the same columns for it.
    """

    def __init__(
        self,
        bins: BinMatrix,
        signs: NDArray[np.int8],
        constraints: NDArray[np.uint64],
        params: TrainParams,
        builder: TreeBuilder,
        first_order: bool,
        turns: int = 1,
    ) -> None:
        self._bins = bins
        self._signs = signs
        self._columns = ColumnsInPath(constraints)
        self._params = params
        self._builder = builder
        self._first_order = first_order
        self._candidates = NodeCandidates(bins, params, builder.gradients.tree // turns)

    def of_node(self, node: int) -> CandidateTable:
        """Those of a node."""
        return self._candidates.of_node(node)

    def split(self, node: int, best: Best) -> tuple[CandidateTable, int | CategorySet]:
        """``node`` is split by its ``best``; all of the node's, and which of those that tie."""
        candidates = self.of_node(node)
        split = first_named(candidates, best.candidates, best.sets)
        first = split if isinstance(split, int) else int(split.right[0])
        self._columns.split(node, int(candidates.columns[first]))
        return candidates, split

    def scored(self, nodes: Sequence[int]) -> ScoreOwnCandidates:
        """The computation of the best of them in each of ``nodes``."""
        builder = self._builder
        candidates = [self.of_node(node) for node in nodes]
        return ScoreOwnCandidates(
            self._bins,
            candidates,
            builder.gradients,
            [builder.carrying(node) for node in nodes],
            [builder.totals(node) for node in nodes],
            self._params,
            [
                builder.monotone(node, self._signs[offered.columns])
                for node, offered in zip(nodes, candidates, strict=True)
            ],
            [
                builder.interactions(node, LABEL_HOLDER, self._columns.of(node, offered.columns))
                for node, offered in zip(nodes, candidates, strict=True)
            ],
            self._first_order,
        )
