"""Sums of gradients that travel in the clear: a passive party adds them as integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.node_rows import marked, span
from fedmq.boosting.splits import parent, plan_level
from fedmq.errors import MessageError
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf, Query, SizeLimit
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, Reply, Values

__all__ = [
    "CleartextPassive",
    "carried_row_pieces",
    "checked_pairs",
    "largest_reply",
]


def carried_row_pieces(
    gradients: Gradients, bytes_per_row: int, piece_bytes: int = PIECE_BYTES
) -> list[NDArray[np.uint32]]:
    """The rows that carry a gradient, ascending: uint32 pieces of about one length, at least one.

    ``bytes_per_row``: the bytes of a row in a message, row number included.
    """
    carried = gradients.carried
    rows = np.arange(len(carried), dtype=np.uint32)
    if not carried.all():
        rows = rows.compress(carried)
    most = piece_bytes // bytes_per_row
    return np.array_split(rows, max(1, -(-len(rows) // most)))


SUM_BYTES = 16


def largest_reply(candidates: int, outputs: int = 1) -> SizeLimit:
    """The size of the sums of ``candidates`` candidates, as `CleartextPassive` sends them."""
    return SizeLimit.of(candidates, SUM_BYTES * outputs, _sums_per_piece(outputs))


def _sums_per_piece(outputs: int) -> int:
    return PIECE_BYTES // (SUM_BYTES * outputs)


def checked_pairs(values: Values, name: str, outputs: int = 1) -> NDArray[np.int64]:
    """The pairs of g and h in ``values[name]``: int64 (n, 2 * outputs).

    They may have come as float32.

    Raises:
        MessageError: they are missing, of another type or shape, or no whole numbers.
    """
    pairs = values.get(name)
    shape = (2 * outputs,)
    if not isinstance(pairs, np.ndarray) or pairs.shape[1:] != shape:
        raise MessageError(f"{name}: pairs of g and h are needed")
    whole = pairs
    if pairs.dtype == np.float32:
        with np.errstate(invalid="ignore"):
            whole = pairs.astype(np.int64)
    if whole.dtype != np.int64 or not (whole is pairs or np.array_equal(whole, pairs)):
        raise MessageError(f"{name}: pairs of g and h as whole numbers are needed")
    return whole


class CleartextPassive(PassiveHalf):
    """The passive party's half of an engine that discloses gradients, perturbed or not."""

    def __init__(self, bins: BinMatrix) -> None:
        self._bins = bins
        self._outputs = 1
        self.forget_tree()

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._outputs = outputs
        self.forget_tree()

    def forget_tree(self) -> None:
        self._pairs = np.zeros((self._bins.n_rows, 2 * self._outputs), dtype=np.int64)
        self._carried = np.zeros(self._bins.n_rows, dtype=np.bool_)
        self._histograms: dict[int, NDArray[np.int64]] = {}

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        pairs = checked_pairs(piece.values, "pairs", self._outputs)
        if len(pairs) != len(piece.rows):
            raise MessageError(f"{len(pairs)} gradients for {len(piece.rows)} rows")
        rows = span(piece.rows)
        self._pairs[rows] = pairs
        self._carried[rows] = True
        return
        yield

    def sums_bytes(self, nodes: int) -> int:
        return nodes * self._bins.cuts.n_cells * SUM_BYTES * self._outputs

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        rows = {query.node: marked(query.rows, self._carried) for query in queries}
        level = plan_level({node: len(held) for node, held in rows.items()}, self._histograms)
        step = histograms.bind(self._bins, self._pairs, [rows[node] for node in level.summed])
        [summed] = yield Compute([step])
        self._histograms |= zip(level.summed, summed, strict=True)
        for node, smaller in level.subtracted:
            self._histograms[node] = self._histograms[parent(node)] - self._histograms[smaller]
        for query in queries:
            left = query.candidates.left_sums(self._histograms[query.node])[query.order]
            size = _sums_per_piece(self._outputs)
            starts = range(0, max(len(left), 1), size)
            yield Reply(
                query.node,
                [{"left": left[start : start + size]} for start in starts],
            )
