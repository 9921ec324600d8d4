"""What do the reasons of sealed scores tell of the leaves at which people end?

Each party's part is a sum over coalitions of passive parties (`fedmq.boosting.model.party_parts`),
so it depends on which slots they allow, also off a person's way. The active party lists all ways
in which a tree's splits of others may fall, and looks for those that come to the parts it reads.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.boosting.model.party_parts import PartyParts
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.leaves_from_scores import guessed_leaves, likeliest_leaves
from fedmq.privacy.sealed_scores.packing import FixedPoint

__all__ = ["leaves_from_reasons"]

_MOST_WAYS = 1024
"""Of a tree: a tree with more tells nothing here, and is not judged."""


def leaves_from_reasons(
    share: ActiveShare,
    slots: LeafSlots,
    values: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    where: str,
) -> Finding | None:
    """The share of leaves that the parts of parties tell; None if no tree is open.

    ``values`` (rows, features) of the active party, ``allowed`` bool (parties, rows, slots): the
    slots that the passive parties allow, in the order of ``share.asked``. ``where`` says of what.
    """
    parts = PartyParts.of(share, slots)
    point = FixedPoint.for_sums(parts.largest, len(slots.roots) << len(share.asked))
    own = slots.allowed(values)
    right = chance = judged = 0
    trees = [_Ways(share, slots, root) for root in _roots(slots)]
    for person in range(len(values)):
        found, _ = parts.numbers(values[person : person + 1])
        numbers = np.rint(np.ldexp(found[0], point.bits)).astype(np.int64)
        open_trees = [tree for tree in trees if own[person, tree.slots].sum() > 1 and tree.ways]
        if not open_trees:
            continue
        told, covers, leaves, truths = [], [], [], []
        for tree in open_trees:
            ways, here = np.stack(tree.ways), numbers[..., tree.slots]
            told.append(_sums(here, ways))
            covers.append(np.array(tree.chances))
            ended = own[person, tree.slots] & ways.all(axis=1)
            leaves.append(ended.argmax(axis=1))
            truths.append(allowed[:, person, tree.slots][np.newaxis])
        total = sum(
            _sums(numbers[..., tree.slots], truth)[0]
            for tree, truth in zip(open_trees, truths, strict=True)
        )
        guessed, likely = guessed_leaves(told, covers, np.asarray(total)), likeliest_leaves(covers)
        for place, truth in enumerate(truths):
            ended = own[person, open_trees[place].slots] & truth[0].all(axis=0)
            right += leaves[place][guessed[place]] == ended.argmax()
            chance += leaves[place][likely[place]] == ended.argmax()
        judged += len(open_trees)
    if not judged:
        return None
    return Finding(
        "leaves from reasons", "leaves of people", where, "share", right / judged, chance / judged
    )


def _sums(numbers: NDArray[np.int64], ways: NDArray[np.bool_]) -> NDArray[np.int64]:
    """What ``ways`` (n, parties, slots) add to parts: (n, players)."""
    coalitions = numbers.shape[1] + 1
    sums = np.zeros((len(ways), len(numbers)), np.int64)
    for coalition in range(1, coalitions):
        members = [place for place in range(ways.shape[1]) if coalition >> place & 1]
        together = reduce(np.logical_and, (ways[:, place] for place in members))
        sums += together.astype(np.int64) @ numbers[:, coalition - 1].T
    return sums


def _roots(slots: LeafSlots) -> list[int]:
    return [int(slots.forest.roots[tree]) for tree in np.unique(slots.trees)]


class _Ways:
    """How the splits of passive parties may fall in a tree: ``ways`` bool (parties, slots) each.

    ``chances`` of each, as the training's cover has them; ``slots``: those of the tree.
    """

    def __init__(self, share: ActiveShare, slots: LeafSlots, root: int) -> None:
        self._forest = slots.forest
        self._cover = np.concatenate([tree.cover for tree in share.used_trees]).astype(np.float64)
        self._place = {share.parties.index(name): at for at, name in enumerate(share.asked)}
        self._slot_roots = set(slots.roots.tolist())
        tree = int(np.searchsorted(slots.forest.roots, root))
        self.slots = np.flatnonzero(slots.trees == tree)
        found = (self._below(root) or {}).values()
        self.ways = [way for way, _ in found]
        self.chances = [chance for _, chance in found]

    def _below(self, node: int) -> dict[bytes, tuple[NDArray[np.bool_], float]] | None:
        if node in self._slot_roots:
            one = np.ones((len(self._place), 1), np.bool_)
            return {one.tobytes(): (one, 1.0)}
        forest = self._forest
        children = int(forest.left[node]), int(forest.right[node])
        left, right = (self._below(child) for child in children)
        if left is None or right is None or len(left) * len(right) > 4 * _MOST_WAYS:
            return None
        found: dict[bytes, tuple[NDArray[np.bool_], float]] = {}
        owner = int(forest.owner[node])
        shares = self._cover[list(children)] / max(self._cover[list(children)].sum(), 1e-9)
        for one, first in left.values():
            for other, second in right.values():
                if owner == ACTIVE_PARTY:
                    _add(found, np.hstack([one, other]), first * second)
                    continue
                for closed, share in ((1, shares[0]), (0, shares[1])):
                    both = [one.copy(), other.copy()]
                    both[closed][self._place[owner]] = False
                    _add(found, np.hstack(both), first * second * share)
        return found if len(found) <= _MOST_WAYS else None


def _add(
    found: dict[bytes, tuple[NDArray[np.bool_], float]], way: NDArray[np.bool_], chance: float
) -> None:
    key = way.tobytes()
    found[key] = way, chance + (found[key][1] if key in found else 0.0)
