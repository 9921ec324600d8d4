"""A broadcast that discloses which rows carry gradients, and no gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import Gradients
from fedmq.privacy.carried_rows import carried_row_pieces
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf
from fedmq.privacy.plan import Plan

__all__ = ["RowNumbersPassive", "broadcast_row_numbers"]

_BYTES_PER_ROW = 4


def broadcast_row_numbers(gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
    """The plans of an active half that broadcasts the numbers of the rows that carry gradients."""
    return [_row_numbers(rows) for rows in carried_row_pieces(gradients, _BYTES_PER_ROW)]


def _row_numbers(rows: NDArray[np.uint32]) -> Plan[BroadcastPiece]:
    return BroadcastPiece(rows, {})
    yield


class RowNumbersPassive(PassiveHalf):
    """A feature holder's half that receives such a broadcast; engines add how it answers."""

    def __init__(self, bins: BinMatrix) -> None:
        self.bins = bins
        self.forget_tree()

    def forget_tree(self) -> None:
        self._carried = np.zeros(self.bins.n_rows, dtype=np.bool_)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        self._carried[piece.rows] = True
        return
        yield

    def carrying(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of ``rows`` that carry gradients."""
        return rows[self._carried[rows]]
