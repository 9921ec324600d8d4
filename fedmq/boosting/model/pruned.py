"""A model cut back to the active party's own splits, for when nobody else answers any more.

A node of another party becomes a leaf with the mean of the leaves below it, weighted by their
covers: the expectation that TreeSHAP takes of it (S. M. Lundberg et al., "From local explanations
to global understanding with explainable AI for trees", 2020, algorithm 1). Later trees were grown
for margins that this model does not have, so one that is trained without the party is better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, LookupTable, Tree, TreeArrays

__all__ = ["pruned_to_own"]


def pruned_to_own(share: ActiveShare, model_id: str) -> ActiveShare:
    """The trees of ``share`` as the model ``model_id`` of its active party alone.

    It stands in for ``share`` where the other parties say nothing. Its departures say what it is;
    it has no history, for no training had its margins.
    """
    table = share.lookup_table
    new_record = np.full(len(table), -1, np.int32)
    kept = np.unique(
        [record for tree in share.trees for record in tree.record[_own(tree)].tolist()]
    ).astype(np.int32)
    new_record[kept] = np.arange(len(kept), dtype=np.int32)
    trees = tuple(_pruned(tree, new_record) for tree in share.trees)
    cut = [party for party in share.asked if party != share.parties[ACTIVE_PARTY]]
    words = f"the splits of {' and '.join(cut)} were pruned to leaves"
    return share.model_copy(
        update={
            "model_id": model_id,
            "fallback_of": share.model_id,
            "training": "",
            "parties": share.parties[:1],
            "lookup_table": _records(table, kept),
            "trees": trees,
            "history": {},
            "withheld": {},
            "inexact_engine": "",
            "earlier_departures": (*share.departures, words),
            "lacked_at": {},
            "shift": 0.0,
        }
    )


def _own(tree: Tree) -> NDArray[np.bool_]:
    """The splits of the active party that no other party's split stands above; bool (nodes,)."""
    reached = np.zeros(len(tree), np.bool_)
    reached[0] = True
    for node in np.flatnonzero(tree.owner == ACTIVE_PARTY).tolist():  # parents stand before
        if reached[node]:
            reached[[tree.left[node], tree.right[node]]] = True
    own: NDArray[np.bool_] = reached & (tree.owner == ACTIVE_PARTY)
    return own


def _pruned(tree: Tree, new_record: NDArray[np.int32]) -> Tree:
    own, means = _own(tree), _means(tree)
    arrays = TreeArrays(tree.outputs)
    places = {0: 0}
    for node in range(len(tree)):
        if node not in places:
            continue
        place, cover = places[node], float(tree.cover[node])
        if own[node]:
            record, gain = int(new_record[tree.record[node]]), float(tree.gain[node])
            children = arrays.split(place, ACTIVE_PARTY, record, gain=gain, cover=cover)
            places[int(tree.left[node])], places[int(tree.right[node])] = children
        else:
            arrays.leaf(place, means[node], cover=cover)
    return arrays.finished()


def _means(tree: Tree) -> NDArray[np.float32]:
    """The mean of the leaves below each node: float32 (nodes,) or (nodes, outputs)."""
    means = tree.weight.astype(np.float64)
    for node in np.flatnonzero(tree.owner != LEAF)[::-1].tolist():  # children stand behind
        left, right = int(tree.left[node]), int(tree.right[node])
        parts = np.array([tree.cover[left], tree.cover[right]], np.float64)
        share = parts / parts.sum() if parts.sum() > 0 else np.full(2, 0.5)
        means[node] = share[0] * means[left] + share[1] * means[right]
    return means.astype(np.float32)


def _records(table: LookupTable, kept: Sequence[int] | NDArray[np.int32]) -> LookupTable:
    """The records ``kept`` of ``table``, in that order."""
    sets = table.category_sets
    return table.model_copy(
        update={
            "feature": table.feature[kept],
            "threshold": table.threshold[kept],
            "default_left": table.default_left[kept],
            "category_sets": tuple(sets[record] for record in kept) if sets else (),
        }
    )
