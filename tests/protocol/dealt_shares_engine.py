"""Test-only engine that hides sums, whose shares come from no lattice.

A toy: gradients travel in the clear, and the passive party deals shares of its sums. What is real
are the circuits that find winners among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.privacy.cleartext_sums import CleartextPassive, checked_pairs, largest_reply
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    HiddenSums,
    Leakage,
    PassiveHalf,
    Query,
    SizeLimit,
    Traits,
)
from fedmq.privacy.hidden_sums.active import HiddenActive
from fedmq.privacy.hidden_sums.passive import HiddenPassive
from fedmq.privacy.hidden_sums.shares import ActiveShares, Field, PassiveShares, Shares
from fedmq.privacy.plan import Ended, Exchange, Plan, Reply, Values
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.machine import advance


class DealtShares(Engine):
    name = "dealt shares"
    traits = Traits(exact=True)
    leakage = Leakage(active="who wins a node", passive="every g and h")

    @property
    def hides_sums(self) -> bool:
        return True

    def on_terms(self, sums: str) -> Self:
        assert sums == "hidden"
        return self

    def active(self, parallelism: int) -> ActiveHalf:
        return HiddenActive(_Active())

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return HiddenPassive(
            _Passive(public["seed"].tobytes(), bins), public["circuits"], public["back"]
        )


def _field(training: NDArray[np.bool_], value_bits: int) -> Field:
    return Field(min(62, value_bits + len(training).bit_length()) + 2)


class _Active(ActiveShares):
    def __init__(self) -> None:
        self._seed = fresh_seed()
        self._field: Field
        self._shares: dict[tuple[str, int], Shares] = {}

    @property
    def public_seed(self) -> bytes:
        return self._seed

    @property
    def field(self) -> Field:
        return self._field

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        self._field = _field(training, value_bits)

    def open(self) -> Plan[Values]:
        return {"seed": np.frombuffer(self._seed, np.uint8)}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._shares.clear()
        return [self._piece(gradients)]

    def _piece(self, gradients: Gradients) -> Plan[BroadcastPiece]:
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        return BroadcastPiece(rows, {"pairs": gradients.pairs[rows]})
        yield

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return largest_reply(candidates)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        [piece] = yield Exchange()
        self._shares[peer, asked.node] = checked_pairs(piece, "left").view(np.uint64)
        return HiddenSums(len(self._shares[peer, asked.node]))

    def shares(self, peer: str, node: int) -> Shares:
        return self._shares[peer, node]


class _Passive(PassiveShares):
    def __init__(self, public_seed: bytes, bins: BinMatrix) -> None:
        self._public_seed = public_seed
        self._sums = CleartextPassive(bins)
        self._random = np.random.default_rng()
        self._field: Field
        self._shares: dict[int, Shares] = {}

    @property
    def public_seed(self) -> bytes:
        return self._public_seed

    @property
    def field(self) -> Field:
        return self._field

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._field = _field(training, value_bits)
        self._sums.start_session(training, value_bits, secret, outputs)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        return self._sums.receive(tree, piece)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        plan, value = self._sums.answer(queries), None
        while not isinstance(step := advance(plan, value), Ended):
            value = yield self._dealt(step) if isinstance(step, Reply) else step

    def _dealt(self, reply: Reply) -> Reply:
        [piece] = reply.pieces
        sums = np.ascontiguousarray(piece["left"]).view(np.uint64)
        words = self._random.integers(0, 2**64, sums.shape, np.uint64)
        self._shares[reply.node] = kept = words & self._field.mask
        return Reply(reply.node, [{"left": self._field.less(sums, kept).view(np.int64)}])

    def shares(self, node: int) -> Shares:
        return self._shares[node]

    def forget_tree(self) -> None:
        self._sums.forget_tree()
        self._shares.clear()
