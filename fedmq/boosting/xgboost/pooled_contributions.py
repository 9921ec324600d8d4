"""What does each of the joined columns add to the margin of a row, as XGBoost's pred_contribs?

Only whoever holds all shares can tell it like this: for simulations and comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import expected_margin, tree_contributions
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LEAF
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.xgboost.pooled_tree import PooledTree
from fedmq.errors import ConfigError

__all__ = ["margin_contributions"]


def margin_contributions(
    share: ActiveShare, tables: Sequence[LookupTable], values: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Shapley values of the joined columns: float32 (rows, columns + 1), the bias last.

    Of several classes (rows, classes, columns + 1). ``tables`` and ``values``, float32 (rows,
    features), are those of all owners, by index. A row's values add up to its margin.

    Raises:
        ConfigError: leaves are vectors.
    """
    if share.params.vector_outputs > 1:
        raise ConfigError(
            "pred_contribs: neither XGBoost nor fedmq has them for trees of vector leaves"
        )
    classes, rows = share.params.outputs, len(values[0])
    columns = sum(len(table.feature_names) for table in tables)
    sums = np.zeros((rows, classes, columns + 1))
    sums[:, :, -1] = objective_of(share.params).first_margin(share.base_score)
    for number, tree in enumerate(share.used_trees):
        pooled = PooledTree.of(tree, tables)
        left = np.zeros((rows, len(tree)), np.bool_)
        for node in np.flatnonzero(tree.owner != LEAF).tolist():
            owner = int(tree.owner[node])
            records = np.full(rows, tree.record[node])
            left[:, node] = tables[owner].directions(values[owner], np.arange(rows), records)
        of_class = sums[:, share.params.output_of(number)]
        of_class[:, :-1] += tree_contributions(tree, pooled.feature, left, columns)
        of_class[:, -1] += expected_margin(tree)
    return (sums if classes > 1 else sums[:, 0]).astype(np.float32)
