"""What does the label holder know of candidates that are categories of one column?

Which candidates are those of a column that is split by sets, and in which order its owner has them;
told with the sums of a node. Neither the column nor its categories have names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.training import HistogramReply
from fedmq.protocol.training.consistency import NodeAnswer

__all__ = ["CandidateCategories", "shown_categories"]


def shown_categories(table: CandidateTable, order: NDArray[np.int64]) -> tuple[Array, ...]:
    """The field of the first piece of a reply; ``order``: which of ``table`` are shown, and how."""
    positions = np.full(len(table), -1, np.int64)
    positions[order] = np.arange(len(order))
    shown = [positions[held] for held in table.categories]
    return tuple(Array.of(held.astype(np.uint32)) for held in shown if (held >= 0).all())


class CandidateCategories:
    """The columns of categories as peers showed them, by peer and node of a tree.

    ``by_sets``: the peers that announced such columns.
    """

    def __init__(self, by_sets: Collection[str]) -> None:
        self._by_sets = frozenset(by_sets)
        self._shown: dict[tuple[str, int], Sequence[NDArray[np.int64]]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: they are out of place, or one candidate stands twice.
            Inconsistent: there are more of them than candidates.
        """
        if not body.categories:
            return
        if peer not in self._by_sets or body.piece:
            raise ProtocolError(f"categories of the candidates of node {body.node}, out of place")
        columns = [array.numpy().astype(np.int64) for array in body.categories]
        together = np.concatenate(columns)
        claim = NodeAnswer(peer, body.tree, body.node)
        claim.check_count(int(together.max(initial=-1)) + 1, candidates)
        if min(map(len, columns)) < 2 or len(np.unique(together)) < len(together):
            raise ProtocolError(f"categories of the candidates of node {body.node} that overlap")
        self._shown[peer, body.node] = columns

    def of(self, peer: str, node: int, candidates: int) -> Sequence[NDArray[np.int64]]:
        """Those of all candidates that ``peer`` showed in ``node``.

        Raises:
            ProtocolError: they name candidates that were not shown.
        """
        columns = self._shown.get((peer, node), ())
        if any(int(column.max()) >= candidates for column in columns):
            raise ProtocolError(f"categories of node {node} beyond its {candidates} candidates")
        return columns
