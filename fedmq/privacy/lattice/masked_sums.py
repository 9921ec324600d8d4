"""How do sums of a lattice answer become shares? The feature holder subtracts what it keeps.

An answer is ``y - p·2^noise``, where p is uniform over both fields of a pair: what the label holder
reads of it is its own share, and says nothing. Errors and the noise over them stay below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.answer import AnswerQuery
from fedmq.privacy.lattice.decryption import DecryptAnswer
from fedmq.privacy.lattice.hidden.field import Field, Shares
from fedmq.privacy.lattice.layout import LIMB_BITS, Layout
from fedmq.privacy.lattice.limbs import carried, field_at
from fedmq.privacy.random_stream import Stream

__all__ = ["MaskSums", "ReadShares", "shares_at"]

_WORD = 64
_LOW = np.uint64(2**LIMB_BITS - 1)


@dataclass(frozen=True, eq=False)
class MaskSums:
    """The limbs of an answer, uint32 (C, 6), and what the feature holder keeps: shares (C, 2).

    Raises `MessageError` for a malformed query.
    """

    label: ClassVar[str] = "MaskSums"
    answer: AnswerQuery

    def run(self) -> tuple[NDArray[np.uint32], Shares]:
        layout = self.answer.layout
        sums, seed = self.answer.sums()
        kept = _drawn(seed, sums.shape[-1], layout)
        _subtract(sums, kept, layout)
        return np.ascontiguousarray(carried(sums).T), kept


@dataclass(frozen=True, eq=False)
class ReadShares:
    """Of each answer the numbers of hints, uint32 (C,), and the label holder's shares (C, 2).

    Raises `MessageError` for a malformed answer.
    """

    label: ClassVar[str] = "ReadShares"
    answers: DecryptAnswer

    def run(self) -> list[tuple[NDArray[np.uint32], Shares]]:
        layout = self.answers.layout
        return [(numbers, shares_at(limbs, layout)) for numbers, limbs in self.answers.limbs()]


def shares_at(limbs: NDArray[np.uint32], layout: Layout) -> Shares:
    """What stands in the fields of numbers (6, C)."""
    mask = Field(layout.field_bits).mask
    fields = [field_at(limbs, offset) & mask for offset in (layout.g_offset(0), layout.h_offset(0))]
    return np.stack(fields, axis=-1)


def _drawn(seed: bytes, count: int, layout: Layout) -> Shares:
    """Uniform shares of this answer alone: its noise comes of the same seed, by another stream."""
    words = Stream(seed, "fedmq lattice shares").words(count, 2)
    return words & Field(layout.field_bits).mask


def _subtract(sums: NDArray[np.int64], shares: Shares, layout: Layout) -> None:
    for column, offset in ((0, layout.g_offset(0)), (1, layout.h_offset(0))):
        field = shares[:, column]
        first, shift = divmod(offset, LIMB_BITS)
        for limb in range(first, len(sums)):
            up = LIMB_BITS * (limb - first) - shift
            if up >= _WORD:
                break
            part = field >> np.uint64(up) if up >= 0 else field << np.uint64(-up)
            sums[limb] -= (part & _LOW).astype(np.int64)
