"""Which rows stand in which node while a tree grows, as a passive party sees it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ROOT, children, depth

__all__ = ["NodeRows"]


class NodeRows:
    """The ``rows`` of a session by node; all of them in every node where the engine hides rows.

    Nodes that no other party asks about any more, at ``max_depth``, are not kept.
    """

    def __init__(self, rows: int, max_depth: int, *, hidden: bool) -> None:
        self.hidden = hidden
        self.carrying = np.zeros(rows, dtype=np.bool_)
        """The rows that carry a gradient, as far as this party knows."""
        self._max_depth = max_depth
        self._rows = {ROOT: np.arange(rows, dtype=np.int32)}

    def rows(self, node: int) -> NDArray[np.int32] | None:
        """The rows that may stand in ``node`` (int32, ascending); None for no such node."""
        return self._rows.get(ROOT if self.hidden else node)

    def divide(self, node: int, left: NDArray[np.bool_]) -> None:
        """Split ``node``; ``left`` is over its rows. Where rows are hidden, nothing changes."""
        if self.hidden:
            return
        rows = self._rows.pop(node)
        if depth(node) + 1 < self._max_depth:
            self._rows |= zip(children(node), (rows[left], rows[~left]), strict=True)

    def check(self) -> None:
        """Raise AssertionError where a row stands in two nodes."""
        standing = np.concatenate([np.empty(0), *self._rows.values()])
        assert len(np.unique(standing)) == len(standing)
