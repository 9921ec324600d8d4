"""Trees with their lookup tables joined into them: what pooled training would have produced.

Only whoever holds all shares can join them: for export, demonstration and comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.tree import Tree, walk

__all__ = ["PooledTree", "pooled_feature_names", "walk_pooled"]


@dataclass(frozen=True, slots=True, eq=False)
class PooledTree:
    """A tree over the joined columns, those of party 0 first.

    Vectors over ``tree``'s nodes: ``feature`` int32, ``threshold`` float32 (``x <= threshold`` goes
    left) and ``default_left`` bool, which mean nothing at leaves.
    """

    tree: Tree
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    default_left: NDArray[np.bool_]

    @classmethod
    def of(cls, tree: Tree, tables: Sequence[LookupTable]) -> PooledTree:
        """``tree`` joined with the lookup tables of all owners, by index of the owner."""
        feature = np.zeros(len(tree), np.int32)
        threshold = np.zeros(len(tree), np.float32)
        default_left = np.zeros(len(tree), np.bool_)
        first_feature = 0
        for owner, table in enumerate(tables):
            nodes = np.flatnonzero(tree.owner == owner)
            records = tree.record[nodes]
            feature[nodes] = first_feature + table.feature[records]
            threshold[nodes] = table.threshold[records]
            default_left[nodes] = table.default_left[records]
            first_feature += len(table.feature_names)
        return cls(tree, feature, threshold, default_left)


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
    """Names of the joined columns, ``party.feature``."""
    return [
        f"{party}.{name}"
        for party, table in zip(parties, tables, strict=True)
        for name in table.feature_names
    ]
