"""What are the label holder's own candidates worth in the nodes of a tree?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.params import TrainParams
from fedmq.protocol.training.computations import ScoreOwnCandidates
from fedmq.protocol.training.node_candidates import NodeCandidates
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["OwnCandidates"]


class OwnCandidates:
    """The candidates over ``bins`` while the tree of ``builder`` grows; ``signs`` int8 (columns,).

    ``first_order``: whether they are scored by g alone, as the others' are.
    """

    def __init__(
        self,
        bins: BinMatrix,
        signs: NDArray[np.int8],
        params: TrainParams,
        builder: TreeBuilder,
        first_order: bool,
    ) -> None:
        self._bins = bins
        self._signs = signs
        self._params = params
        self._builder = builder
        self._first_order = first_order
        self._candidates = NodeCandidates(bins, params, builder.gradients.tree)

    def of_node(self, node: int) -> CandidateTable:
        """Those of a node."""
        return self._candidates.of_node(node)

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
                builder.monotone(node, self._signs[offered.feature])
                for node, offered in zip(nodes, candidates, strict=True)
            ],
            self._first_order,
        )
