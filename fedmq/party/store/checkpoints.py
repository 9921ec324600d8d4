"""Checkpoints of a training as rows of the store: JSON, and the margins as raw bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import WITHHELD_NOTHING, Withheld
from fedmq.boosting.model.tree import Tree
from fedmq.protocol.records import ActiveTree, Checkpoint, PassiveTree

__all__ = ["Row", "checkpoint_of", "row_of"]

Row = tuple[int, str, bytes | None]
"""Number of the tree, its data as JSON, and its margins (little-endian float32) if it has any."""


def row_of(checkpoint: Checkpoint, first: bool = True) -> Row:
    """``checkpoint`` as a row.

    The names of the columns and the digest of the table are the same in all checkpoints of a
    session. Only its ``first`` row holds them: of a thousand columns they are larger than a tree.
    """
    records = json.loads(checkpoint.records.model_dump_json())
    data: dict[str, Any] = {"records": records}
    if not first:
        del records["feature_names"]
    elif checkpoint.table:
        data["table"] = checkpoint.table
    if isinstance(checkpoint, PassiveTree):
        if checkpoint.nodes:
            data["nodes"] = checkpoint.nodes
        if checkpoint.withheld != WITHHELD_NOTHING:
            data["withheld"] = checkpoint.withheld.model_dump()
        return checkpoint.number, json.dumps(data), None
    data["tree"] = json.loads(checkpoint.tree.model_dump_json())
    data["before"] = dict(checkpoint.before)
    if checkpoint.adds_alone:
        data["adds_alone"] = True
    if checkpoint.turns > 1:
        data["turns"] = checkpoint.turns
    margin = None if checkpoint.margin is None else checkpoint.margin.astype("<f4").tobytes()
    return checkpoint.number, json.dumps(data), margin


def checkpoint_of(row: Row, first: Checkpoint | None = None) -> Checkpoint:
    """The checkpoint in ``row``, bit for bit; ``first`` is the session's first, if not this one."""
    number, text, margin = row
    data = json.loads(text)
    if first is not None:
        data["records"].setdefault("feature_names", first.records.feature_names)
    records = LookupTable.model_validate(data["records"])
    table = data.get("table", first.table if first is not None else "")
    if "tree" not in data:
        withheld = Withheld.model_validate(data.get("withheld", {}))
        return PassiveTree(number, records, table, tuple(data.get("nodes", ())), withheld)
    return ActiveTree(
        number,
        Tree.model_validate(data["tree"]),
        records,
        data["before"],
        None if margin is None else np.frombuffer(margin, dtype="<f4").astype(np.float32),
        table,
        data.get("adds_alone", False),
        data.get("turns", 1),
    )
