"""Which candidate of which party splits a node, and which node is split next?

Every party makes an offer for a node: the best of its candidates. The largest gain wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import Driver
from fedmq.privacy.engine import Best
from fedmq.protocol.training.level import Level

__all__ = ["SplitChoice"]


class SplitChoice:
    """The best offer for each scored node of a tree, and its owner."""

    def __init__(self, params: TrainParams) -> None:
        self._driver = Driver(params)
        self._winners: dict[int, tuple[int, Best]] = {}

    def add(self, level: Level) -> None:
        """Choose among the offers for each node of a level that is scored."""
        for node in level.nodes:
            self._winners[node] = _winner(level.offers(node))
            self._driver.push(node, self._winners[node][1].gain)

    def pop(self) -> Sequence[tuple[int, int, Best]]:
        """Node, owner and offer of what is split next; nothing when the tree has grown."""
        return [(node, *self._winners[node]) for node in self._driver.pop()]

    def best(self, node: int) -> Best:
        """The offer for ``node``."""
        return self._winners[node][1]

    def expands_below(self, node: int) -> bool:
        """Whether the children of ``node``, which was popped, may be split."""
        return self._driver.expands_below(node)


def _winner(offers: Mapping[int, Best]) -> tuple[int, Best]:
    """The owner of the best offer, and the offer; the first owner wins ties."""
    owner = max(offers, key=lambda owner: (offers[owner].gain, -owner))
    return owner, offers[owner]
