"""How do both halves find a party's best candidate by XGBoost's own gains, from shares of sums?

A circuit of `circuits` computes each candidate's gain, and a tournament finds the best. A circuit
that takes squares has them shared by transfers first. Before, longer quotients than the filter's
rank the few candidates in slots: gains are computed where that leaves a doubt, and of the best one
where a chain needs its gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import Labels, colours
from fedmq.privacy.hidden_sums.circuits import (
    GAIN_BITS,
    GainCircuit,
    NodeInputs,
    Run,
    tournament,
)
from fedmq.privacy.hidden_sums.filter import UNRANKED, FilterLevel, NodeFactors, Precision
from fedmq.privacy.hidden_sums.filtering import QuotientEvaluator, QuotientGarbler
from fedmq.privacy.hidden_sums.quotient import (
    fine_schedule,
    quotient_inputs,
    ranked_candidates,
    ranked_inputs,
)
from fedmq.privacy.hidden_sums.shares import (
    Field,
    Shares,
    carries_to_offer,
    chosen_carries,
    chosen_shares,
    chosen_totals,
    offset,
    receiver_lift,
    receiver_squares,
    sender_lift,
    sender_squares,
    shares_to_offer,
    totals_to_offer,
)
from fedmq.privacy.hidden_sums.sides import (
    Made,
    ReceiverSide,
    SenderSide,
    Unpacked,
    finished,
    packed_bits,
    take_bits,
)
from fedmq.privacy.hidden_sums.stages import EvaluatorStage, GarblerStage, Stage
from fedmq.privacy.oblivious_transfer.correlated import Wide, bits_of, wide
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS

__all__ = [
    "GainEvaluator",
    "GainGarbler",
    "Gains",
    "RankEvaluator",
    "RankGarbler",
    "Ranking",
    "best_gains",
]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates in ``slots`` of each of ``nodes`` nodes; ``alone``: no chain follows."""

    field: Field
    precision: Precision
    nodes: int
    slots: int
    alone: bool

    @property
    def level(self) -> FilterLevel:
        return FilterLevel(self.precision, self.nodes, self.slots)

    @property
    def stage(self) -> Stage:
        precision = self.precision
        return Stage(
            partial(fine_schedule, precision, self.field),
            self.nodes,
            self.slots,
            {**quotient_inputs(precision), "sums": 2 * self.field.bits},
            {"least weight": precision.weight_bits},
        )

    @property
    def known(self) -> Mapping[str, int]:
        """The active party's bits of each node."""
        return ranked_inputs(self.precision, self.field)

    @property
    def transfers(self) -> int:
        """All that the active party chooses."""
        labels = self.stage.labels + sum(self.known.values()) * self.nodes
        return self.level.quotient_transfers + labels


class _RankHalf:
    """What both halves know of a ranking."""

    quotients: QuotientGarbler | QuotientEvaluator

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self._found: dict[str, Labels]

    def rank(self, found: Mapping[str, Labels], run: Run) -> None:
        """Garble, or evaluate, the ranks, by the labels of all quotients that were ``found``."""
        ranking, known = self.ranking, self.quotients.known
        running = ranked_candidates(ranking.level, found, known, ranking.field, ranking.alone, run)
        self._found = finished(running)

    def best(self) -> dict[str, Labels]:
        """Labels of all nodes, which a link compares as those of gains.

        ``gain``: the best candidate's quotient, and ``to beat`` what it must exceed; ``index``: its
        slot. Nothing exceeds what is to beat in a doubtful node: so its link tells nothing.
        """
        gain, to_beat = self._found["low"], self.quotients.known["beaten"]
        # A link compares more bits: both sides use the label 0 for those known to be 0.
        above = np.zeros((GAIN_BITS - len(gain), *gain.shape[1:]), np.uint64)
        return {
            "gain": np.concatenate([gain, above]),
            "index": self._found["index"],
            "to beat": np.concatenate([to_beat, self._found["doubtful"], above[1:]]),
        }

    def slot(self, sure: NDArray[np.bool_]) -> Labels:
        """Labels of the best candidates' slots."""
        return self._found["index"][:, sure]

    def sums(self, sure: NDArray[np.bool_]) -> Labels:
        """Labels of the best candidates' sums."""
        return self._found["sums"][:, sure]


class RankGarbler(_RankHalf):
    """The passive party's half; ``shares`` of slots uint64 (nodes, slots, 2), in their order."""

    quotients: QuotientGarbler

    def __init__(self, ranking: Ranking, shares: Shares) -> None:
        super().__init__(ranking)
        self.quotients = QuotientGarbler(
            ranking.level, ranking.field, shares, ranking.stage, ranking.known
        )

    def shown_doubts(self) -> NDArray[np.uint8]:
        """Colours of doubts, for the active party."""
        return packed_bits(colours(self._found["doubtful"]))

    def read_doubts(self, side: SenderSide, parcel: Unpacked) -> NDArray[np.bool_]:
        """Which nodes are doubtful: bool (nodes,)."""
        doubtful: NDArray[np.bool_] = side.read_bits(parcel, self._found["doubtful"])[0]
        return doubtful


class RankEvaluator(_RankHalf):
    """The active party's half, by the ``factors`` of each node, None where one does not fit."""

    quotients: QuotientEvaluator

    def __init__(
        self,
        ranking: Ranking,
        shares: Shares,
        totals: NDArray[np.int64],
        factors: Sequence[NodeFactors | None],
    ) -> None:
        super().__init__(ranking)
        chosen = [UNRANKED if node is None else node for node in factors]
        numbers = {
            "to beat": np.array([node.to_beat for node in chosen]),
            "beaten": np.array([node.beaten for node in chosen]),
            "unranked": np.array([node is None for node in factors], np.int64),
            "G": totals[:, 0],
            "H": totals[:, 1],
        }
        known = {name: bits_of(wide(numbers[name]), count) for name, count in ranking.known.items()}
        self.quotients = QuotientEvaluator(
            ranking.level, ranking.field, shares, ranking.stage, known, chosen
        )

    def read_doubts(self, side: ReceiverSide, parcel: Unpacked) -> tuple[Labels, NDArray[np.bool_]]:
        """Labels of doubts; which nodes are doubtful: bool (nodes,)."""
        unset = take_bits(parcel, (1, self.ranking.nodes))
        labels, doubtful = side.tell(self._found["doubtful"], unset)
        return labels, doubtful[0]


@dataclass(frozen=True, slots=True)
class Gains:
    """Gains by ``circuit`` of ``candidates`` candidates in each of ``nodes`` nodes, at least one.

    ``first``: this party's best meets the active party's own, whose labels come with the others.
    ``given``: labels of all sums are known, as those of the active party's shares of them.
    ``behind``: another block of the same node came before, with the labels of what is the node's.
    """

    circuit: GainCircuit
    nodes: int
    candidates: int
    first: bool = True
    given: bool = False
    behind: bool = False

    @property
    def stage(self) -> Stage:
        circuit = self.circuit
        return Stage(
            circuit.schedule,
            self.nodes,
            self.candidates,
            circuit.candidate_bits,
            circuit.node_bits,
            circuit.column_bits,
        )

    @property
    def field(self) -> Field:
        return self.circuit.field

    @property
    def instances(self) -> int:
        return self.nodes * self.candidates

    @property
    def carry_transfers(self) -> int:
        return 2 * self.instances * self.circuit.takes_squares

    @property
    def share_transfers(self) -> int:
        return (self.field.square_bits - 1) * self.instances * self.circuit.takes_squares

    @property
    def total_transfers(self) -> int:
        return (self.field.bits - 1) * self.nodes * self.circuit.takes_squares

    @property
    def labels(self) -> int:
        stage = self.stage
        of_candidates = sum(stage.candidate_bits.values()) * self.instances
        of_nodes = (sum(stage.node_bits.values()) + GAIN_BITS * self.first) * self.nodes
        return of_candidates * (not self.given) + of_nodes * (not self.behind)

    @property
    def transfers(self) -> int:
        """All that the active party chooses."""
        of_squares = self.carry_transfers + self.share_transfers + self.total_transfers
        return of_squares + self.labels


class _GainHalf:
    """What both halves know of some gains, of candidates by node.

    ``given``: labels of candidates' sums. ``before``: the block before this one, of the same node.
    """

    def __init__(
        self, gains: Gains, given: Labels | None = None, before: _GainHalf | None = None
    ) -> None:
        self.gains = replace(gains, behind=before is not None)
        self._given = given
        self._before = before
        self._by_node: Labels
        self.to_beat: Labels

    @property
    def instances(self) -> int:
        return self.gains.instances

    @property
    def transfers(self) -> int:
        return self.gains.transfers

    @property
    def takes_numbers(self) -> bool:
        return self.gains.circuit.takes_squares

    def _parted(self, rows: NDArray[np.uint64]) -> tuple[Labels, Labels]:
        """Rows of labels as those of candidates and of nodes; keeps what is to beat."""
        stage, other = self.gains.stage, self._given
        if other is None:
            of_candidates = sum(stage.candidate_bits.values()) * stage.instances
            other = rows[:of_candidates].reshape(-1, stage.instances, BLOCK_WORDS)
            rows = rows[of_candidates:]
        if self._before is not None:
            self._by_node, self.to_beat = self._before._by_node, self._before.to_beat
            return other, self._by_node
        of_nodes = sum(stage.node_bits.values()) * stage.nodes
        self._by_node = rows[:of_nodes].reshape(-1, stage.nodes, BLOCK_WORDS)
        self.to_beat = rows[of_nodes:].reshape(-1, stage.nodes, BLOCK_WORDS)
        return other, self._by_node


def best_gains(
    gains: Sequence[tuple[NDArray[np.bool_], _GainHalf]],
    found: Sequence[Mapping[str, Labels]],
    run: Run,
) -> list[tuple[NDArray[np.bool_], dict[str, Labels]]]:
    """Some nodes, bool (all nodes,), labels of their best gains, and of what is ``to beat``.

    ``gains``: of some nodes each, blocks of the same ones behind each other; ``found``: outputs.
    """
    by_node: list[tuple[NDArray[np.bool_], _GainHalf, list[Labels]]] = []
    for (nodes, half), outputs in zip(gains, found, strict=True):
        if not half.gains.behind:
            by_node.append((nodes, half, []))
        by_node[-1][-1].append(outputs["gain"])
    best = []
    for nodes, half, blocks in by_node:
        running = tournament(np.concatenate(blocks, axis=1), half.gains.nodes, run)
        best.append((nodes, {**finished(running), "to beat": half.to_beat}))
    return best


class GainGarbler(_GainHalf):
    """The passive party's half; ``shares`` uint64 (nodes, candidates, 2), in canonical order.

    ``columns`` bool (bits, nodes * candidates): what the circuit takes of columns, if it does.
    With labels that are ``given``, this party's shares are 0.
    """

    def __init__(
        self,
        gains: Gains,
        shares: Shares,
        columns: NDArray[np.bool_],
        given: Labels | None = None,
        before: GainGarbler | None = None,
    ) -> None:
        super().__init__(gains, given, before)
        self._shares = shares.reshape(-1, 2)
        self._columns = columns
        self._lifted: Wide
        self._of_totals: Wide
        self._of_shares: Wide
        self._numbers = [gains.field.joined(self._shares)]
        """This party's shared inputs of all candidates."""

    def offer(self, side: SenderSide, parcel: Unpacked) -> Made:
        """Numbers for carries and products: for those of shares as choices were drawn."""
        field, nodes = self.gains.field, self.gains.nodes
        own, carries = side.offer(parcel, carries_to_offer(self._shares, field))
        self._lifted = sender_lift(self._shares, own, field)
        self._of_totals, total = side.offer(parcel, totals_to_offer(self._lifted, nodes, field))
        self._of_shares, cross = side.offer_ahead(shares_to_offer(self._lifted, field))
        return [carries, total, cross]

    def take_products(self, side: SenderSide, parcel: Unpacked) -> None:
        field = self.gains.field
        of_shares = side.turn(parcel, self._of_shares, shares_to_offer(self._lifted, field))
        squares = sender_squares(self._lifted, of_shares, self._of_totals, field)
        self._numbers = [*squares, wide(self._shares[:, 1].copy())]
        del self._lifted, self._of_shares, self._of_totals

    def take_labels(self, side: SenderSide, parcel: Unpacked) -> GarblerStage:
        gains = self.gains
        other, by_node = self._parted(side.rows(parcel, gains.labels))
        sizes = gains.stage.candidate_bits.values()
        bits = [bits_of(number, size) for number, size in zip(self._numbers, sizes, strict=True)]
        del self._numbers, self._shares
        if gains.circuit.column_bits:
            bits.append(self._columns)
        return GarblerStage(
            gains.stage,
            gains.stage.batches(),
            np.concatenate(bits),
            other,
            by_node,
            side.secret,
            side.permutation,
            side.tweaks.take(gains.instances),
        )


class GainEvaluator(_GainHalf):
    """The active party's half; ``inputs`` are those of its ``nodes``, bool (nodes,)."""

    def __init__(
        self,
        gains: Gains,
        shares: Shares,
        inputs: NodeInputs,
        nodes: NDArray[np.bool_],
        given: Labels | None = None,
        before: GainEvaluator | None = None,
    ) -> None:
        super().__init__(gains, given, before)
        self._moved = offset(shares.reshape(-1, 2), gains.field)
        self._totals = inputs.totals[nodes, 0]
        self._known = {name: bits[:, nodes] for name, bits in inputs.bits.items()}
        self._drawn: NDArray[np.bool_]
        self._numbers = [gains.field.joined(shares.reshape(-1, 2))]
        """This party's shared inputs of all candidates."""

    def choose(self, side: ReceiverSide) -> Made:
        """Choices of carries, and of products with whole nodes."""
        field = self.gains.field
        carries = side.choose(chosen_carries(self._moved, field))
        totals = side.choose(chosen_totals(self._totals, field))
        self._drawn = side.draw(self.gains.share_transfers)
        return [carries, totals]

    def choose_products(self, side: ReceiverSide, parcel: Unpacked) -> Made:
        """Choices of products of shares."""
        gains, field = self.gains, self.gains.field
        lifted = receiver_lift(self._moved, side.receive(parcel, 1), field)
        totals, drawn = side.receive(parcel, gains.candidates), side.receive(parcel, 1)
        turned, cross = side.turn(drawn, self._drawn, chosen_shares(lifted, field))
        squares = receiver_squares(lifted, self._totals, cross, totals, field)
        self._numbers = [*squares, wide(self._moved[:, 1].copy())]
        return [turned]

    def choose_labels(self, side: ReceiverSide) -> tuple[Made, EvaluatorStage]:
        gains = self.gains
        sizes = gains.stage.candidate_bits.values()
        bits = [
            bits_of(number, size).reshape(-1)
            for number, size in zip(self._numbers, sizes, strict=True)
            if self._given is None
        ]
        names = [*gains.stage.node_bits, *(["to beat"] if gains.first else [])]
        if not gains.behind:
            bits += [self._known[name].reshape(-1) for name in names]
        del self._numbers, self._moved
        turned, rows = side.choose_rows(np.concatenate(bits))
        other, by_node = self._parted(rows)
        stage, tweaks = gains.stage, side.tweaks.take(gains.instances)
        batches, permutation = stage.batches(), side.permutation
        return [turned], EvaluatorStage(stage, batches, other, by_node, permutation, tweaks)
