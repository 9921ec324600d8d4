"""How much of a score is each party's part, as sums over slots of leaves?

Shapley values of the game whose players are parties: the columns of a party come and go together
(G. Owen, "Values of Games with A Priori Unions", 1977). The worth of a coalition S is

    v(S) = sum over slots l of w_l(S) * prod over p in S of o_lp * prod over p not in S of z_lp

where o_lp is 1 if the splits of party p allow the slot, and z_lp is the share of the training's
cover that they send there, as in `fedmq.boosting.model.contributions`. A part is a sum of worths
with weights that everybody knows. So it is a sum over slots and over coalitions of passive parties,
of what the active party knows times the zeros and ones of those in the coalition.

A coalition of passive parties is a number: its bit j stands for the party at place j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import expected_margin
from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF
from fedmq.errors import ConfigError

__all__ = ["PartyParts", "in_coalitions", "part_counts", "side_by_side"]


def part_counts(counts: Sequence[int], passive: int) -> tuple[int, ...]:
    """The slots of each part, by output and party, where outputs have so many: ``counts``.

    ``passive``: the number of passive parties.
    """
    return tuple(count * ((1 << passive) - 1) for count in counts for _ in range(passive + 1))


def side_by_side(numbers: NDArray[Any], counts: Sequence[int]) -> NDArray[Any]:
    """``numbers`` (rows, parties, coalitions, slots) as `part_counts` has them: (rows, ...)."""
    ends = np.cumsum(counts)[:-1]
    outputs = np.split(numbers, ends, axis=-1)
    return np.concatenate([output.reshape(len(numbers), -1) for output in outputs], axis=1)


def in_coalitions(
    allowed: NDArray[np.bool_], counts: Sequence[int], place: int, passive: int
) -> NDArray[np.bool_]:
    """What the passive party at ``place`` multiplies by: its ``allowed`` slots, bool (rows, slots),
    in the coalitions that have it, and ones in the others."""
    coalitions = np.arange(1, 1 << passive)
    without = (coalitions >> place & 1 == 0)[np.newaxis, np.newaxis, :, np.newaxis]
    every = without | allowed[:, np.newaxis, np.newaxis, :]
    shape = len(allowed), passive + 1, *every.shape[2:]
    return side_by_side(np.broadcast_to(every, shape), counts)


@dataclass(frozen=True, slots=True, eq=False)
class PartyParts:
    """What the active party knows of the parts of parties: it comes first, passive ones follow.

    ``inside`` (parties, coalitions): what the worth counts of a coalition of passive parties and
    the active party; ``outside``: of the coalition without it. ``shares`` (coalitions, slots): the
    product of z of passive parties that are not in it. ``means`` (slots,): w without the active
    party. ``expected`` (outputs,): the margin of a row of which nothing is known, less the base
    score's.
    """

    slots: LeafSlots
    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    shares: NDArray[np.float64]
    means: NDArray[np.float64]
    expected: NDArray[np.float64]
    alone: NDArray[np.float64]
    """The margins that trees of the active party alone give such a row; they are in it too."""

    @classmethod
    def of(cls, share: ActiveShare, slots: LeafSlots) -> Self:
        """The parts of scores of ``share``, whose slots are given.

        Raises:
            ConfigError: leaves are vectors.
        """
        if share.params.vector_outputs > 1:
            raise ConfigError("trees of vector leaves have no contributions, in XGBoost neither")
        passive = [share.parties.index(party) for party in share.asked]
        forest = slots.forest
        cover = np.concatenate([np.empty(0), *(tree.cover for tree in share.used_trees)])
        goes_left, goes_right = (_shares(cover, child) for child in (forest.left, forest.right))
        means = forest.weight.astype(np.float64)
        for node in np.flatnonzero(forest.owner != LEAF)[::-1].tolist():  # children before parents
            means[node] = (
                goes_left[node] * means[forest.left[node]]
                + goes_right[node] * means[forest.right[node]]
            )
        by_party = []
        for owner in (ACTIVE_PARTY, *passive):
            followed = np.ones(len(slots.roots))
            if (ranges := slots.ranges.get(owner)) is not None:
                node_of = np.zeros(int(ranges.record.max(initial=0)) + 1, np.int64)
                nodes = np.flatnonzero(forest.owner == owner)
                nodes = nodes[forest.record[nodes] < len(node_of)]
                node_of[forest.record[nodes]] = nodes
                for split, node in enumerate(node_of[ranges.record].tolist()):
                    start, middle, end = (
                        int(part[split]) for part in (ranges.start, ranges.middle, ranges.end)
                    )
                    followed[start:middle] *= goes_left[node]
                    followed[middle:end] *= goes_right[node]
            by_party.append(followed)
        own, *others = by_party
        coalitions = np.arange(1 << len(passive))
        shares = np.ones((len(coalitions), len(slots.roots)))
        for place, followed in enumerate(others):
            shares[coalitions >> place & 1 == 0] *= followed
        inside, outside = _weights(len(passive))
        expected = np.zeros(share.params.outputs)
        alone = np.zeros(share.params.outputs)
        sums_alone = set(slots.alone.tolist())
        for number, (tree, root) in enumerate(
            zip(share.used_trees, forest.roots.tolist(), strict=True)
        ):
            margin, output = expected_margin(tree), share.params.output_of(number)
            expected[output] += margin
            alone[output] += margin * (root in sums_alone)
        return cls(
            slots,
            inside,
            outside,
            shares,
            (means[slots.roots] - slots.centres) * own,
            expected,
            alone,
        )

    @property
    def largest(self) -> float:
        """No magnitude of a sum over slots and coalitions, of any output and part, is larger.

        A part is at most the sum of the spans of its trees. The empty coalition of passive parties,
        which the active party sums alone, has at most half of that in it.
        """
        return 3 * self.slots.largest

    def numbers(
        self, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What slots add to parts of rows with these own ``values`` (rows, features).

        First (rows, parties, coalitions, slots), without the empty coalition; what that one adds
        comes second, (rows, outputs, parties), with the trees that the active party sums alone.
        """
        weights, _ = self.slots.weights(values)
        everything = (
            self.inside[:, :, np.newaxis] * weights[:, np.newaxis, np.newaxis, :]
            + self.outside[:, :, np.newaxis] * self.means
        ) * self.shares
        clear = np.zeros((len(values), len(self.expected), len(self.inside)))
        ends = np.cumsum(self.slots.counts)[:-1]
        for output, part in enumerate(np.split(everything[:, :, 0], ends, axis=-1)):
            clear[:, output] = part.sum(axis=-1)
        clear[:, :, 0] += self.slots.sums_alone(values) - self.alone
        return everything[:, :, 1:], clear


def _shares(cover: NDArray[np.float64], child: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node, the share of its cover that goes to its ``child``; a half where there is none."""
    shares = np.full(len(cover), 0.5)
    np.divide(cover[child], cover, out=shares, where=cover > 0)
    return shares


def _weights(passive: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``inside`` and ``outside`` of `PartyParts`, (parties, coalitions) each."""
    players = passive + 1
    joins = [
        factorial(size) * factorial(players - size - 1) / factorial(players)
        for size in range(players)
    ]
    weights = np.zeros((2, players, 1 << passive))
    for coalition in range(1 << passive):
        for active in range(2):
            size = coalition.bit_count() + active
            members = [active, *(coalition >> place & 1 for place in range(passive))]
            for player, member in enumerate(members):
                weights[active, player, coalition] = joins[size - 1] if member else -joins[size]
    return weights[1], weights[0]
