"""Steps of a training as rows of the store: JSON, and the margins as raw bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.tree import Tree
from fedmq.protocol.checkpoint import ActiveTree, Checkpoint, PassiveTree

__all__ = ["Row", "checkpoint_of", "row_of"]

Row = tuple[int, str, bytes | None]
"""Tree, its data, and the little-endian float32 margins if there are any."""


def row_of(step: Checkpoint, first: bool = True) -> Row:
    """``step`` as a row.

    What all steps of a session share, the names of the columns and the digest of the table, stands
    in its ``first`` row alone: with a thousand columns it is larger than a tree.
    """
    records = json.loads(step.records.model_dump_json())
    data: dict[str, Any] = {"records": records}
    if not first:
        del records["feature_names"]
    elif step.table:
        data["table"] = step.table
    if isinstance(step, PassiveTree):
        return step.number, json.dumps(data), None
    data["tree"] = json.loads(step.tree.model_dump_json())
    data["before"] = dict(step.before)
    margin = None if step.margin is None else step.margin.astype("<f4").tobytes()
    return step.number, json.dumps(data), margin


def checkpoint_of(row: Row, first: Checkpoint | None = None) -> Checkpoint:
    """The step in ``row``, bit for bit; ``first`` is the session's first, if this is another."""
    number, text, margin = row
    data = json.loads(text)
    if first is not None:
        data["records"].setdefault("feature_names", first.records.feature_names)
    records = LookupTable.model_validate(data["records"])
    table = data.get("table", first.table if first is not None else "")
    if "tree" not in data:
        return PassiveTree(number, records, table)
    return ActiveTree(
        number,
        Tree.model_validate(data["tree"]),
        records,
        data["before"],
        None if margin is None else np.frombuffer(margin, dtype="<f4").astype(np.float32),
        table,
    )
