"""What must be on disk after a tree, so that a party can go on after a crash?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.tree import Tree
from fedmq.boosting.model.withheld import WITHHELD_NOTHING, Withheld

__all__ = ["ActiveTree", "Checkpoint", "PassiveTree", "all_places", "all_records"]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveTree:
    """The label holder's part of tree ``number``.

    ``records`` are those that the tree added to its own lookup table, ``before`` the metrics of
    the model without it, ``margin`` float32 (rows,) what all rows have with it; None where a later
    tree has made it needless. With ``adds_alone`` it is what this tree alone adds, and no later one
    makes it needless: DART weighs trees anew. ``table`` is the digest of the table on which it has
    grown; empty where nobody took one. ``turns``: so many models grow in turns, a tree each, and go
    on from the margins of their own last trees.
    """

    number: int
    tree: Tree
    records: LookupTable
    before: Mapping[str, float]
    margin: NDArray[np.float32] | None
    table: str = ""
    adds_alone: bool = False
    turns: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PassiveTree:
    """A feature holder's part of tree ``number``: the records that it added, and their ``nodes``.

    Checkpoints of earlier versions have no nodes.
    ``table`` is the digest of the table on which it has grown, as in :class:`ActiveTree`.
    ``withheld``: the sums that the party did not show.
    """

    number: int
    records: LookupTable
    table: str = ""
    nodes: tuple[int, ...] = ()
    withheld: Withheld = WITHHELD_NOTHING


Checkpoint = ActiveTree | PassiveTree


def all_records(features: tuple[str, ...], checkpoints: Iterable[Checkpoint]) -> LookupTable:
    """The lookup table that ``checkpoints`` have made, one after the other."""
    table = LookupTable.empty(features)
    for checkpoint in checkpoints:
        table = table.followed_by(checkpoint.records)
    return table


def all_places(steps: Iterable[PassiveTree]) -> list[tuple[int, int]]:
    """Tree and node of all records of ``steps``; fewer than there are where a step lacks nodes."""
    return [(step.number, node) for step in steps for node in step.nodes]
