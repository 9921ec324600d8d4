"""A broadcast that discloses which rows carry gradients, and no gradients."""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.privacy.carried_rows import carried_row_pieces
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf, Query
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
        self._secret = secrets.token_bytes(32)
        self.forget_tree()

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._secret = secret or self._secret

    def seed(self, query: Query) -> int:
        """Of what is random in the answer to ``query``: no other round or node has it."""
        place = struct.pack(">QQQ", query.tree, query.node, query.round)
        return int.from_bytes(hmac.digest(self._secret, place, "sha256")[:16], "big")

    def forget_tree(self) -> None:
        self._carried = np.zeros(self.bins.n_rows, dtype=np.bool_)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        self._carried[piece.rows] = True
        return
        yield

    def carrying(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of ``rows`` that carry gradients."""
        return rows[self._carried[rows]]
