"""How do both halves find a party's best candidate by XGBoost's own gains, from shares of sums?

A circuit of `circuits` computes each candidate's gain, and a tournament finds the best. A circuit
that takes squares has them shared by transfers first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.hidden_sums.circuits import (
    GAIN_BITS,
    GainCircuit,
    NodeInputs,
    Run,
    tournament,
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
from fedmq.privacy.hidden_sums.sides import Made, ReceiverSide, SenderSide, Unpacked, finished
from fedmq.privacy.hidden_sums.stages import EvaluatorStage, GarblerStage, Stage
from fedmq.privacy.oblivious_transfer.correlated import Wide, bits_of, wide
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS

__all__ = ["GainEvaluator", "GainGarbler", "Gains"]


@dataclass(frozen=True, slots=True)
class Gains:
    """Gains by ``circuit`` of ``candidates`` candidates in each of ``nodes`` nodes, at least one.

    ``first``: this party's best meets the active party's own, whose labels come with the others.
    """

    circuit: GainCircuit
    nodes: int
    candidates: int
    first: bool = True

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
        return self.stage.labels + GAIN_BITS * self.nodes * self.first

    @property
    def transfers(self) -> int:
        """All that the active party chooses."""
        of_squares = self.carry_transfers + self.share_transfers + self.total_transfers
        return of_squares + self.labels

    def parted(self, rows: NDArray[np.uint64]) -> tuple[Labels, Labels, Labels]:
        """Rows of `labels` as those of candidates, of nodes, and of what is to beat."""
        of_candidates = sum(self.stage.candidate_bits.values()) * self.instances
        of_nodes = sum(self.stage.node_bits.values()) * self.nodes
        return (
            rows[:of_candidates].reshape(-1, self.instances, BLOCK_WORDS),
            rows[of_candidates : of_candidates + of_nodes].reshape(-1, self.nodes, BLOCK_WORDS),
            rows[of_candidates + of_nodes :].reshape(-1, self.nodes, BLOCK_WORDS),
        )


class GainGarbler:
    """The passive party's half; ``shares`` uint64 (nodes, candidates, 2), in canonical order.

    ``columns`` bool (bits, nodes * candidates): what the circuit takes of columns, if it does.
    """

    def __init__(self, gains: Gains, shares: Shares, columns: NDArray[np.bool_]) -> None:
        self.gains = gains
        self._shares = shares.reshape(-1, 2)
        self._columns = columns
        self._lifted: Wide
        self._numbers = [gains.field.joined(self._shares)]
        """This party's shared inputs of all candidates."""
        self.stage: GarblerStage
        self.to_beat: Labels

    def offer_carries(self, side: SenderSide, parcel: Unpacked) -> Made:
        field = self.gains.field
        own, message = side.offer(parcel, carries_to_offer(self._shares, field))
        self._lifted = sender_lift(self._shares, own, field)
        return [message]

    def offer_squares(self, side: SenderSide, parcel: Unpacked) -> Made:
        field, nodes = self.gains.field, self.gains.nodes
        own_cross, cross = side.offer(parcel, shares_to_offer(self._lifted, field))
        own_total, total = side.offer(parcel, totals_to_offer(self._lifted, nodes, field))
        squares = sender_squares(self._lifted, own_cross, own_total, field)
        self._numbers = [*squares, wide(self._shares[:, 1].copy())]
        return [cross, total]

    def take_labels(self, side: SenderSide, parcel: Unpacked) -> None:
        gains = self.gains
        other, by_node, self.to_beat = gains.parted(side.rows(parcel, gains.labels))
        sizes = gains.stage.candidate_bits.values()
        bits = [bits_of(number, size) for number, size in zip(self._numbers, sizes, strict=True)]
        if gains.circuit.column_bits:
            bits.append(self._columns)
        self.stage = GarblerStage(
            gains.stage,
            np.concatenate(bits),
            other,
            by_node,
            side.secret,
            side.permutation,
            side.tweaks.take(gains.instances),
        )

    def best(self, found: Mapping[str, Labels], run: Run) -> dict[str, Labels]:
        """Labels of the best ``gain`` of each node, its ``index``, and what is ``to beat``."""
        best = finished(tournament(found["gain"], self.gains.nodes, run))
        return {**best, "to beat": self.to_beat}


class GainEvaluator:
    """The active party's half; ``inputs`` are those of its ``nodes``, bool (nodes,)."""

    def __init__(
        self, gains: Gains, shares: Shares, inputs: NodeInputs, nodes: NDArray[np.bool_]
    ) -> None:
        self.gains = gains
        self._moved = offset(shares.reshape(-1, 2), gains.field)
        self._totals = inputs.totals[nodes, 0]
        self._known = {name: bits[:, nodes] for name, bits in inputs.bits.items()}
        self._lifted: Wide
        self._numbers = [gains.field.joined(shares.reshape(-1, 2))]
        """This party's shared inputs of all candidates."""
        self.stage: EvaluatorStage
        self.to_beat: Labels

    def choose_carries(self, side: ReceiverSide) -> Made:
        return [side.choose(chosen_carries(self._moved, self.gains.field))]

    def choose_squares(self, side: ReceiverSide, parcel: Unpacked) -> Made:
        field = self.gains.field
        self._lifted = receiver_lift(self._moved, side.receive(parcel, 1), field)
        return [
            side.choose(chosen_shares(self._lifted, field)),
            side.choose(chosen_totals(self._totals, field)),
        ]

    def take_squares(self, side: ReceiverSide, parcel: Unpacked) -> None:
        gains = self.gains
        cross, totals = side.receive(parcel, 1), side.receive(parcel, gains.candidates)
        squares = receiver_squares(self._lifted, self._totals, cross, totals, gains.field)
        self._numbers = [*squares, wide(self._moved[:, 1].copy())]

    def choose_labels(self, side: ReceiverSide) -> Made:
        gains = self.gains
        sizes = gains.stage.candidate_bits.values()
        bits = [
            bits_of(number, size).reshape(-1)
            for number, size in zip(self._numbers, sizes, strict=True)
        ]
        names = [*gains.stage.node_bits, *(["to beat"] if gains.first else [])]
        bits += [self._known[name].reshape(-1) for name in names]
        turned, rows = side.choose_rows(np.concatenate(bits))
        other, by_node, self.to_beat = gains.parted(rows)
        tweaks = side.tweaks.take(gains.instances)
        self.stage = EvaluatorStage(gains.stage, other, by_node, side.permutation, tweaks)
        return [turned]

    def best(self, found: Mapping[str, Labels], run: Run) -> dict[str, Labels]:
        """The same as the passive party's half has them."""
        best = finished(tournament(found["gain"], self.gains.nodes, run))
        return {**best, "to beat": self.to_beat}
