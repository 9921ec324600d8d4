"""No secrecy: gradients and sums travel as they are. For tests and as a baseline only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.node_rows import span
from fedmq.privacy.cleartext_sums import (
    CleartextPassive,
    carried_row_pieces,
    checked_pairs,
    largest_reply,
)
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    Leakage,
    PassiveHalf,
    SizeLimit,
    Sums,
    Traits,
)
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Exchange, Plan, Values

__all__ = ["Plain"]


class Plain(Engine):
    """The reference that every exact engine must equal."""

    name = "plain"
    traits = Traits(exact=True, takes_vectors=True, replays=True, light=True, narrow=True)
    leakage = Leakage(
        active="the sums of g and h of every split candidate of a passive party",
        passive="every g and h, and so the labels; who stands in which node",
    )

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active()

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return CleartextPassive(bins)


class _Active(ActiveHalf):
    _outputs = 1

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        self._outputs = outputs

    def open(self) -> Plan[Values]:
        return {}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        pairs = _narrow(gradients.pairs)
        row_number = 0 if gradients.carried.all() else 4
        row_bytes = pairs[:1].nbytes + row_number
        pieces = carried_row_pieces(gradients, row_bytes, LARGEST_PIECE_BYTES)
        return [self._piece(rows, pairs) for rows in pieces]

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.generic]) -> Plan[BroadcastPiece]:
        return BroadcastPiece(rows, {"pairs": pairs[span(rows)]})
        yield

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return largest_reply(candidates, self._outputs)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        return Sums(
            np.concatenate([checked_pairs(piece, "left", self._outputs) for piece in pieces])
        )


_ROWS_AT_ONCE = 2**16  # in a cache


def _narrow(pairs: NDArray[np.int64]) -> NDArray[np.generic]:
    """``pairs`` as float32, where these are the same numbers, and else as they are.

    An integer of fixed point has the 24 bits of the float32 that it was, or fewer.
    """
    narrow = np.empty(pairs.shape, np.float32)
    for start in range(0, len(pairs), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        narrow[part] = pairs[part]
        if not np.array_equal(narrow[part].astype(np.int64), pairs[part]):
            return pairs
    return narrow
