"""How are the gains of many candidates computed at once? In batches that need nothing of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Evaluation, Garbling, Labels
from fedmq.privacy.lattice.hidden.gain_circuit import gain_schedule
from fedmq.privacy.lattice.hidden.level import Level
from fedmq.privacy.lattice.hidden.parcels import Unpacked
from fedmq.privacy.oblivious_transfer.hashing import BLOCK_WORDS, Permutation
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import Stream

__all__ = ["EvaluateGains", "GarbleGains"]

_WORD_BYTES = 8


@dataclass(frozen=True, eq=False)
class GarbleGains:
    """What the label holder gets of a ``batch``, uint64 (words,), and labels of the gains.

    The former are labels of the feature holder's ``bits``, bool (bits, instances), and tables. The
    labels of ``others``, by candidate and by node, stand for 0, as those of the gains do. ``seed``
    is the level's.
    """

    label: ClassVar[str] = "GarbleGains"
    level: Level
    batch: slice
    bits: NDArray[np.bool_] = field(repr=False)
    others: Labels = field(repr=False)
    by_node: Mapping[str, Labels] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks
    secret: NDArray[np.uint64] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> tuple[NDArray[np.uint64], Labels]:
        batch, schedule = self.batch, gain_schedule(self.level.field)
        purpose = f"fedmq labels of a level from {batch.start}"
        zeros = Stream(self.seed, purpose).words(*self.bits.shape, BLOCK_WORDS)
        inputs = self.level.gain_inputs(batch, zeros, self.others, self.by_node)
        garbling = Garbling(schedule, inputs, self.secret, self.permutation, self.tweaks)
        size = zeros.size + schedule.ands * self.bits.shape[1] * TABLE_BYTES // _WORD_BYTES
        made, filled = np.empty(size, np.uint64), zeros.size
        made[:filled] = (
            zeros ^ np.where(self.bits[..., np.newaxis], self.secret, np.uint64(0))
        ).reshape(-1)
        for piece in garbling.pieces():
            made[filled : filled + piece.size] = piece.reshape(-1)
            filled += piece.size
        return made, garbling.outputs["gain"]


@dataclass(frozen=True, eq=False)
class EvaluateGains:
    """Labels of the gains of a ``batch``, by its ``tables``: what `GarbleGains` made of it.

    Raises `MessageError` where that is not as long as it must be.
    """

    label: ClassVar[str] = "EvaluateGains"
    level: Level
    batch: slice
    tables: Sequence[Values] | NDArray[np.uint64]
    own: Labels = field(repr=False)
    by_node: Mapping[str, Labels] = field(repr=False)
    permutation: Permutation
    tweaks: Tweaks

    def run(self) -> Labels:
        parcel, batch = Unpacked(self.tables), self.batch
        shape = (len(self.own), batch.stop - batch.start, BLOCK_WORDS)
        others = parcel.take(np.uint64, shape)
        inputs = self.level.gain_inputs(batch, others, self.own, self.by_node)
        schedule = gain_schedule(self.level.field)
        evaluation = Evaluation(schedule, inputs, self.permutation, self.tweaks)
        while (awaited := evaluation.awaited) is not None:
            evaluation.take(parcel.take(np.uint64, awaited))
        parcel.end()
        return evaluation.outputs["gain"]
