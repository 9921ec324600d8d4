"""What does each of the joined columns add to the margin of a row, as XGBoost's pred_contribs?

Only whoever holds all shares can tell it like this: for simulations and comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import TreeShap
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LEAF, Tree
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.xgboost.pooled_tree import PooledTree
from fedmq.errors import ConfigError

__all__ = ["margin_contributions"]

_MOST_DIRECTIONS = 2**26
"""Of rows at nodes at once: a byte each."""


def margin_contributions(
    share: ActiveShare,
    tables: Sequence[LookupTable],
    values: Sequence[NDArray[np.float32]],
    base_margin: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Shapley values of the joined columns: float32 (rows, columns + 1), the bias last.

    Of several classes (rows, classes, columns + 1). ``tables`` and ``values``, float32 (rows,
    features), are those of all owners, by index. A row's values add up to its margin, which begins
    at ``base_margin``, (rows,) or (rows, classes), where there is one.

    Raises:
        ConfigError: leaves are vectors.
    """
    if share.params.vector_outputs > 1:
        raise ConfigError(
            "pred_contribs: neither XGBoost nor fedmq has them for trees of vector leaves"
        )
    trees, rows = share.used_trees, len(values[0])
    pooled = [PooledTree.of(tree, tables) for tree in trees]
    columns = sum(len(table.columns) for table in tables)
    shap = TreeShap.of(
        trees,
        [tree.feature for tree in pooled],
        columns,
        [share.params.output_of(number) for number in range(len(trees))],
    )
    classes = share.params.outputs
    sums = np.zeros((rows, classes, columns + 1))
    if base_margin is None:
        sums[:, :, -1] = objective_of(share.params).first_margin(share.base_score)
    else:
        sums[:, :, -1] = base_margin.reshape(rows, classes)
    sums[:, : len(shap.expected), -1] += shap.expected
    most = max(1, _MOST_DIRECTIONS // max(1, sum(map(len, trees))))
    for start in range(0, rows, most):
        some = np.arange(start, min(start + most, rows))
        left = [_directions(tree, tables, values, some) for tree in trees]
        found = shap.values(np.concatenate([np.zeros((len(some), 0), np.bool_), *left], axis=1))
        sums[some, : found.shape[1], :-1] = found
    return (sums if classes > 1 else sums[:, 0]).astype(np.float32)


def _directions(
    tree: Tree,
    tables: Sequence[LookupTable],
    values: Sequence[NDArray[np.float32]],
    rows: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Which of ``rows`` go left at each split of ``tree``: bool (rows, nodes)."""
    left = np.zeros((len(rows), len(tree)), np.bool_)
    for node in np.flatnonzero(tree.owner != LEAF).tolist():
        owner = int(tree.owner[node])
        records = np.full(len(rows), tree.record[node])
        left[:, node] = tables[owner].directions(values[owner], rows, records)
    return left
