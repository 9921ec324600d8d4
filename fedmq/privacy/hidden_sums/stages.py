"""How are many instances of a circuit garbled at once? In batches that need nothing of each other.

A batch is garbled and evaluated a stretch of tables at a time, so that one travels meanwhile. The
passive party's own bits need no labels: the label of 0 is its bit times the secret, so that the
active label of the wire is the number 0, which both know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Evaluation, Garbling, Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.sides import Unpacked
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS, Permutation, Tweaks
from fedmq.privacy.plan import Values

__all__ = [
    "Batches",
    "EvaluateBatch",
    "EvaluateMore",
    "EvaluatorStage",
    "GarbleBatch",
    "GarbleMore",
    "Garbled",
    "GarblerStage",
    "Stage",
    "begun_alone",
    "named_labels",
]

_STRETCH_BYTES = 9_000_000
"""Bytes of tables: a third of a batch of gains. With each stretch the remaining work travels to a
worker and back, which costs the event loop's process some milliseconds."""

_SLOTS_AT_ONCE = 400_000
"""Slots of a circuit times its instances in a batch: their labels fit into a cache."""

_LEAST_INSTANCES = 160


class Batches(NamedTuple):
    """The batches of a stage, and the number of ``stretches`` in which all of them are garbled."""

    slices: Sequence[slice]
    stretches: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A circuit over ``candidates`` candidates in each of ``nodes`` nodes, at least one of both.

    ``circuit`` makes its schedule, once in each process. ``candidate_bits``: bits of each party's
    inputs of a candidate, ``own …`` and ``other …`` in the circuit. ``node_bits``: bits of the
    active party's inputs of a node, and ``column_bits`` of the passive party's of a column.
    """

    circuit: Callable[[], Schedule]
    nodes: int
    candidates: int
    candidate_bits: Mapping[str, int]
    node_bits: Mapping[str, int]
    column_bits: Mapping[str, int] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        return self.nodes * self.candidates

    @property
    def own_bits(self) -> Mapping[str, int]:
        """Bits of the passive party's inputs of a candidate, by their names in the circuit."""
        own = {f"own {name}": count for name, count in self.candidate_bits.items()}
        return {**own, **self.column_bits}

    @property
    def labels(self) -> int:
        """Labels that the active party chooses."""
        of_candidates = sum(self.candidate_bits.values()) * self.instances
        return of_candidates + sum(self.node_bits.values()) * self.nodes

    def batches(self) -> Batches:
        """Instances that are garbled together, about as many each time; makes the schedule."""
        schedule = self.circuit()
        at_once = max(_LEAST_INSTANCES, _SLOTS_AT_ONCE // schedule.slots)
        parts = -(-self.instances // at_once)
        batches = [
            slice(self.instances * part // parts, self.instances * (part + 1) // parts)
            for part in range(parts)
        ]
        per_instance = _STRETCH_BYTES / TABLE_BYTES
        stretches = sum(
            len(schedule.stretches(per_instance / (batch.stop - batch.start))) for batch in batches
        )
        return Batches(batches, stretches)

    def inputs(
        self, batch: slice, own: Labels, other: Labels, by_node: Labels
    ) -> dict[str, Labels]:
        """Inputs of the circuit by name, of the instances of ``batch``.

        ``own``, of the batch alone, are labels of the passive party's bits, ``other`` those of the
        active party's, and ``by_node`` (bits, nodes, 2) those of its nodes.
        """
        node = np.arange(batch.start, batch.stop) // self.candidates
        first = int(node[0])
        known = np.ascontiguousarray(by_node[:, first : int(node[-1]) + 1])
        return {
            **named_labels(own, self.own_bits),
            **named_labels(other[:, batch], self.candidate_bits, "other "),
            **named_labels(known[:, node - first], self.node_bits),
        }


def named_labels(labels: Labels, bits: Mapping[str, int], prefix: str = "") -> dict[str, Labels]:
    """Labels (all bits, ...) as inputs by name."""
    parts, start = {}, 0
    for name, count in bits.items():
        parts[prefix + name] = labels[start : start + count]
        start += count
    return parts


@dataclass(frozen=True, eq=False)
class GarblerStage:
    """The passive party's half of a stage: its ``bits``, bool (bits, instances), and labels of 0.

    ``tweaks``: one per instance. ``batches`` are those of the ``stage``: a worker makes them, so
    that no event loop waits for a circuit.
    """

    stage: Stage
    batches: Batches
    bits: NDArray[np.bool_] = field(repr=False)
    other: Labels = field(repr=False)
    by_node: Labels = field(repr=False)
    secret: NDArray[np.uint64] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks

    def batch(self, batch: slice) -> GarbleBatch:
        """The computation that begins to garble ``batch``; batches in order."""
        return GarbleBatch(
            self.stage.circuit,
            self.stage.inputs(batch, self._own(batch), self.other, self.by_node),
            self.secret,
            self.permutation,
            self.tweaks.take(batch.stop - batch.start),
        )

    def _own(self, batch: slice) -> Labels:
        return np.where(self.bits[:, batch, np.newaxis], self.secret, np.uint64(0))


@dataclass(frozen=True, eq=False)
class EvaluatorStage:
    """The active party's half of a stage: labels of its inputs, as `GarblerStage`."""

    stage: Stage
    batches: Batches
    other: Labels = field(repr=False)
    by_node: Labels = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks

    def batch(self, batch: slice, parcel: Sequence[Values] | NDArray[np.uint64]) -> EvaluateBatch:
        """The computation that begins to evaluate ``batch``; batches in order."""
        size = batch.stop - batch.start
        own = np.zeros((sum(self.stage.own_bits.values()), size, BLOCK_WORDS), np.uint64)
        return EvaluateBatch(
            self.stage.circuit,
            self.stage.inputs(batch, own, self.other, self.by_node),
            parcel,
            self.permutation,
            self.tweaks.take(size),
        )


Garbled = tuple[NDArray[np.uint64], Garbling]
"""The next parcel for the active party, uint64 (words,), and the remaining work."""


@dataclass(frozen=True, eq=False)
class GarbleBatch:
    """Begin a batch: its first tables. ``inputs`` are labels that stand for 0, as its outputs'."""

    label: ClassVar[str] = "GarbleGains"
    circuit: Callable[[], Schedule]
    inputs: Mapping[str, Labels] = field(repr=False)
    secret: NDArray[np.uint64] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks

    def run(self) -> Garbled:
        garbling = Garbling(
            self.circuit(), self.inputs, self.secret, self.permutation, self.tweaks, _STRETCH_BYTES
        )
        return _garbled(garbling)


def begun_alone(stages: Sequence[GarblerStage]) -> list[Garbled]:
    """The first tables of what is one batch; none of more, which are made side by side."""
    batches = [(half, batch) for half in stages for batch in half.batches.slices]
    return [half.batch(batch).run() for half, batch in batches] if len(batches) == 1 else []


@dataclass(frozen=True, eq=False)
class GarbleMore:
    """The next tables of a batch."""

    label: ClassVar[str] = "GarbleMore"
    circuit: Callable[[], Schedule]
    garbling: Garbling = field(repr=False)

    def run(self) -> Garbled:
        self.garbling.take_up(self.circuit())
        return _garbled(self.garbling)


def _garbled(garbling: Garbling) -> Garbled:
    shape = garbling.awaited
    assert shape is not None, "a batch that is garbled already"
    made = np.empty(math.prod(shape), np.uint64)
    garbling.piece_into(made.reshape(shape))
    return made, garbling


@dataclass(frozen=True, eq=False)
class EvaluateBatch:
    """Begin to evaluate a batch by the first ``parcel`` about it.

    Raises `MessageError` for a parcel of another length.
    """

    label: ClassVar[str] = "EvaluateGains"
    circuit: Callable[[], Schedule]
    inputs: Mapping[str, Labels] = field(repr=False)
    parcel: Sequence[Values] | NDArray[np.uint64]
    permutation: Permutation
    tweaks: Tweaks

    def run(self) -> Evaluation:
        evaluation = Evaluation(
            self.circuit(), self.inputs, self.permutation, self.tweaks, _STRETCH_BYTES
        )
        return _evaluated(evaluation, Unpacked(self.parcel))


@dataclass(frozen=True, eq=False)
class EvaluateMore:
    """Go on by the next ``parcel``; raises as `EvaluateBatch`."""

    label: ClassVar[str] = "EvaluateMore"
    circuit: Callable[[], Schedule]
    evaluation: Evaluation = field(repr=False)
    parcel: Sequence[Values] | NDArray[np.uint64]

    def run(self) -> Evaluation:
        self.evaluation.take_up(self.circuit())
        return _evaluated(self.evaluation, Unpacked(self.parcel))


def _evaluated(evaluation: Evaluation, parcel: Unpacked) -> Evaluation:
    shape = evaluation.awaited
    assert shape is not None, "a batch that is evaluated already"
    evaluation.take(parcel.take(np.uint64, shape))
    parcel.end()
    return evaluation
