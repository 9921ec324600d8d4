"""How do the shares of a model and of the trees that continue it become one?

Or, where no tree follows, those of a model whose leaves are weighed anew?
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fedmq.boosting.model.share import WITHHELD_NOTHING, ActiveShare, PassiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, LookupTable, Tree
from fedmq.boosting.splits import ROOT, children

__all__ = [
    "continued_active",
    "continued_passive",
    "places_digest",
    "places_of",
    "refreshed_active",
    "refreshed_passive",
]

Place = tuple[int, int]
"""A tree and a node of it, by its number as in a heap."""


def continued_active(earlier: ActiveShare, share: ActiveShare) -> ActiveShare:
    """``share``, whose trees continue ``earlier``, with the trees of both."""
    owners = np.array([share.parties.index(party) for party in earlier.parties])
    records = {
        owner: _records(earlier, party) for owner, party in enumerate(share.parties)
    }  # the new trees' records come after them
    trees = (
        *(_renamed(tree, owners) for tree in earlier.trees),
        *(_following(tree, records) for tree in share.trees),
    )
    rounds = len(earlier.trees) // earlier.params.trees_per_round
    params = share.params
    withheld = {
        party: share.withheld.get(party, WITHHELD_NOTHING).and_of(
            earlier.withheld.get(party, WITHHELD_NOTHING)
        )
        for party in {**earlier.withheld, **share.withheld}
    }
    best = share.best_iteration
    return ActiveShare(
        model_id=share.model_id,
        lookup_table=earlier.lookup_table.followed_by(share.lookup_table),
        parties=share.parties,
        params=params.model_copy(update={"num_boost_round": params.num_boost_round + rounds}),
        trees=trees,
        best_iteration=None if best is None else best + rounds,
        history=share.history,
        withheld=withheld,
        inexact_engine=share.inexact_engine,
        earlier_trees=len(earlier.trees),
        earlier_departures=earlier.departures,
        lacked_at={  # a party without splits before has no earlier directions
            party: lacked
            for party, lacked in share.lacked_at.items()
            if party in earlier.lacked_at or party not in earlier.asked
        },
    )


def continued_passive(earlier: PassiveShare, share: PassiveShare, trees: int) -> PassiveShare:
    """``share`` of trees that follow the ``trees`` of ``earlier``, with the records of both."""
    later = tuple((tree + trees, node) for tree, node in share.places)
    return PassiveShare(
        model_id=share.model_id,
        party=share.party,
        lookup_table=earlier.lookup_table.followed_by(share.lookup_table),
        places=earlier.places + later,
        withheld=share.withheld.and_of(earlier.withheld),
    )


def refreshed_active(
    earlier: ActiveShare, share: ActiveShare, model: str, parties: tuple[str, ...]
) -> ActiveShare:
    """``share``, ``earlier`` with other leaves, as ``model`` of ``parties`` in this order."""
    owners = np.array([parties.index(party) for party in earlier.parties])
    kept = [tree.record[tree.owner == ACTIVE_PARTY] for tree in share.trees]
    return share.model_copy(
        update={
            "model_id": model,
            "parties": parties,
            "trees": tuple(_renamed(tree, owners) for tree in share.trees),
            "lookup_table": _first(earlier.lookup_table, sum(map(len, kept))),
            "earlier_departures": earlier.departures,
            "earlier_trees": 0,
            "refreshes": earlier.model_id,
            "fallback_of": "",
            "shift": 0.0,
            "training": "",
        }
    )


def refreshed_passive(earlier: PassiveShare, model: str, trees: int) -> PassiveShare:
    """The share of a ``model`` that has the first ``trees`` of ``earlier``."""
    places = tuple(place for place in earlier.places if place[0] < trees)
    return PassiveShare(
        model_id=model,
        party=earlier.party,
        lookup_table=_first(earlier.lookup_table, len(places)),
        places=places,
        withheld=earlier.withheld,
    )


def places_of(share: ActiveShare, party: str) -> tuple[Place, ...]:
    """Where the records of ``party`` stand in the trees of ``share``, in the order of records."""
    owner, found = share.parties.index(party), {}
    for number, tree in enumerate(share.trees):
        numbers = {0: ROOT}
        for node in np.flatnonzero(tree.owner != LEAF).tolist():  # parents before children
            below = children(numbers[node])
            numbers |= zip((int(tree.left[node]), int(tree.right[node])), below, strict=True)
            if tree.owner[node] == owner:
                found[int(tree.record[node])] = (number, numbers[node])
    return tuple(found[record] for record in sorted(found))


def places_digest(places: Iterable[Place]) -> bytes:
    """The fingerprint of a training's records: SHA-256, 32 bytes."""
    digest = hashlib.sha256()
    for tree, node in places:
        digest.update(tree.to_bytes(8, "big") + node.to_bytes(8, "big"))
    return digest.digest()


def _records(earlier: ActiveShare, party: str) -> int:
    if party not in earlier.parties:
        return 0
    owner = earlier.parties.index(party)
    return sum(int(np.count_nonzero(tree.owner == owner)) for tree in earlier.trees)


def _first(table: LookupTable, records: int) -> LookupTable:
    """The ``table`` up to so many ``records``: those of the first trees."""
    sets = table.category_sets[:records]
    return table.model_copy(
        update={
            "feature": table.feature[:records],
            "threshold": table.threshold[:records],
            "default_left": table.default_left[:records],
            "category_sets": sets if any(sets) else (),
        }
    )


def _renamed(tree: Tree, owners: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tree:
    """``tree`` with new numbers for its owners."""
    owner = np.where(tree.is_leaf, LEAF, owners[tree.owner])
    return tree.model_copy(update={"owner": owner.astype(np.int16)})


def _following(tree: Tree, records: dict[int, int]) -> Tree:
    """``tree`` with its record ids moved behind ``records`` of each owner."""
    before = np.array([records.get(owner, 0) for owner in tree.owner.tolist()])
    return tree.model_copy(update={"record": (tree.record + before).astype(np.int32)})
