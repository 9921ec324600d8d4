"""How does the active party of a session find winners whose sums it does not see?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS, FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.errors import MessageError
from fedmq.privacy.engine import BroadcastPiece, Contest, HiddenSums, Place, SizeLimit
from fedmq.privacy.lattice.active import ConsistencyCheck, LatticeActive
from fedmq.privacy.lattice.hidden.circuits import NodeInputs
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.level import HiddenLevel, Unpacked, garbler_bytes, pieces_of
from fedmq.privacy.lattice.hidden.shares import Field, ReadShares, Shares
from fedmq.privacy.lattice.hidden.steps import (
    choose_carries,
    choose_labels,
    choose_squares,
    close_evaluation,
    close_link,
    computed,
    evaluated,
    follow,
)
from fedmq.privacy.lattice.query import DecryptAnswer
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ELEMENT_BYTES,
    TRANSFERS,
    MakeOffer,
    OfferedSeeds,
)
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, Permutation, Tweaks
from fedmq.privacy.plan import Compute, Exchange, Handed, HandOn, Plan, Reply, Values
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["HiddenActive"]


@dataclass(frozen=True, slots=True, eq=False)
class _NodeShares(ConsistencyCheck):
    """The active party's shares of a node's sums (C, 2), of candidates by ``numbers``."""

    numbers: NDArray[np.uint32]
    shares: Shares
    field: Field

    @property
    def answer(self) -> HiddenSums:
        return HiddenSums(len(self.numbers))

    def less(self, sibling: ConsistencyCheck, peer: str) -> ConsistencyCheck:
        assert isinstance(sibling, _NodeShares)
        self.check_same(sibling, peer)
        return _NodeShares(self.numbers, self.field.less(self.shares, sibling.shares), self.field)


class HiddenActive(LatticeActive):
    """The active party's half of the lattice engine with hidden sums."""

    hidden = True

    def __init__(self, hint_bytes: int, oblivious: bool, parallelism: int) -> None:
        super().__init__(hint_bytes, oblivious, parallelism)
        self._circuit_seed = fresh_seed()
        self._receivers: dict[str, ExtensionReceiver] = {}
        self._tweaks: dict[str, Tweaks] = {}
        self._scale: FixedPoint
        self._params: TrainParams

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        super().start_session(training, value_bits, outputs)
        self._field = Field(self._layout.field_bits)
        self._permutation = Permutation(self._public_seed)

    def open(self) -> Plan[Values]:
        public = yield from super().open()
        [public["circuits"]] = yield Compute([MakeOffer(self._circuit_seed)])
        return public

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        if not pieces:
            raise MessageError(f"{peer} sent nothing before the first tree")
        # Separate base transfers: those of directions are unchecked, and may disclose the sender's
        # secret.
        step = OfferedSeeds(pieces[0].get("circuits"), self._circuit_seed)
        [pairs] = yield Compute([step])
        self._receivers[peer], self._tweaks[peer] = ExtensionReceiver(pairs), Tweaks()
        yield from super().setup(peer, pieces)

    def largest_setup(self, candidates: int) -> SizeLimit:
        largest = super().largest_setup(candidates)
        return SizeLimit(largest.pieces, largest.bytes + TRANSFERS * ELEMENT_BYTES)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._scale, self._params = gradients.scale, gradients.params
        return super().broadcast(gradients)

    def decrypt(
        self, peer: str, answers: Sequence[Sequence[Values]], seeds: Sequence[bytes]
    ) -> Plan[list[list[ConsistencyCheck]]]:
        step = DecryptAnswer(answers, self._peers[peer].hints, self._layout, seeds)
        [read] = yield Compute([ReadShares(step)])
        return [[_NodeShares(numbers, shares, self._field)] for numbers, shares in read]

    def contest_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        return garbler_bytes(HiddenLevel(self._field, nodes, candidates, place))

    def find_winners(self, peer: str, contest: Contest) -> Plan[NDArray[np.bool_]]:
        known = [self.kept(peer, node) for node in contest.nodes]
        inputs = NodeInputs.of(contest.totals, contest.best, self._scale, self._params, self._field)
        evaluator = LevelEvaluator(
            self._field,
            np.stack([node.shares for node in known if isinstance(node, _NodeShares)]),
            inputs,
            self._receivers[peer],
            self._permutation,
            self._tweaks[peer],
            contest.place,
        )
        first, level = contest.nodes[0], evaluator.level
        yield Reply(first, pieces_of())  # both sides take tweaks in this order
        evaluator, made = yield from computed(choose_carries, evaluator)
        for step in (choose_squares, choose_labels):
            parcel = yield Exchange(pieces_of(*made))
            evaluator, made = yield from computed(step, evaluator, parcel)
        yield Reply(first, pieces_of(*made))
        gains = yield from evaluated(evaluator, first)
        parcel = yield Exchange()
        evaluator, _ = yield from computed(close_evaluation, evaluator, parcel, gains)
        if not level.place.is_first:
            evaluator, made = yield from computed(follow, evaluator, (yield Handed()))
            parcel = yield Exchange(pieces_of(*made))
            evaluator, _ = yield from computed(close_link, evaluator, parcel)
        owners = yield from _owners(evaluator, first)
        won: NDArray[np.bool_] = owners == level.place.number
        yield Reply(first, pieces_of(evaluator.claim(won)))
        return won


def _owners(evaluator: LevelEvaluator, first: int) -> Plan[NDArray[np.int64]]:
    """The winner of each node: the last party's plan tells the first one's, and so on."""
    place, nodes = evaluator.level.place, evaluator.level.nodes
    if place.is_last:
        owners = evaluator.owners()
    else:
        yield HandOn(first, pieces_of(np.packbits(evaluator.leader())))
        owners = Unpacked((yield Handed())).take(np.int64, (nodes,))
    if place.parties > 1 and place.number != place.parties - 1:
        yield HandOn(first, pieces_of(owners))
    return owners
