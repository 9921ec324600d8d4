"""Steps of a training as rows of the store: JSON, and the margins as raw bytes."""

from __future__ import annotations

import json

import numpy as np

from fedmq.boosting.tree import LookupTable, Tree
from fedmq.protocol.step import ActiveTree, PassiveTree, Step

__all__ = ["Row", "row_of", "step_of"]

Row = tuple[int, str, bytes | None]
"""Tree, its data, and the little-endian float32 margins if there are any."""


def row_of(step: Step) -> Row:
    """``step`` as a row."""
    records = json.loads(step.records.model_dump_json())
    if isinstance(step, PassiveTree):
        return step.number, json.dumps({"records": records}), None
    data = {
        "records": records,
        "tree": json.loads(step.tree.model_dump_json()),
        "before": dict(step.before),
    }
    margin = None if step.margin is None else step.margin.astype("<f4").tobytes()
    return step.number, json.dumps(data), margin


def step_of(row: Row) -> Step:
    """The step in ``row``, bit for bit."""
    number, text, margin = row
    data = json.loads(text)
    records = LookupTable.model_validate(data["records"])
    if "tree" not in data:
        return PassiveTree(number, records)
    return ActiveTree(
        number,
        Tree.model_validate(data["tree"]),
        records,
        data["before"],
        None if margin is None else np.frombuffer(margin, dtype="<f4").astype(np.float32),
    )
