"""No secrecy: gradients and sums travel as they are. For tests and as a baseline only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.histogram import histograms
from fedmq.errors import MessageError
from fedmq.privacy.engine import (
    PIECE_BYTES,
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Compute,
    Engine,
    Exchange,
    Leakage,
    PassiveHalf,
    Plan,
    Query,
    Reply,
    Sums,
    Values,
)
from fedmq.privacy.siblings import plan_wave

__all__ = ["Plain", "PlainPassive", "told_pairs"]

_ROWS_PER_PIECE = PIECE_BYTES // 20  # 16 bytes of g and h, 4 of the row number
_SUMS_PER_PIECE = PIECE_BYTES // 16


class Plain(Engine):
    """The reference that every exact engine must equal."""

    name = "plain"
    exact = True
    light = True
    leakage = Leakage(
        active="the sums of g and h of every split candidate of a passive party",
        passive="every g and h, and so the labels; who stands in which node",
    )

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active()

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return PlainPassive(bins)


def told_pairs(values: Values, name: str) -> NDArray[np.int64]:
    """The int64 pairs (n, 2) in ``values``; MessageError where they are missing."""
    pairs = values.get(name)
    if not isinstance(pairs, np.ndarray) or pairs.dtype != np.int64 or pairs.shape[1:] != (2,):
        raise MessageError(f"{name}: pairs of g and h as int64 are needed")
    return pairs


class _Active(ActiveHalf):
    def open(self) -> Plan[Values]:
        return {}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        pieces = np.array_split(rows, max(1, -(-len(rows) // _ROWS_PER_PIECE)))
        return [self._piece(piece, gradients.pairs) for piece in pieces]

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.int64]) -> Plan[BroadcastPiece]:
        return BroadcastPiece(rows, {"pairs": pairs[rows]})
        yield

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        return Sums(np.concatenate([told_pairs(piece, "left") for piece in pieces]))


@dataclass(frozen=True, slots=True, eq=False)
class _SumBins:
    bins: BinMatrix
    pairs: NDArray[np.int64]
    nodes: Sequence[NDArray[np.int32]]

    def run(self) -> NDArray[np.int64]:
        return histograms(self.bins, self.pairs, self.nodes)


class PlainPassive(PassiveHalf):
    """Adds up the gradients that it was told, as integers."""

    def __init__(self, bins: BinMatrix) -> None:
        self._bins = bins
        self.forget_tree()

    def forget_tree(self) -> None:
        self._pairs = np.zeros((self._bins.n_rows, 2), dtype=np.int64)
        self._carried = np.zeros(self._bins.n_rows, dtype=np.bool_)
        self._histograms: dict[int, NDArray[np.int64]] = {}

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        pairs = told_pairs(piece.values, "pairs")
        if len(pairs) != len(piece.rows):
            raise MessageError(f"{len(pairs)} gradients for {len(piece.rows)} rows")
        self._pairs[piece.rows] = pairs
        self._carried[piece.rows] = True
        return
        yield

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        rows = {query.node: query.rows[self._carried[query.rows]] for query in queries}
        wave = plan_wave({node: len(held) for node, held in rows.items()}, self._histograms)
        step = _SumBins(self._bins, self._pairs, [rows[node] for node in wave.summed])
        [summed] = yield Compute([step])
        self._histograms |= zip(wave.summed, summed, strict=True)
        for node, sibling in wave.subtracted:
            parent = self._histograms[node // 2]
            self._histograms[node] = parent - self._histograms[sibling]
        for query in queries:
            left = query.candidates.left_sums(self._histograms[query.node])[query.order]
            starts = range(0, max(len(left), 1), _SUMS_PER_PIECE)
            yield Reply(
                query.node,
                [{"left": left[start : start + _SUMS_PER_PIECE]} for start in starts],
            )
