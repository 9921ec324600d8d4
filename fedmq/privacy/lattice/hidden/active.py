"""How does the active party of a session find winners whose sums it does not see?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS, FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.errors import MessageError
from fedmq.privacy.engine import (
    Answer,
    AskedNode,
    BroadcastPiece,
    Comparison,
    Directions,
    HidesSums,
    Place,
    Question,
    Rows,
    SizeLimit,
)
from fedmq.privacy.lattice.hidden.circuits import NodeInputs
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.level import HiddenLevel, Unpacked, garbler_bytes, pieces_of
from fedmq.privacy.lattice.hidden.shares import ActiveShares, Field
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


class HiddenActive(HidesSums):
    """The active party's half where sums are hidden; the half ``source`` reads shares of them."""

    def __init__(self, source: ActiveShares) -> None:
        self._source = source
        self._circuit_seed = fresh_seed()
        self._receivers: dict[str, ExtensionReceiver] = {}
        self._tweaks: dict[str, Tweaks] = {}
        self._field: Field
        self._permutation: Permutation
        self._scale: FixedPoint
        self._params: TrainParams

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        self._source.start_session(training, value_bits, outputs)
        self._field = self._source.field
        self._permutation = Permutation(self._source.public_seed)

    def open(self) -> Plan[Values]:
        public = yield from self._source.open()
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
        yield from self._source.setup(peer, pieces)

    def largest_setup(self, candidates: int) -> SizeLimit:
        largest = self._source.largest_setup(candidates)
        return SizeLimit(max(1, largest.pieces), largest.bytes + TRANSFERS * ELEMENT_BYTES)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._scale, self._params = gradients.scale, gradients.params
        return self._source.broadcast(gradients)

    def prepare(self) -> Sequence[Plan[None]]:
        return self._source.prepare()

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return self._source.largest_reply(candidates, rows)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        return self._source.ask(peer, asked)

    def ask_level(self, level: Sequence[AskedNode]) -> Sequence[Question]:
        return self._source.ask_level(level)

    def read_directions(self, peer: str, tree: int, node: int, rows: Rows) -> Plan[Directions]:
        return self._source.read_directions(peer, tree, node, rows)

    def comparison_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        return garbler_bytes(HiddenLevel(self._field, nodes, candidates, place))

    def compare(self, peer: str, comparison: Comparison) -> Plan[NDArray[np.bool_]]:
        totals, best = comparison.totals, comparison.best
        inputs = NodeInputs.of(totals, best, self._scale, self._params, self._field)
        evaluator = LevelEvaluator(
            self._field,
            np.stack([self._source.shares(peer, node) for node in comparison.nodes]),
            inputs,
            self._receivers[peer],
            self._permutation,
            self._tweaks[peer],
            comparison.place,
        )
        first, level = comparison.nodes[0], evaluator.level
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
