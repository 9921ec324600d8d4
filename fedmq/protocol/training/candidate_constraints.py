"""What does the label holder know of the columns of candidates, under interaction constraints?

Which constraints hold the column of each opaque candidate, told with the sums of a node; below a
split of the root by a column in none, which candidates are that column's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ALONE
from fedmq.errors import ProtocolError
from fedmq.messages.array import Bitmap
from fedmq.messages.training import HistogramReply
from fedmq.protocol.training.consistency import NodeAnswer

__all__ = ["CandidateConstraints", "shown_constraints"]


def shown_constraints(constraints: NDArray[np.uint64], count: int) -> tuple[Bitmap, ...]:
    """The field of the first piece of a reply: a bitmap for each of ``count`` constraints, one more
    for a column that is alone. ``constraints`` uint64 (candidates,), as shown.
    """
    bits = [*(np.uint64(1 << number) for number in range(count)), ALONE]
    return tuple(Bitmap.of((constraints & bit) != 0) for bit in bits)


class CandidateConstraints:
    """The constraints of candidates as peers showed them, by peer and node of a tree.

    ``count``: how many the training has; 0 where nobody shows any.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._shown: dict[tuple[str, int], NDArray[np.uint64]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though they are due, or the other way round.
            Inconsistent: there are more than candidates.
        """
        due = self._count + 1 if self._count and body.piece == 0 else 0
        lengths = {bitmap.count for bitmap in body.constraints}
        if len(body.constraints) != due or len(lengths) > 1:
            raise ProtocolError(f"constraints of the candidates of node {body.node}, out of place")
        if not due:
            return
        claim = NodeAnswer(peer, body.tree, body.node)
        claim.check_count(max(lengths), candidates)
        shown = np.zeros(max(lengths), np.uint64)
        for number, bitmap in enumerate(body.constraints):
            bit = ALONE if number == self._count else np.uint64(1 << number)
            shown |= np.where(bitmap.numpy(), bit, np.uint64(0))
        self._shown[peer, body.node] = shown

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.uint64]:
        """Those of all that ``peer`` showed in ``node``; zeros where there are no constraints.

        Raises:
            ProtocolError: they are not as many as candidates.
        """
        if not self._count:
            return np.zeros(candidates, np.uint64)
        shown = self._shown[peer, node]
        if len(shown) != candidates:
            raise ProtocolError(
                f"constraints of {len(shown)} candidates, node {node} has {candidates}"
            )
        return shown
