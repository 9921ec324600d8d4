"""How does the active party of a session find winners whose sums it does not see?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS, FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.computation import Computation, Given
from fedmq.errors import MessageError
from fedmq.privacy.engine import (
    SIGNER,
    Answer,
    AskedNode,
    BroadcastPiece,
    Comparison,
    Directions,
    HidesSums,
    Question,
    Rows,
    SizeLimit,
)
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.circuits import GainCircuit, NodeInputs, circuit_of
from fedmq.privacy.hidden_sums.copies import KEY_BYTES, Copies, copied_bytes
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.filter import choose_factors_of_rows
from fedmq.privacy.hidden_sums.level import BackTransfers, HiddenLevel, garbler_bytes
from fedmq.privacy.hidden_sums.proof import Signer
from fedmq.privacy.hidden_sums.shares import ActiveShares, Field
from fedmq.privacy.hidden_sums.steps import evaluate_level
from fedmq.privacy.hidden_sums.talks import evaluate_copies
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ELEMENT_BYTES,
    TRANSFERS,
    ChooseAhead,
    ChosenSeeds,
    MakeOffer,
    OfferedSeeds,
    check_elements,
)
from fedmq.privacy.oblivious_transfer.extension import (
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.plan import Compute, Plan, Values
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["HiddenActive"]


class HiddenActive(HidesSums):
    """The active party's half where sums are hidden; the half ``source`` reads shares of them.

    ``copies``: of each level's circuits, of which it checks all but one.
    """

    def __init__(self, source: ActiveShares, copies: int = 1) -> None:
        self._source = source
        self._copies = copies
        self._circuit_seed = fresh_seed()
        self._back_secret, self._back_seed = draw_choices(fresh_seed()), fresh_seed()
        self._back_choices: NDArray[np.uint8]
        self._receivers: dict[str, ExtensionReceiver] = {}
        self._tweaks: dict[str, Tweaks] = {}
        self._back: dict[str, BackTransfers[ExtensionSender]] = {}
        self._offers: dict[str, NDArray[np.uint8]] = {}
        self._signers: dict[str, Signer] = {}
        self._filtering: dict[str, Filtering] = {}
        self._field: Field
        self._permutation: Permutation
        self._gradients: NDArray[np.int64]
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

    def gather(self, person: NDArray[np.int32]) -> None:
        self._source.gather(person)

    def open(self) -> Plan[Values]:
        public = yield from self._source.open()
        public["circuits"], public["back"] = yield Compute(
            [
                MakeOffer(self._circuit_seed),
                ChooseAhead(~self._back_secret, self._back_seed),
            ]
        )
        self._back_choices = public["back"]
        if self._copies > 1:
            public["covert"] = self._copies
        return public

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        if not pieces:
            raise MessageError(f"{peer} sent nothing before the first tree")
        # Separate base transfers: those of directions are unchecked, and may disclose the sender's
        # secret.
        offer = check_elements(pieces[0].get("back"), 2)
        pairs, seeds = yield Compute(
            [
                OfferedSeeds(pieces[0].get("circuits"), self._circuit_seed),
                ChosenSeeds(offer, self._back_choices, ~self._back_secret, self._back_seed),
            ]
        )
        self._receivers[peer], self._tweaks[peer] = ExtensionReceiver(pairs), Tweaks()
        # All peers know the same choices: with equal offers, two could read more than one alone.
        if any(np.array_equal(offer, known) for known in self._offers.values()):
            raise MessageError(f"{peer} offers transfers as another party does")
        self._offers[peer] = offer
        if self._copies > 1:
            self._signers[peer] = _signer(peer, pieces[0])
        permutation = Permutation(self._source.public_seed + offer.tobytes())
        sender = ExtensionSender(self._back_secret, seeds)
        self._back[peer] = BackTransfers(sender, permutation, Tweaks())
        self._filtering[peer] = Filtering()
        yield from self._source.setup(peer, pieces)

    def largest_setup(self, candidates: int) -> SizeLimit:
        largest = self._source.largest_setup(candidates)
        own = (TRANSFERS + 2) * ELEMENT_BYTES + KEY_BYTES
        return SizeLimit(max(1, largest.pieces), largest.bytes + own)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._scale, self._params = gradients.scale, gradients.params
        self._gradients = gradients.pairs
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

    def comparison_bytes(self, comparison: Comparison, candidates: int) -> int:
        circuit, nodes = self._circuit(comparison), len(comparison.nodes)
        circuit, sets = circuit.ranked_at(comparison.place), self._sets(comparison, candidates)
        circuit = replace(circuit, far=circuit.filters)
        level = HiddenLevel.of(circuit, nodes, candidates, comparison.place, sets)
        return copied_bytes(level, self._copies)[0] if self._copies > 1 else garbler_bytes(level)

    def _circuit(self, comparison: Comparison) -> GainCircuit:
        circuit = circuit_of(self._params, self._scale, self._field, comparison.constraints)
        sets = self._params.max_cat_threshold if comparison.categories else 0
        return replace(circuit, sets=sets)

    def _sets(self, comparison: Comparison, candidates: int) -> SetColumns | None:
        """The columns that are split by sets, among so many candidates of a node."""
        if not comparison.categories:
            return None
        return SetColumns(candidates, comparison.categories, self._params.max_cat_threshold)

    def compare(self, peer: str, comparison: Comparison) -> Plan[NDArray[np.bool_]]:
        totals, best = comparison.totals, comparison.best
        circuit, constraints = self._circuit(comparison), comparison.constraints
        filtering = self._filtering[peer]
        filters = circuit.filters and filtering.goes_on
        if filters:
            circuit = replace(circuit, far=filtering.far)
            circuit = circuit.ranked_at(comparison.place) if filtering.ranks else circuit
        inputs = NodeInputs.of(totals, best, self._scale, self._params, circuit, constraints)
        shares = np.stack([self._source.shares(peer, node) for node in comparison.nodes])
        choosing = self._choosing(comparison, filters=filters, far=circuit.far)
        receiver, back = self._receivers[peer], self._back[peer]
        nodes, first = len(comparison.nodes), comparison.nodes[0]
        if self._copies > 1:
            copies = Copies.of(
                HiddenLevel(circuit, nodes, shares.shape[1], comparison.place),
                self._copies,
                (self._permutation, self._tweaks[peer]),
                (back.permutation, back.tweaks),
            )
            learned = yield from evaluate_copies(
                copies,
                receiver,
                back.party,
                shares,
                inputs,
                choosing,
                self._signers[peer],
                first,
            )
        else:
            evaluator = LevelEvaluator(
                circuit,
                shares,
                inputs,
                choosing,
                receiver,
                self._permutation,
                self._tweaks[peer],
                back,
                comparison.place,
                sets=self._sets(comparison, shares.shape[1]),
            )
            learned = yield from evaluate_level(evaluator, first)
        told = (learned.crowded, learned.overfull, learned.doubtful)
        filtering.count(nodes, *(int(found.sum()) for found in told))
        return learned.won

    def _choosing(self, comparison: Comparison, *, filters: bool, far: bool) -> Computation:
        """Finds what the active party chooses for each node: None where the filter does not fit."""
        if not filters:
            return Given([None] * len(comparison.nodes))
        return choose_factors_of_rows.bind(
            self._gradients,
            comparison.rows,
            comparison.totals,
            comparison.best,
            comparison.foreseen,
            self._scale,
            self._params,
            self._field,
            far,
        )


def _signer(peer: str, piece: Values) -> Signer:
    """The key by which ``peer`` signs what it says about copies."""
    key, signature = piece.get(SIGNER), piece.get("signature", b"")
    if not isinstance(key, np.ndarray) or (key.dtype, key.shape) != (np.uint8, (KEY_BYTES,)):
        raise MessageError(f"{peer} sent no key by which it signs what it says about copies")
    return Signer(peer, key.tobytes(), signature if isinstance(signature, bytes) else b"")


@dataclass(slots=True)
class Filtering:
    """How many nodes of a passive party told more than a winner, and what goes on.

    A passive party that garbles to cheat may learn two bits of its choice by each crowded node, and
    one by each doubtful node. So once the crowded ones are more than 3 % and three, quotients reach
    ``far`` for the rest of the session: they are longer, and tell candidates apart that gain much
    more than what is to beat. Nodes have 16 slots each then, and only overfull ones are crowded.
    Once these were as many of the nodes behind, the filter ends, and gains are computed of all
    candidates. Once as many of all nodes were doubtful, candidates in slots are no longer ranked.

    An overfull node counts as four crowded ones towards longer quotients: it takes far more.
    """

    nodes: int = 0
    doubtful: int = 0
    of_filter: int = 0
    crowded: int = 0
    far: bool = False
    goes_on: bool = True
    ranks: bool = True

    def count(self, nodes: int, crowded: int, overfull: int = 0, doubtful: int = 0) -> None:
        """Count the nodes of a level."""
        self.nodes += nodes
        self.doubtful += doubtful
        self.ranks = self.ranks and self.doubtful <= _most_of(self.nodes)
        self.of_filter += nodes
        self.crowded += crowded if self.far else crowded + 3 * overfull
        if self.crowded > _most_of(self.of_filter):
            self.goes_on, self.far = self.goes_on and not self.far, True
            self.of_filter = self.crowded = 0


def _most_of(nodes: int) -> float:
    return 3 + 0.03 * nodes
