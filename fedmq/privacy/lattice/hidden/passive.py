"""How does a passive party of a session find out which of its candidates win, and no more?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.engine import (
    BroadcastPiece,
    Directions,
    PassiveHidesSums,
    Place,
    Query,
    SizeLimit,
)
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.level import HiddenLevel, Unpacked, evaluator_bytes, pieces_of
from fedmq.privacy.lattice.hidden.shares import Field, PassiveShares
from fedmq.privacy.lattice.hidden.steps import (
    close_garbling,
    computed,
    garble_link,
    garbled,
    offer_carries,
    offer_squares,
    take_labels,
)
from fedmq.privacy.oblivious_transfer.base_transfers import ChooseSeeds
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_WORDS,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.plan import Compute, Exchange, Handed, HandOn, Plan, Reply, Values
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["HiddenPassive"]


class HiddenPassive(PassiveHidesSums):
    """The passive party's half where sums are hidden; the half ``source`` keeps shares of them.

    ``circuit_offer`` uint8 (2, 256) begins the transfers of circuits.
    """

    def __init__(self, source: PassiveShares, circuit_offer: NDArray[np.uint8]) -> None:
        self._source = source
        self._circuit_offer = circuit_offer
        self._permutation = Permutation(source.public_seed)
        self._tweaks = Tweaks()
        self._sender: ExtensionSender
        self._field: Field

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._source.start_session(training, value_bits, secret, outputs)
        self.nodes_per_query = self._source.nodes_per_query
        self.queries_per_node = self._source.queries_per_node
        self._field = self._source.field

    def setup(self) -> Plan[Sequence[Values]]:
        # Fresh in each attempt, as its tweaks are.
        choices = draw_choices(fresh_seed())
        step = ChooseSeeds(self._circuit_offer, choices, fresh_seed())
        [(chosen, seeds)] = yield Compute([step])
        self._sender = ExtensionSender(choices, seeds)
        first, *others = (yield from self._source.setup()) or ({},)
        return [{**first, "circuits": chosen}, *others]

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        self._source.start_tree(tree, candidates)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        return self._source.receive(tree, piece)

    def sums_bytes(self, nodes: int) -> int:
        return self._source.sums_bytes(nodes)

    def largest_query(self, rows: int) -> SizeLimit:
        return self._source.largest_query(rows)

    def largest_directions_query(self) -> SizeLimit:
        return self._source.largest_directions_query()

    def take_piece(
        self, tree: int, node: int, number: int, piece: Values, *, alone: bool = True
    ) -> Plan[None] | None:
        return self._source.take_piece(tree, node, number, piece, alone=alone)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        return self._source.answer(queries)

    def show_directions(
        self, tree: int, node: int, left: Directions, pieces: Sequence[Values]
    ) -> Plan[Directions]:
        return self._source.show_directions(tree, node, left, pieces)

    def forget_tree(self) -> None:
        self._source.forget_tree()

    def comparison_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        return evaluator_bytes(HiddenLevel(self._field, nodes, candidates, place))

    def compare(
        self, nodes: Sequence[int], place: Place
    ) -> Plan[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
        garbler = LevelGarbler(
            self._field,
            np.stack([self._source.shares(node) for node in nodes]),
            self._sender,
            self._permutation,
            self._tweaks,
            fresh_seed(),
            place,
        )
        first, level = nodes[0], garbler.level
        parcel = yield Exchange()
        for step in (offer_carries, offer_squares):
            garbler, made = yield from computed(step, garbler, parcel)
            parcel = yield Exchange(pieces_of(*made))
        garbler, _ = yield from computed(take_labels, garbler, parcel)
        gains = yield from garbled(garbler, first)
        garbler, made = yield from computed(close_garbling, garbler, (), gains)
        if not place.is_first:
            choices = yield Exchange(pieces_of(*made))
            garbler, made = yield from computed(garble_link, garbler, choices, (yield Handed()))
        yield Reply(first, pieces_of(*made))
        if not place.is_last:
            yield HandOn(first, pieces_of(np.packbits(garbler.handed())))
        claim = Unpacked((yield Exchange()))
        bits = 1 + max(level.candidates - 1, 0).bit_length()
        winners = garbler.winners(claim.take(np.uint64, (bits, level.nodes, BLOCK_WORDS)))
        claim.end()
        return winners
