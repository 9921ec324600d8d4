"""Which of the scored nodes are split next? XGBoost's ``Driver`` (``driver.h``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedmq.boosting.node_numbers import ROOT, children, depth
from fedmq.boosting.params import TrainParams
from fedmq.boosting.split import is_worthwhile

__all__ = ["Driver"]

_BATCH = 256
"""XGBoost takes so many nodes of a level at once."""


class _Entry(NamedTuple):
    """A scored node; ``number`` counts nodes in the order in which they came to be."""

    node: int
    number: int
    gain: float


class Driver:
    """The nodes of one tree that wait to be split, and how many leaves there are."""

    def __init__(self, params: TrainParams) -> None:
        self._params = params
        self._waiting: list[_Entry] = []
        self._leaves = 1
        self._numbers = {ROOT: 0}
        self._ended = False

    def push(self, node: int, gain: float) -> None:
        """``node`` could be split with this gain; one that gains nothing is not kept."""
        if gain > np.float32(1e-6):
            self._waiting.append(_Entry(node, self._numbers[node], gain))

    def pop(self) -> list[int]:
        """The nodes to split now: a level, or the one that gains most; none when all has grown."""
        if self._ended or not self._waiting:
            return []
        lossguide = self._params.grow_policy == "lossguide"
        popped = self._most_gain() if lossguide else self._level()
        for node in popped:
            for child in children(node):
                self._numbers[child] = len(self._numbers)
        return popped

    def expands_below(self, node: int) -> bool:
        """Whether the children of ``node``, which was popped, may be split."""
        deep = depth(node) + 1 >= self._params.depth_limit
        return not (deep or self._is_full or self._ended)

    @property
    def _is_full(self) -> bool:
        return 0 < self._params.max_leaves <= self._leaves

    def _most_gain(self) -> list[int]:
        entry = min(self._waiting, key=lambda entry: (-entry.gain, entry.number))
        self._waiting.remove(entry)
        if self._is_full or not is_worthwhile(entry.gain, self._params):
            return []
        self._leaves += 1
        return [entry.node]

    def _level(self) -> list[int]:
        nodes, behind = [], 0
        for entry in sorted(self._waiting):
            if self._is_full or not is_worthwhile(entry.gain, self._params):
                behind += 1
                continue
            self._leaves += 1
            nodes.append(entry.node)
            behind = 0
        self._waiting = []
        # Where a batch is full and none of the rest of its level is worth a split, XGBoost pops
        # nothing next, and takes that for the end of the tree.
        self._ended = bool(nodes) and len(nodes) % _BATCH == 0 and behind > 0
        return nodes
