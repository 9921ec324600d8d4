"""Test-only engine whose passive half scores its own candidates and answers with the best.

It also computes wherever an engine may: to open, to set up, to broadcast, to receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histograms
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
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
    SplitOffer,
    Traits,
)
from fedmq.privacy.plan import Compute, Exchange, Plan, Reply, Values
from fedmq.protocol.training.offers import ScoreCandidates


@dataclass(frozen=True)
class BestOfAll(Engine):
    params: TrainParams

    name = "best of all"
    traits = Traits(exact=True, shows_best=True)
    leakage = Leakage(active="the best gain of a party", passive="every g and h")

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active()

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return _Passive(bins, self.params)


class _Active(ActiveHalf):
    def __init__(self) -> None:
        self._scale: FixedPoint

    def open(self) -> Plan[Values]:
        [public] = yield Compute([Given({})])
        return public

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        yield Compute([Given(len(pieces))])

    def largest_setup(self, candidates: int) -> SizeLimit:
        return SizeLimit(8, 1_000_000)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return SizeLimit(8, 1_000_000)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._scale = gradients.scale
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        return [self._piece(part, gradients.pairs) for part in np.array_split(rows, 3)]

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.int64]) -> Plan[BroadcastPiece]:
        [taken] = yield Compute([Given(pairs[rows])])
        return BroadcastPiece(rows, {"pairs": taken})

    def prepare(self) -> Sequence[Plan[None]]:
        return [self._dawdle() for _ in range(3)]

    def _dawdle(self) -> Plan[None]:
        for step in range(30):
            yield Compute([Given(step)])

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        scale = self._scale
        bits = {"g": scale.g_bits, "h": scale.h_bits, "value": scale.value_bits}
        [answer] = yield Exchange([bits])
        return SplitOffer(answer["gain"], answer["candidates"])


@dataclass(frozen=True, eq=False)
class _Score:
    label: ClassVar[str] = "_Score"
    bins: BinMatrix
    pairs: NDArray[np.int64]
    query: Query
    params: TrainParams

    def run(self) -> SplitOffer:
        [bits] = self.query.pieces
        scale = FixedPoint(bits["g"], bits["h"], bits["value"])
        sums = histograms(self.bins, self.pairs, [self.query.rows])[0]
        left = self.query.candidates.left_sums(sums)[self.query.order]
        total = self.pairs[self.query.rows].sum(axis=0)
        return ScoreCandidates(left, total, scale, self.params).run()


class _Passive(PassiveHalf):
    def __init__(self, bins: BinMatrix, params: TrainParams) -> None:
        self._bins = bins
        self._params = params
        self.forget_tree()

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        [self._pairs[piece.rows]] = yield Compute([Given(piece.values["pairs"])])

    def largest_query(self, rows: int) -> SizeLimit:
        return SizeLimit(1, 0)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        for query in queries:
            [best] = yield Compute([_Score(self._bins, self._pairs, query, self._params)])
            yield Reply(query.node, [{"gain": best.gain, "candidates": best.candidates}])

    def forget_tree(self) -> None:
        self._pairs = np.zeros((self._bins.n_rows, 2), np.int64)
