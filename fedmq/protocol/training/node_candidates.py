"""Which of its candidates does a party offer in a node?"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.sampling import ColumnSampler, salt_of
from fedmq.boosting.splits import CandidateTable, depth

__all__ = ["ColumnTerms", "NodeCandidates"]

_ROWS_OF_SALT = 256  # nobody guesses so many, and their bytes take no time


class ColumnTerms(Protocol):
    """What a training's parameters and its opening both say of the columns to draw."""

    @property
    def colsample_bytree(self) -> float: ...
    @property
    def colsample_bylevel(self) -> float: ...
    @property
    def colsample_bynode(self) -> float: ...
    @property
    def seed(self) -> int: ...


class NodeCandidates:
    """The candidates of a party in ``tree``: it draws from its own columns, by its own secret.

    Drawn by the seed that all share, the column of a split would be known to all.
    """

    def __init__(self, bins: BinMatrix, terms: ColumnTerms, tree: int) -> None:
        self._cuts = bins.cuts
        self._columns = [np.array(column, np.int32) for column in bins.cuts.columns]
        self._sampler = ColumnSampler(
            len(self._columns),
            terms.colsample_bytree,
            terms.colsample_bylevel,
            terms.colsample_bynode,
            terms.seed,
            tree,
            salt_of(*bins.cuts.thresholds, bins.codes[:_ROWS_OF_SALT]),
        )
        self.of_tree = CandidateTable.of(self._cuts, self._features(self._sampler.of_tree()))

    @property
    def narrows(self) -> bool:
        """Whether a node may have fewer candidates than its tree."""
        return self._sampler.narrows

    def of_node(self, node: int) -> CandidateTable:
        """Those of a node by its heap number."""
        if not self.narrows:
            return self.of_tree
        return CandidateTable.of(
            self._cuts, self._features(self._sampler.of_node(node, depth(node)))
        )

    def places(self, node: int) -> NDArray[np.intp]:
        """Where those of a node stand among the tree's."""
        if not self.narrows:
            return np.arange(len(self.of_tree))
        drawn = self._features(self._sampler.of_node(node, depth(node)))
        return np.flatnonzero(np.isin(self.of_tree.feature, drawn))

    def _features(self, columns: NDArray[np.int32]) -> NDArray[np.int32]:
        """The features of the drawn ``columns``."""
        held = [self._columns[column] for column in columns.tolist()]
        return np.concatenate([np.empty(0, np.int32), *held])
