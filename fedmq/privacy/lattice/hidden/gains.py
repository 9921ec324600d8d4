"""How are the gains of many candidates computed at once? In batches that need nothing of others.

A batch is garbled and evaluated a stretch of tables at a time, so that one travels meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Evaluation, Garbling, Labels
from fedmq.privacy.lattice.hidden.circuits import gain_schedule
from fedmq.privacy.lattice.hidden.level import HiddenLevel, Unpacked
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS, Permutation, Tweaks
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import Stream

__all__ = ["EvaluateGains", "EvaluateMore", "GarbleGains", "GarbleMore", "stretches_of"]

_STRETCH_BYTES = 9_000_000
"""Bytes of tables: a third of a batch. With each stretch the remaining work travels to a worker and
back, which costs the event loop's process some milliseconds."""

Garbled = tuple[NDArray[np.uint64], Garbling]
"""The next parcel for the active party, uint64 (words,), and the remaining work."""


def stretches_of(level: HiddenLevel) -> int:
    """The number of parts in which all batches of a level are garbled."""
    per_instance, schedule = _STRETCH_BYTES / TABLE_BYTES, gain_schedule(level.field)
    return sum(
        len(schedule.stretches(per_instance / (batch.stop - batch.start)))
        for batch in level.batches()
    )


@dataclass(frozen=True, eq=False)
class GarbleGains:
    """Begin a ``batch``: labels of the passive party's ``bits``, and the first tables.

    ``bits`` are bool (bits, instances). Labels of ``others``, by candidate and by node, stand for
    0, as those of the outputs do, of which ``gain`` is one. ``seed`` is the level's.
    """

    label: ClassVar[str] = "GarbleGains"
    level: HiddenLevel
    batch: slice
    bits: NDArray[np.bool_] = field(repr=False)
    others: Labels = field(repr=False)
    by_node: Mapping[str, Labels] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks
    secret: NDArray[np.uint64] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> Garbled:
        batch, schedule = self.batch, gain_schedule(self.level.field)
        purpose = f"fedmq labels of a level from {batch.start}"
        zeros = Stream(self.seed, purpose).words(*self.bits.shape, BLOCK_WORDS)
        inputs = self.level.gain_inputs(batch, zeros, self.others, self.by_node)
        garbling = Garbling(
            schedule, inputs, self.secret, self.permutation, self.tweaks, _STRETCH_BYTES
        )
        own = zeros ^ np.where(self.bits[..., np.newaxis], self.secret, np.uint64(0))
        return _garbled(garbling, own.reshape(-1))


@dataclass(frozen=True, eq=False)
class GarbleMore:
    """The next tables of a batch."""

    label: ClassVar[str] = "GarbleMore"
    level: HiddenLevel
    garbling: Garbling = field(repr=False)

    def run(self) -> Garbled:
        self.garbling.take_up(gain_schedule(self.level.field))
        return _garbled(self.garbling)


def _garbled(garbling: Garbling, first: Labels | None = None) -> Garbled:
    """The next tables, after the labels ``first``."""
    filled = 0 if first is None else first.size
    shape = garbling.awaited
    assert shape is not None, "a batch that is garbled already"
    made = np.empty(filled + math.prod(shape), np.uint64)
    if first is not None:
        made[:filled] = first
    garbling.piece_into(made[filled:].reshape(shape))
    return made, garbling


@dataclass(frozen=True, eq=False)
class EvaluateGains:
    """Begin to evaluate a ``batch`` by the first ``parcel`` about it.

    Raises `MessageError` for a parcel of another length.
    """

    label: ClassVar[str] = "EvaluateGains"
    level: HiddenLevel
    batch: slice
    parcel: Sequence[Values] | NDArray[np.uint64]
    own: Labels = field(repr=False)
    by_node: Mapping[str, Labels] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks

    def run(self) -> Evaluation:
        parcel, batch = Unpacked(self.parcel), self.batch
        shape = (len(self.own), batch.stop - batch.start, BLOCK_WORDS)
        others = parcel.take(np.uint64, shape)
        inputs = self.level.gain_inputs(batch, others, self.own, self.by_node)
        schedule = gain_schedule(self.level.field)
        evaluation = Evaluation(schedule, inputs, self.permutation, self.tweaks, _STRETCH_BYTES)
        return _evaluated(evaluation, parcel)


@dataclass(frozen=True, eq=False)
class EvaluateMore:
    """Go on by the next ``parcel``; raises as `EvaluateGains`."""

    label: ClassVar[str] = "EvaluateMore"
    level: HiddenLevel
    evaluation: Evaluation = field(repr=False)
    parcel: Sequence[Values] | NDArray[np.uint64]

    def run(self) -> Evaluation:
        self.evaluation.take_up(gain_schedule(self.level.field))
        return _evaluated(self.evaluation, Unpacked(self.parcel))


def _evaluated(evaluation: Evaluation, parcel: Unpacked) -> Evaluation:
    shape = evaluation.awaited
    assert shape is not None, "a batch that is evaluated already"
    evaluation.take(parcel.take(np.uint64, shape))
    parcel.end()
    return evaluation
