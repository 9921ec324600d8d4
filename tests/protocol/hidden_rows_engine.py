"""Test-only engine whose passive half never learns who stands in a node.

A toy: the mask is a pad that the passive party itself made, so it hides nothing. It is shaped like
the real ones: something is exchanged once per session, nothing is broadcast, each node is asked
with a masked vector over *all* rows in pieces, and g and h take an exchange each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import Gradients
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    Leakage,
    PassiveHalf,
    Query,
    SizeLimit,
    Sums,
    Traits,
)
from fedmq.privacy.plan import Compute, Exchange, Plan, Reply, Values

_PIECES = 3


class HiddenRows(Engine):
    name = "hidden rows"
    traits = Traits(exact=True, hides_rows=True)
    leakage = Leakage(active="sums per candidate", passive="which nodes are asked")

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active()

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return _Passive(bins)


def _in_pieces(vector: NDArray[np.uint64]) -> list[Values]:
    return [{"part": part} for part in np.array_split(vector, _PIECES)]


def _joined(pieces: Sequence[Values]) -> NDArray[np.uint64]:
    return np.concatenate([piece["part"] for piece in pieces])


class _Active(ActiveHalf):
    def __init__(self) -> None:
        self._pads: dict[str, NDArray[np.uint64]] = {}
        self._gradients: Gradients

    def open(self) -> Plan[Values]:
        return {"modulus_bits": 64}
        yield

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        self._pads[peer] = _joined(pieces)
        return
        yield

    def largest_setup(self, candidates: int) -> SizeLimit:
        return SizeLimit(8, 1_000_000)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return SizeLimit(8, 1_000_000)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._gradients = gradients
        return ()

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        sums = []
        for column in (0, 1):
            vector = np.zeros(len(self._gradients.pairs), np.int64)
            vector[asked.rows] = self._gradients.pairs[asked.rows, column]
            pieces = yield Exchange(_in_pieces(vector.view(np.uint64) + self._pads[peer]))
            [answer] = yield Compute([_Join(tuple(pieces))])
            sums.append(answer.view(np.int64))
        return Sums(np.stack(sums, axis=1))


class _Join:
    label = "_Join"

    def __init__(self, pieces: tuple[Values, ...]) -> None:
        self._pieces = pieces

    def run(self) -> NDArray[np.uint64]:
        return _joined(self._pieces)


class _Passive(PassiveHalf):
    queries_per_node = 2

    def __init__(self, bins: BinMatrix) -> None:
        self._bins = bins
        random = np.random.default_rng()
        self._pad = random.integers(0, 2**64, bins.n_rows, dtype=np.uint64)

    def setup(self) -> Plan[Sequence[Values]]:
        return _in_pieces(self._pad)
        yield

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        raise AssertionError("nothing is broadcast")
        yield

    def largest_query(self, rows: int) -> SizeLimit:
        return SizeLimit(_PIECES, 8 * rows)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        answers = yield Compute([_Answer(self._bins, self._pad, query) for query in queries])
        for query, pieces in zip(queries, answers, strict=True):
            assert len(query.rows) == self._bins.n_rows
            yield Reply(query.node, pieces)

    def forget_tree(self) -> None:
        pass


class _Answer:
    label = "_Answer"

    def __init__(self, bins: BinMatrix, pad: NDArray[np.uint64], query: Query) -> None:
        self._bins = bins
        self._pad = pad
        self._query = query

    def run(self) -> list[Values]:
        vector = (_joined(self._query.pieces) - self._pad).view(np.int64)
        pairs = np.stack((vector, np.zeros_like(vector)), axis=1)
        sums = histograms(self._bins, pairs, [self._query.rows])[0]
        left = self._query.candidates.left_sums(sums)[self._query.order, 0]
        return _in_pieces(np.ascontiguousarray(left).view(np.uint64))
