"""What does a party's share say of a model, and how do two models differ?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmq.boosting.model.importance import owned_importance, split_counts
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_columns import ShownColumns
from fedmq.boosting.model.tree import Tree

__all__ = ["differences", "shown", "split_in_words"]


def shown(
    share: ActiveShare | PassiveShare, shared: Mapping[str, ShownColumns] | None = None
) -> dict[str, Any]:
    """What the owner of ``share`` may know: its own columns by name, and what others ``shared``."""
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
