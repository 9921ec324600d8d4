"""Which nodes of a level are contested when, where sums are hidden? Once all were asked about.

A contest takes nodes with as many candidates each: all of a level, or each alone where nodes draw
their columns. It takes the label holder's own best of each, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.privacy.engine import Best, Contest, Place
from fedmq.protocol.training.consistency import NodeAnswer
from fedmq.protocol.training.level import Level
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["Contests", "offer_of"]


class Contests:
    """Those of ``level`` with each of ``peers``."""

    def __init__(
        self, level: Level, peers: Sequence[str], builder: TreeBuilder, params: TrainParams
    ) -> None:
        self._level = level
        self._builder = builder
        self._least_gain = max(float(np.nextafter(SMALLEST_GAIN, np.float32(1))), params.gamma)
        self._together = params.colsample_bylevel == params.colsample_bynode == 1
        self._candidates: dict[str, dict[int, int]] = {peer: {} for peer in peers}
        """How many were answered for, by node."""
        self._begun = False

    @property
    def tree(self) -> int:
        """The tree of the level."""
        return self._level.tree

    @property
    def peers(self) -> set[str]:
        """All who were asked."""
        return set(self._candidates)

    def answered(self, peer: str, nodes: Sequence[int], candidates: Sequence[int]) -> None:
        """``peer`` has answered for so many candidates in each of ``nodes``."""
        self._candidates[peer] |= zip(nodes, candidates, strict=True)

    def next(self) -> Iterator[tuple[tuple[int, ...], Mapping[str, tuple[int, Contest]]]]:
        """Groups of nodes, once all is known of the level: candidates of a node, and contest.

        By peer, in the order of the chain, in which nobody stands without a candidate.
        """
        nodes, counts = self._level.nodes, self._candidates
        own = all(LABEL_HOLDER in self._level.offers(node) for node in nodes)
        if self._begun or not own or any(len(count) < len(nodes) for count in counts.values()):
            return
        self._begun = True
        for group in [nodes] if self._together else [(node,) for node in nodes]:
            counted = {peer: self._count(peer, group) for peer in counts}
            chain = [peer for peer, count in counted.items() if count]
            yield (
                group,
                {
                    peer: (counted[peer], self._contest(group, Place(number, len(chain))))
                    for number, peer in enumerate(chain, start=1)
                },
            )

    def _count(self, peer: str, nodes: Sequence[int]) -> int:
        """Candidates of ``peer`` in each of ``nodes``."""
        counts = [self._candidates[peer][node] for node in nodes]
        claim = NodeAnswer(peer, self._level.tree, nodes[0])
        claim.check_count(max(counts), min(counts))
        return counts[0]

    def _contest(self, nodes: tuple[int, ...], place: Place) -> Contest:
        best = [self._level.offers(node)[LABEL_HOLDER].gain for node in nodes]
        totals = np.stack([self._builder.totals(node) for node in nodes])
        return Contest(nodes, totals, np.array(best, np.float32), place)

    def gain(self, peer: str, node: int, left: NDArray[np.bool_]) -> float:
        """What ``node`` gained by a split of ``peer``, by which rows went left.

        Raises:
            Inconsistent: so little that it cannot have won.
        """
        gain, best = self._builder.gain(node, left), self._level.offers(node)[LABEL_HOLDER].gain
        NodeAnswer(peer, self._level.tree, node).check_gain(gain, best, self._least_gain)
        return gain


def offer_of(*, won: bool) -> Best:
    """What is known of a peer's best candidate: that it gains more than the label holder's."""
    return Best(np.inf if won else -np.inf, np.empty(0, np.uint32))
