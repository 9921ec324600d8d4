"""Which offers were made for the nodes of a tree, and which of them are taken next?"""

from __future__ import annotations

from collections.abc import Sequence

from fedmq.boosting.driver import Driver
from fedmq.boosting.params import TrainParams
from fedmq.privacy.engine import Best
from fedmq.protocol.training.level import Level

__all__ = ["Offers"]


class Offers:
    """The best offer for each scored node of a tree, and its owner."""

    def __init__(self, params: TrainParams) -> None:
        self._driver = Driver(params)
        self._winners: dict[int, tuple[int, Best]] = {}

    def add(self, level: Level) -> None:
        """Take the winners of a level that is scored."""
        for node in level.nodes:
            self._winners[node] = level.winner(node)
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
