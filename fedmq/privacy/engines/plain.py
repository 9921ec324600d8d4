"""No secrecy: gradients and sums travel as they are. For tests and as a baseline only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.node_rows import span
from fedmq.computation import computation
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
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Exchange, Plan, Values, single

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
        row_number = 0 if gradients.carried.all() else 4
        row_bytes = _NARROW_BYTES * gradients.pairs.shape[1] + row_number
        pieces = carried_row_pieces(gradients, row_bytes, LARGEST_PIECE_BYTES)
        return [self._piece(rows, gradients.pairs) for rows in pieces]

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.int64]) -> Plan[BroadcastPiece]:
        sent = pairs[span(rows)]
        # A few are narrowed faster than they are handed over.
        few = sent.nbytes <= _FEW_BYTES
        narrow = narrowed(sent) if few else (yield from single(narrowed.bind(sent)))
        return BroadcastPiece(rows, {"pairs": narrow})

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return largest_reply(candidates, self._outputs)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        return Sums(
            np.concatenate([checked_pairs(piece, "left", self._outputs) for piece in pieces])
        )


_NARROW_BYTES = 4  # of a number
_FEW_BYTES = 2**18


@computation("NarrowGradients", brief=True)
def narrowed(pairs: NDArray[np.int64]) -> NDArray[np.generic]:
    """``pairs`` as float32, where these are the same numbers, and else as they are: twice as long.

    An integer of fixed point has the 24 bits of the float32 that it was, or fewer.
    """
    narrow = pairs.astype(np.float32)
    return narrow if np.array_equal(narrow.astype(np.int64), pairs) else pairs
