"""How does a passive party of a session find out which of its candidates win, and no more?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.boosting.splits import ROOT, CandidateTable, parent, sibling
from fedmq.errors import MessageError
from fedmq.privacy.engine import Place
from fedmq.privacy.lattice.answer import AnswerQuery
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.level import HiddenLevel, Unpacked, evaluator_bytes, pieces_of
from fedmq.privacy.lattice.hidden.shares import Field, MaskSums, Shares
from fedmq.privacy.lattice.hidden.steps import (
    close_garbling,
    computed,
    garble_link,
    garbled,
    offer_carries,
    offer_squares,
    take_labels,
)
from fedmq.privacy.lattice.passive import LatticePassive
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


class HiddenPassive(LatticePassive):
    """The passive party's half of the lattice engine with hidden sums.

    ``circuit_offer`` uint8 (2, 256) begins the transfers of circuits.
    """

    hidden = True

    def __init__(
        self,
        public_seed: bytes,
        offer: NDArray[np.uint8] | None,
        bins: BinMatrix,
        hint_bytes: int,
        parallelism: int,
        circuit_offer: NDArray[np.uint8],
    ) -> None:
        super().__init__(public_seed, offer, bins, hint_bytes, parallelism)
        self._circuit_offer = circuit_offer
        self._permutation = Permutation(public_seed)
        self._tweaks = Tweaks()
        self._sender: ExtensionSender
        self._field: Field
        self._shares: dict[int, Shares] = {}
        """Shares of the nodes of the growing tree."""

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        super().start_session(training, value_bits, secret, outputs)
        self._field = Field(self._layout.field_bits)

    def setup(self) -> Plan[Sequence[Values]]:
        # Fresh in each attempt, as its tweaks are.
        choices = draw_choices(fresh_seed())
        step = ChooseSeeds(self._circuit_offer, choices, fresh_seed())
        [(chosen, seeds)] = yield Compute([step])
        self._sender = ExtensionSender(choices, seeds)
        first, *hints = yield from super().setup()
        return [{**first, "circuits": chosen}, *hints]

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        super().start_tree(tree, candidates)
        self._shares.clear()

    def answered(self, steps: Sequence[tuple[int, AnswerQuery]]) -> Plan[list[NDArray[np.uint32]]]:
        found = yield Compute([MaskSums(step) for _, step in steps])
        for (node, _), (_, kept) in zip(steps, found, strict=True):
            self._shares[node] = kept
        return [sums for sums, _ in found]

    def contest_bytes(self, nodes: int, candidates: int, place: Place) -> int:
        return evaluator_bytes(HiddenLevel(self._field, nodes, candidates, place))

    def find_winners(
        self, nodes: Sequence[int], place: Place
    ) -> Plan[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
        garbler = LevelGarbler(
            self._field,
            np.stack([self._kept(node) for node in nodes]),
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

    def _kept(self, node: int) -> Shares:
        """This party's shares of a node that was asked about, or whose sibling was."""
        if node not in self._shares and node > ROOT:
            above, beside = self._shares.get(parent(node)), self._shares.get(sibling(node))
            if above is None or beside is None or len(above) != len(beside):
                raise MessageError(f"node {node}, about which nothing was asked")
            self._shares[node] = self._field.less(above, beside)
        if node not in self._shares:
            raise MessageError(f"node {node}, about which nothing was asked")
        return self._shares[node]

    def forget_tree(self) -> None:
        super().forget_tree()
        self._shares.clear()
