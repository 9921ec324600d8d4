"""What pooled training and scoring would do, with all parties' columns in one place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.xgboost_comparison.pooled_tree import walk_pooled


def joined_cuts(cuts: Sequence[Cuts]) -> Cuts:
    """Cuts of the joined columns."""
    return Cuts(
        thresholds=tuple(feature for party in cuts for feature in party.thresholds),
        has_missing=np.concatenate([party.has_missing for party in cuts]),
    )


def children_histograms(
    bins: BinMatrix,
    gradients: NDArray[np.int64],
    parents: NDArray[np.int64],
    children: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]],
) -> NDArray[np.int64]:
    """Histograms of the (left, right) ``children`` of ``parents``; int64 (parents, 2, cells, 2).

    Rows are read for the smaller child only; the larger one is the parent less its sibling.
    """
    right_is_smaller = np.array([len(left) > len(right) for left, right in children], np.intp)
    smaller = [pair[side] for pair, side in zip(children, right_is_smaller, strict=True)]
    both = np.empty((len(children), 2, *parents.shape[1:]), dtype=np.int64)
    each = np.arange(len(children))
    both[each, right_is_smaller] = histograms(bins, gradients, smaller)
    both[each, 1 - right_is_smaller] = parents - both[each, right_is_smaller]
    return both


def joint_margins(
    share: ActiveShare, tables: Sequence[LookupTable], X: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Margins by all lookup tables and columns in one place; float32 (rows,).

    ``tables[i]`` and ``X[i]`` (rows, features of party i) belong to ``share.parties[i]``. Leaves
    are added in float32, tree by tree, as XGBoost does.
    """
    start = objective_of(share.params).base_margin(share.base_score)
    margins = np.full(len(X[0]), start, dtype=np.float32)
    for tree in share.used_trees:
        margins += tree.weight[walk_pooled(tree, tables, X)]
    return margins
