"""How do both halves scan sets of categories, if neither may see the order of the categories?

A first stage of circuits computes the weight of each category from shares of its sums, and sorts
the categories of each column. The passive party masks the sorted sums, and the active party reads
them: masked sums and masks are fresh shares. Those of sets follow by addition, and take the places
of the categories in all that comes after: nothing there knows of sets. Once the winner is known to
the circuits, one more tells the passive party which categories of its set go right, by labels that
the active party returns with its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Labels, colours
from fedmq.privacy.hidden_sums.category_order import (
    MOST_ORDERED_BITS,
    MOST_WEIGHT_ANDS,
    SetColumns,
    comparators,
    mask_schedule,
    place_labels,
    set_schedule,
    sorted_categories,
    weight_inputs,
    weight_schedule,
)
from fedmq.privacy.hidden_sums.circuits import GainCircuit, NodeInputs, Run
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.hidden_sums.sides import (
    Made,
    ReceiverSide,
    SenderSide,
    Unpacked,
    extended_bytes,
    finished,
    packed_bits,
    take_bits,
)
from fedmq.privacy.hidden_sums.stages import EvaluatorStage, GarblerStage, Stage
from fedmq.privacy.oblivious_transfer.correlated import add, bits_of, negate, subtract
from fedmq.privacy.oblivious_transfer.extension import BLOCK_BYTES, BLOCK_WORDS, turned_bytes
from fedmq.privacy.random_stream import Stream

__all__ = ["SetEvaluator", "SetGarbler", "SetLevel", "scanned_shares"]


@dataclass(frozen=True, slots=True)
class SetLevel:
    """The ``columns`` that are split by sets in each of ``nodes`` nodes, by the rule of a gain."""

    circuit: GainCircuit
    nodes: int
    columns: SetColumns

    @property
    def field(self) -> Field:
        return self.circuit.field

    @property
    def stage(self) -> Stage:
        """That of the weights."""
        return Stage(
            partial(weight_schedule, self.circuit),
            self.nodes,
            self.columns.categories,
            {"sums": 2 * self.field.bits},
            weight_inputs(self.circuit),
        )

    @property
    def evaluator_bytes(self) -> int:
        """The bytes that the active party sends of sets: choices, and labels in its claim."""
        labels = self.stage.labels
        claim = self.columns.categories * self.nodes * BLOCK_BYTES
        return extended_bytes(labels) + turned_bytes(labels) + claim

    @property
    def garbler_bytes(self) -> int:
        """The most bytes that the passive party sends of the order of categories."""
        bits, columns = 2 * self.field.bits, self.columns
        words = MOST_ORDERED_BITS + max(map(len, columns.columns)).bit_length()
        pairs = sum(len(layer) for held in columns.columns for layer in comparators(len(held)))
        ands = (2 * words + bits) * pairs + (bits + MOST_WEIGHT_ANDS) * columns.categories
        return (ands * TABLE_BYTES + bits * columns.categories) * self.nodes

    def set_ands(self, index_bits: int) -> int:
        """At least as many ANDs as the circuit has that tells the winning set of a node."""
        columns = self.columns
        sets = sum(2 * columns.steps(number) for number in range(len(columns.columns)))
        return sets * index_bits + sum(
            len(layer) for held in columns.columns for layer in comparators(len(held))
        )


def scanned_shares(
    shares: Shares, ordered: Shares, total: Shares, columns: SetColumns, field: Field
) -> Shares:
    """A party's shares of the sums on the left of all that is scanned: (nodes, scanned, 2).

    ``shares`` (nodes, candidates, 2), ``ordered`` (nodes, categories, 2) those of each column's
    sorted categories alone, and ``total`` (nodes, 2) those of nodes.
    """
    found = shares[:, columns.scanned]
    sums, whole = field.joined(ordered), field.joined(total)
    for number, (start, held) in enumerate(zip(columns.starts(), columns.slices(), strict=True)):
        running = [sums[:, held.start]]
        for place in range(held.start + 1, held.stop):
            running.append(add(running[-1], sums[:, place]))
        steps = columns.steps(number)
        for place, size in enumerate(columns.sizes(number)):
            right, forward = running[size - 1], place < steps
            # Of a beginning on the right, missing values go left; of an end on the left, right.
            left = subtract(whole if forward else running[-1], right)
            found[:, start + place] = field.parted(left)
    return found


class _SetHalf:
    """What both halves know of sets."""

    def __init__(self, level: SetLevel) -> None:
        self.level = level
        self.scanned: Shares
        """This party's shares of the sums on the left of all that is scanned."""
        self._turned: Labels

    def _sorted(
        self, found: Mapping[str, Labels], secret: NDArray[np.uint64] | None, run: Run
    ) -> Labels:
        """Labels of the sums of sorted categories, (bits, nodes * categories, 2)."""
        level = self.level
        places = place_labels(level.columns, secret)
        sorted_ = finished(sorted_categories(level.columns, found, places, level.nodes, run))
        self._turned = sorted_["turned"]
        return sorted_["sums"]

    def right(self, nodes: NDArray[np.bool_], linked: Mapping[str, Labels], run: Run) -> Labels:
        """Labels of who goes right in the winning set of ``nodes``, by what a link found."""
        schedule = set_schedule(self.level.columns, len(linked["index"]))
        inputs = {
            "won": linked["won"],
            "index": linked["index"],
            "turned": np.ascontiguousarray(self._turned[:, nodes]),
        }
        return finished(run(schedule, inputs))["right"]


class SetGarbler(_SetHalf):
    """The passive party's half; ``shares`` uint64 (nodes, candidates, 2), as candidates are shown.

    Its masks follow from the session's ``seed``.
    """

    def __init__(self, level: SetLevel, shares: Shares, seed: bytes) -> None:
        super().__init__(level)
        self._shares = shares
        self._seed = seed

    def take_labels(self, side: SenderSide, parcel: Unpacked) -> GarblerStage:
        """Take the labels that weights are garbled with."""
        stage, field = self.level.stage, self.level.field
        side.fill(parcel, stage.labels)
        other, by_node = _parted(side.rows(parcel, stage.labels), stage)
        # A category's candidate has it alone on the right, and the node's sums are not shared.
        alone = negate(field.joined(self._shares[:, self.level.columns.members].reshape(-1, 2)))
        return GarblerStage(
            stage,
            stage.batches(),
            bits_of(alone, 2 * field.bits),
            other,
            by_node,
            side.secret,
            side.permutation,
            side.tweaks.take(stage.instances),
        )

    def close(self, side: SenderSide, found: Mapping[str, Labels]) -> Made:
        """Tables that sort categories by the weights that were ``found``, and masked sums."""
        level, field = self.level, self.level.field
        tables: Made = []
        # No tweak is taken twice in a session, even if a level begins anew: so no mask is.
        stream = Stream(self._seed, f"fedmq masks of categories {side.tweaks.start}")
        run = side.garble(tables)
        sums = self._sorted(found, side.secret, run)
        masks = stream.words(level.nodes, level.columns.categories, 2) & field.mask
        bits = bits_of(field.joined(masks.reshape(-1, 2)), 2 * field.bits)
        labels = np.where(bits[..., np.newaxis], side.secret, np.uint64(0))
        inputs = {"sums": sums, "mask": labels}
        masked = finished(run(mask_schedule(len(bits)), inputs))["masked"]
        own = field.parted(negate(field.joined(masks)))
        none = np.zeros((level.nodes, 2), np.uint64)
        self.scanned = scanned_shares(self._shares, own, none, level.columns, field)
        return [*tables, packed_bits(colours(masked))]


class SetEvaluator(_SetHalf):
    """The active party's half; ``inputs`` are those of the nodes."""

    def __init__(self, level: SetLevel, shares: Shares, inputs: NodeInputs) -> None:
        super().__init__(level)
        self._shares = shares
        self._totals: Shares = inputs.totals.view(np.uint64)
        self._known = [inputs.bits[name] for name in level.stage.node_bits]

    def choose_labels(self, side: ReceiverSide) -> tuple[Made, EvaluatorStage]:
        """Choices of labels that weights are evaluated with."""
        stage, field = self.level.stage, self.level.field
        filled = side.fill(stage.labels)
        left = field.joined(self._shares[:, self.level.columns.members])
        alone = subtract(field.joined(self._totals)[:, np.newaxis], left).reshape(-1, 2)
        chosen = [bits_of(alone, 2 * field.bits), *self._known]
        turned, rows = side.choose_rows(np.concatenate([bits.reshape(-1) for bits in chosen]))
        other, by_node = _parted(rows, stage)
        batches, tweaks = stage.batches(), side.tweaks.take(stage.instances)
        evaluating = EvaluatorStage(stage, batches, other, by_node, side.permutation, tweaks)
        return [*filled, turned], evaluating

    def close(self, side: ReceiverSide, parcel: Unpacked, found: Mapping[str, Labels]) -> None:
        """Take the parcel after all weights, whose labels were ``found``."""
        level, field = self.level, self.level.field
        run = side.evaluate(parcel)
        sums = self._sorted(found, None, run)
        inputs = {"sums": sums, "mask": np.zeros_like(sums)}
        masked = finished(run(mask_schedule(len(sums)), inputs))["masked"]
        bits = colours(masked) ^ take_bits(parcel, masked.shape[:2])
        fields = np.stack([_words(bits[field.bits :]), _words(bits[: field.bits])], axis=-1)
        ordered = fields.reshape(level.nodes, level.columns.categories, 2)
        self.scanned = scanned_shares(self._shares, ordered, self._totals, level.columns, field)


def _parted(rows: NDArray[np.uint64], stage: Stage) -> tuple[Labels, Labels]:
    """Rows of labels as those of categories, and those of nodes."""
    of_categories = sum(stage.candidate_bits.values()) * stage.instances
    return (
        rows[:of_categories].reshape(-1, stage.instances, BLOCK_WORDS),
        rows[of_categories:].reshape(-1, stage.nodes, BLOCK_WORDS),
    )


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Integers of at most 64 ``bits`` (count, n), the lowest first."""
    packed = np.packbits(bits, axis=0, bitorder="little")
    filled = np.zeros((8, bits.shape[1]), np.uint8)
    filled[: len(packed)] = packed
    return np.ascontiguousarray(filled.T).view("<u8")[:, 0]
