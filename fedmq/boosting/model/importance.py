"""Which features did the trees split, and what did the splits bring?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_columns import ShownColumns
from fedmq.boosting.model.tree import LABEL_HOLDER, Tree
from fedmq.errors import ConfigError

__all__ = [
    "ImportanceKind",
    "importance",
    "importance_kind",
    "owned_importance",
    "split_counts",
]

ImportanceKind = Literal["weight", "gain", "total_gain", "cover", "total_cover"]


def importance_kind(name: str) -> ImportanceKind:
    """The kind of importance called ``name``.

    Raises:
        ConfigError: XGBoost has no such kind.
    """
    for known in get_args(ImportanceKind):
        if name == known:
            return known  # type: ignore[no-any-return]  # get_args is untyped
    raise ConfigError(
        f"importance_type {name!r}; one of {', '.join(get_args(ImportanceKind))} is needed"
    )


def importance(
    trees: Sequence[Tree], features: Sequence[NDArray[np.integer]], kind: ImportanceKind
) -> dict[int, float]:
    """The importance of each feature that splits a node, as XGBoost's ``get_score`` has it.

    ``features``: of each tree, the feature of each node, which means nothing at leaves; what is
    counted together, such as the owner of a split, may stand in its place. ``weight`` counts
    splits; ``total_gain`` and ``total_cover`` are float32 sums in XGBoost's order of nodes,
    ``gain`` and ``cover`` are these by split.
    """
    splits: dict[int, float] = {}
    totals: dict[int, np.float32] = {}
    for tree, feature in zip(trees, features, strict=True):
        measured = tree.cover if kind.endswith("cover") else tree.gain
        for node in _splits(tree):
            key = int(feature[node])
            splits[key] = splits.get(key, 0.0) + 1
            totals[key] = np.float32(totals.get(key, np.float32(0)) + measured[node])
    if kind == "weight":
        return dict(sorted(splits.items()))
    if kind.startswith("total_"):
        return {key: float(total) for key, total in sorted(totals.items())}
    return {key: float(total / np.float32(splits[key])) for key, total in sorted(totals.items())}


def owned_importance(
    share: ActiveShare,
    kind: ImportanceKind,
    shared: Mapping[str, ShownColumns] = MappingProxyType({}),
) -> dict[tuple[str, str], float]:
    """By party and column what the label holder sees: its own columns by name, others as "".

    Whose split it is tells no more of another party than its total. ``shared``: by party, the
    columns whose names it shares, as texts.
    """
    table = share.lookup_table
    names, column_of = tuple(table.columns), table.column_of
    features = [
        np.where(
            tree.owner == LABEL_HOLDER,
            # Of leaves and of others' splits any number will do, for theirs are not of this table.
            np.append(column_of[table.feature], 0)[
                np.where(tree.owner == LABEL_HOLDER, tree.record, -1)
            ],
            len(names) + tree.owner - 1,
        )
        for tree in share.used_trees
    ]
    columns = [(share.parties[0], name) for name in names]
    columns += [(party, "") for party in share.parties[1:]]
    for owner, party in enumerate(share.parties):
        if party in shared and owner != LABEL_HOLDER:
            first, numbers = len(columns), np.append(shared[party].column, 0)
            columns += [(party, name) for name in shared[party].texts]
            for tree, feature in zip(share.used_trees, features, strict=True):
                splits = tree.owner == owner
                feature[splits] = first + numbers[tree.record[splits]]
    found = importance(share.used_trees, features, kind)
    return {columns[feature]: value for feature, value in found.items()}


def split_counts(share: PassiveShare) -> dict[str, int]:
    """How many splits each of an owner's own columns has in the trees of a training."""
    table = share.lookup_table
    names = tuple(table.columns)
    counts = np.bincount(table.column_of[table.feature], minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _splits(tree: Tree) -> Iterator[int]:
    """The splits in the order in which XGBoost walks a tree: of two children the right one first.

    A sum of float32 depends on it.
    """
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if not tree.is_leaf[node]:
            yield node
            waiting += (int(tree.left[node]), int(tree.right[node]))
