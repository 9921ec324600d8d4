"""Trees joined with their lookup tables, equal to the trees of pooled training.

Joining needs all shares: for export, demonstration and comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import TreeShap
from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LEAF, LookupTable, Tree, walk
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import ConfigError

__all__ = [
    "PooledTree",
    "joined_values",
    "margin_contributions",
    "pooled_feature_names",
    "walk_pooled",
]


@dataclass(frozen=True, slots=True, eq=False)
class PooledTree:
    """A tree over the joined columns, those of party 0 first.

    Vectors over ``tree``'s nodes: ``feature`` int32, the column; ``threshold`` float32 (``x <=
    threshold`` goes left) and ``default_left`` bool, which mean nothing at leaves. A column of
    categories that is split by sets is one column, of their codes: ``categories`` has, of each node
    that splits one, the codes that go right, instead of a threshold.
    """

    tree: Tree
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    default_left: NDArray[np.bool_]
    categories: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Tree, tables: Sequence[LookupTable]) -> PooledTree:
        """``tree`` joined with the lookup tables of all owners, by index of the owner."""
        return cls.joined(tree, [OwnerSplits.of(table) for table in tables])

    @classmethod
    def joined(cls, tree: Tree, splits: Sequence[OwnerSplits]) -> PooledTree:
        """``tree`` joined with the splits of all owners, by index of the owner."""
        feature = np.zeros(len(tree), np.int32)
        threshold = np.zeros(len(tree), np.float32)
        default_left = np.zeros(len(tree), np.bool_)
        categories: dict[int, tuple[int, ...]] = {}
        first_column = 0
        for owner, own in enumerate(splits):
            nodes = np.flatnonzero(tree.owner == owner)
            records = tree.record[nodes]
            feature[nodes] = first_column + own.column[records]
            threshold[nodes] = own.threshold[records]
            default_left[nodes] = own.default_left[records]
            if own.codes_right:
                for node, record in zip(nodes.tolist(), records.tolist(), strict=True):
                    if codes := own.codes_right[record]:
                        categories[node] = codes
            first_column += len(own.columns)
        return cls(tree, feature, threshold, default_left, dict(sorted(categories.items())))


def walk_pooled(
    tree: Tree, tables: Sequence[LookupTable], values: Sequence[NDArray[np.float32]]
) -> NDArray[np.int32]:
    """The leaf in which each row ends: int32 (rows,).

    ``tables`` and ``values``, float32 (rows, features), are those of all owners, by index.
    """
    return walk(
        tree,
        len(values[0]),
        lambda owner, rows, records: tables[owner].directions(values[owner], rows, records),
    )


def pooled_feature_names(parties: Sequence[str], tables: Sequence[LookupTable]) -> list[str]:
    """Names of the joined columns, ``party.column``."""
    return [
        f"{party}.{name}"
        for party, table in zip(parties, tables, strict=True)
        for name in table.columns
    ]


def joined_values(
    tables: Sequence[LookupTable], values: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The joined columns, float32 (rows, columns), of the owners' ``values`` (rows, features).

    A column of categories that is split by sets holds codes: places in ``category_columns``, and
    their number where a row has none of them.
    """
    joined = [
        _codes(held[:, features]) if name in table.category_columns else held[:, features[0]]
        for table, held in zip(tables, values, strict=True)
        for name, features in table.columns.items()
    ]
    return np.column_stack(joined)


def _codes(indicators: NDArray[np.float32]) -> NDArray[np.float32]:
    has = indicators > 0
    codes = np.where(has.any(axis=1), np.argmax(has, axis=1), indicators.shape[1])
    return np.where(np.isnan(indicators[:, 0]), np.float32(np.nan), codes.astype(np.float32))


_MOST_DIRECTIONS = 2**26
"""The most directions of rows at nodes in memory: a byte each."""


def margin_contributions(
    share: ActiveShare,
    tables: Sequence[LookupTable],
    values: Sequence[NDArray[np.float32]],
    base_margin: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Shapley values of the joined columns: float32 (rows, columns + 1), the bias last.

    With several classes (rows, classes, columns + 1). ``tables`` and ``values``, float32 (rows,
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
    splits = [OwnerSplits.of(table) for table in tables]
    pooled = [PooledTree.joined(tree, splits) for tree in trees]
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
