"""The smallest trainer: all columns in one place, level by level, by the room's own functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.model.tree import LookupTable, Tree, TreeArrays
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, best, is_worthwhile, leaf_weights, split_gains
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from tests.boosting.pooled import children_histograms


@dataclass
class Grown:
    trees: list[Tree]
    table: LookupTable
    margins: NDArray[np.float32]

    @property
    def joined(self) -> list[PooledTree]:
        return [PooledTree.of(tree, [self.table]) for tree in self.trees]


def grow(bins: BinMatrix, labels: NDArray[np.float32], params: TrainParams) -> Grown:
    objective = objective_of(params)
    score = params.base_score
    start = objective.base_margin(objective.base_score(labels, None) if score is None else score)
    margins = np.full(len(labels), start, np.float32)
    table = LookupTable.empty(tuple(f"f{index}" for index in range(bins.cuts.n_features)))
    trees = []
    for _ in range(params.num_boost_round):
        tree, table = _grow_tree(bins, objective.gradients(margins, labels), params, table, margins)
        trees.append(tree)
    return Grown(trees, table, margins)


def _grow_tree(
    bins: BinMatrix,
    gradients: NDArray[np.float32],
    params: TrainParams,
    table: LookupTable,
    margins: NDArray[np.float32],
) -> tuple[Tree, LookupTable]:
    scale = FixedPoint.of(gradients)
    encoded = scale.encode(gradients)
    candidates = CandidateTable.of(bins.cuts)
    tree = TreeArrays()
    level = [(0, np.arange(bins.n_rows))]
    sums = histograms(bins, encoded, [rows for _, rows in level])
    for depth in range(params.max_depth + 1):
        children, parents = [], []
        for place, (node, rows) in enumerate(level):
            total = encoded[rows].sum(axis=0)
            H = scale.to_float(total)[1]
            gain, winners = np.float32(-np.inf), np.empty(0, np.int64)
            if depth < params.max_depth:
                left = candidates.left_sums(sums[place])
                sides = scale.to_float(left), scale.to_float(total - left)
                gain, winners = best(split_gains(*sides, scale.to_float(total), params))
            if not is_worthwhile(gain, params):
                weight = leaf_weights(scale.to_float(total), params)
                tree.leaf(node, weight, cover=H)
                margins[rows] += weight
                continue
            c = winners[0]
            pair = tree.split(node, 0, len(table), gain=gain, cover=H)
            f, b, default = (
                v[c] for v in (candidates.feature, candidates.bin, candidates.default_left)
            )
            table = table.appended(f, candidates.threshold[c], default)
            codes = bins.codes[rows, f]
            goes_left = np.where(codes == bins.cuts.n_bins[f], default, codes.astype(int) <= b)
            children.append((pair, (rows[goes_left], rows[~goes_left])))
            parents.append(place)
        if not children:
            break
        if depth + 1 < params.max_depth:
            row_sets = [rows for _, rows in children]
            sums = children_histograms(bins, encoded, sums[parents], row_sets)
            sums = sums.reshape(-1, *sums.shape[2:])
        level = [child for pair, rows in children for child in zip(pair, rows, strict=True)]
    return tree.finished(), table
