"""What does a party's share say of a model?

The importance of features, the contents of a share, the differences of two models, and a tree node
by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, DisclosedColumns, LookupTable, Tree
from fedmq.errors import ConfigError, DataError

__all__ = [
    "ImportanceKind",
    "differences",
    "importance",
    "importance_kind",
    "owned_importance",
    "shown",
    "split_counts",
    "split_in_words",
    "tree_nodes",
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
    shared: Mapping[str, DisclosedColumns] = MappingProxyType({}),
) -> dict[tuple[str, str], float]:
    """By party and column what the active party sees: its own columns by name, others as "".

    The owner of a split gives only a total per other party. ``shared``: by party, the columns whose
    names it shares, as texts.
    """
    table = share.lookup_table
    names, column_of = tuple(table.columns), table.column_of
    features = [
        np.where(
            tree.owner == ACTIVE_PARTY,
            # Leaves and other owners' splits are not of this table: any number will do.
            np.append(column_of[table.feature], 0)[
                np.where(tree.owner == ACTIVE_PARTY, tree.record, -1)
            ],
            len(names) + tree.owner - 1,
        )
        for tree in share.used_trees
    ]
    columns = [(share.parties[0], name) for name in names]
    columns += [(party, "") for party in share.parties[1:]]
    for owner, party in enumerate(share.parties):
        if party in shared and owner != ACTIVE_PARTY:
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


def shown(
    share: ActiveShare | PassiveShare, shared: Mapping[str, DisclosedColumns] | None = None
) -> dict[str, Any]:
    """The view of the owner of ``share``: its own columns by name, others' as ``shared``."""
    table = share.lookup_table
    own = Counter(split_in_words(table, record) for record in range(len(table)))
    result: dict[str, Any] = {"model": share.model_id, "own_splits": dict(own.most_common())}
    if isinstance(share, PassiveShare):
        return {
            **result,
            "party": share.party,
            "columns": split_counts(share),
            "departures": list(share.withheld.in_words(share.party)),
        }
    trees = share.used_trees
    return {
        **result,
        "parties": list(share.parties),
        "objective": share.params.objective,
        "params": _given(share),
        "metrics": share.metrics,
        "refreshes": share.refreshes or None,
        "departures": list(share.departures),
        "trees": [
            {"nodes": len(tree), "leaves": int(tree.is_leaf.sum()), "depth": _depth(tree)}
            for tree in trees
        ],
        "splits": {
            party: int(sum((tree.owner == owner).sum() for tree in trees))
            for owner, party in enumerate(share.parties)
        },
        "total_gain": {
            f"{party}.{column}" if column else party: gain
            for (party, column), gain in owned_importance(share, "total_gain", shared or {}).items()
        },
    }


def split_in_words(table: LookupTable, record: int) -> str:
    """What goes left at a record; of a set of categories, what goes right."""
    if table.category_sets and (right := table.category_sets[record]):
        names = [table.feature_names[feature] for feature in right]
        column = next(
            (column for column, held in table.category_columns.items() if right[0] in held),
            names[0].partition("=")[0],
        )
        inside = ", ".join(name.removeprefix(f"{column}=") for name in names)
        return f"{column} not in {{{inside}}}"
    return f"{table.feature_names[table.feature[record]]} <= {table.threshold[record]:.6g}"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Where two models differ, by the path of a key; None where only one of them has it."""
    first, second = _flat(one), _flat(other)
    return [
        (key, first.get(key), second.get(key))
        for key in dict.fromkeys((*first, *second))
        if first.get(key) != second.get(key)
    ]


def _flat(shown: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in shown.items():
        if key == "trees":
            flat["trees"] = len(value)
            flat["leaves"] = sum(tree["leaves"] for tree in value)
        elif isinstance(value, Mapping):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        elif isinstance(value, list):
            flat[key] = ", ".join(map(str, value))
        else:
            flat[key] = value
    return flat


def _given(share: ActiveShare) -> dict[str, Any]:
    """The parameters that are not XGBoost's defaults."""
    return share.params.model_dump(mode="json", exclude_defaults=True)


def _depth(tree: Tree) -> int:
    depth = np.zeros(len(tree), np.int64)
    for node in np.flatnonzero(~tree.is_leaf).tolist():  # a parent stands before its children
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    return int(depth.max())


def tree_nodes(share: ActiveShare, number: int) -> list[dict[str, Any]]:
    """The nodes of tree ``number``, from 1, as plain data, the root first; children by place.

    A split has ``party`` and ``record``; of the active party's own ``split`` says what goes left,
    and ``missing_left`` where missing values go. A leaf has ``weight``.

    Raises:
        DataError: the model has no such tree.
    """
    trees = share.used_trees
    if not 1 <= number <= len(trees):
        raise DataError(f"tree {number}: model {share.model_id} has trees 1 to {len(trees)}")
    tree, table = trees[number - 1], share.lookup_table
    nodes: list[dict[str, Any]] = []
    for node in range(len(tree)):
        owner, cover = int(tree.owner[node]), float(tree.cover[node])
        if owner == LEAF:
            nodes.append({"node": node, "weight": tree.weight[node].tolist(), "cover": cover})
            continue
        record = int(tree.record[node])
        nodes.append(
            {
                "node": node,
                "party": share.parties[owner],
                "record": record,
                "left": int(tree.left[node]),
                "right": int(tree.right[node]),
                "gain": float(tree.gain[node]),
                "cover": cover,
                **(_own(table, record) if owner == ACTIVE_PARTY else {}),
            }
        )
    return nodes


def _own(table: LookupTable, record: int) -> dict[str, Any]:
    left = bool(table.default_left[record])
    return {"split": split_in_words(table, record), "missing_left": left}
