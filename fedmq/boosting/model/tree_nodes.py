"""One tree of a model as its label holder may see it: its own splits in words, others by number."""

from __future__ import annotations

from typing import Any

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.shown_model import split_in_words
from fedmq.boosting.model.tree import LABEL_HOLDER, LEAF
from fedmq.errors import DataError

__all__ = ["tree_nodes"]


def tree_nodes(share: ActiveShare, number: int) -> list[dict[str, Any]]:
    """The nodes of tree ``number``, from 1, as plain data, the root first; children by place.

    A split has ``party`` and ``record``; of the label holder's own ``split`` says what goes left,
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
                **(_own(table, record) if owner == LABEL_HOLDER else {}),
            }
        )
    return nodes


def _own(table: LookupTable, record: int) -> dict[str, Any]:
    left = bool(table.default_left[record])
    return {"split": split_in_words(table, record), "missing_left": left}
