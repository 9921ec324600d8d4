"""Which slot of which ciphertext belongs to which leaf of which row?

Slots of a row and an output fill whole blocks of 64, for the sum over a block is all that a
passive party lets the active party see, under a mask. Blocks of a row's outputs follow one another,
and so do rows, over the ciphertexts of a question.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.privacy.sealed_scores.parameters import (
    BLOCK_SLOTS,
    BLOCKS,
    DEGREE,
    PRIME,
)

__all__ = ["MOST_SLOTS", "FixedPoint", "Packing"]

_AT_ONCE = 2  # ciphertexts of a question about many rows
MOST_SLOTS = 1 << 20
"""Of a row, over all outputs: 256 ciphertexts."""


@dataclass(frozen=True)
class Packing:
    """The places of ``counts`` slots of each output.

    Raises:
        DataError: a row has no slots, or more than `MOST_SLOTS`.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < sum(self.counts) <= MOST_SLOTS:
            raise DataError(
                f"{sum(self.counts):,} leaves; mode 'sealed' takes 1 to {MOST_SLOTS:,} of a row"
            )

    @property
    def slots(self) -> int:
        """Slots of a row."""
        return sum(self.counts)

    @cached_property
    def _blocks(self) -> list[int]:
        return [-(-count // BLOCK_SLOTS) for count in self.counts]

    @property
    def rows(self) -> int:
        """The most rows of one question: as many as some ciphertexts hold, for fewer messages."""
        return max(1, _AT_ONCE * BLOCKS // sum(self._blocks))

    def ciphertexts(self, rows: int) -> int:
        """The ciphertexts of a question about so many ``rows``."""
        return -(-rows * sum(self._blocks) // BLOCKS)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The place of each slot of a row among its blocks."""
        starts = BLOCK_SLOTS * np.cumsum([0, *self._blocks])
        parts = [
            start + np.arange(count) for start, count in zip(starts, self.counts, strict=False)
        ]
        return np.concatenate(parts)

    def laid_out(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """``values`` (rows, slots) in the slots of ciphertexts, (ciphertexts, N); 0 elsewhere."""
        rows = len(values)
        flat = np.zeros((rows, sum(self._blocks) * BLOCK_SLOTS), np.int64)
        flat[:, self._places] = values
        laid = np.zeros((self.ciphertexts(rows), DEGREE), np.int64)
        laid.ravel()[: flat.size] = flat.ravel()
        # Slots k of one block are those with the same k modulo the number of blocks.
        return laid.reshape(-1, BLOCKS, BLOCK_SLOTS).swapaxes(1, 2).reshape(-1, DEGREE)

    def runs(self, rows: int) -> NDArray[np.int64]:
        """Which row and output each block belongs to: row * outputs + output, -1 for none."""
        outputs = np.repeat(np.arange(len(self.counts)), self._blocks)
        runs = np.full(self.ciphertexts(rows) * BLOCKS, -1, np.int64)
        used = np.arange(rows)[:, np.newaxis] * len(self.counts) + outputs
        runs[: used.size] = used.ravel()
        return runs

    def sums(self, blocks: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """The sums of ``blocks``, numbers modulo t, by row and output, signed: (rows, outputs)."""
        sums = np.zeros(rows * len(self.counts), np.int64)
        runs = self.runs(rows)
        np.add.at(sums, runs[runs >= 0], blocks[runs >= 0])
        sums %= PRIME
        return np.where(sums > PRIME // 2, sums - PRIME, sums).reshape(rows, len(self.counts))


@dataclass(frozen=True)
class FixedPoint:
    """Numbers as multiples of 2^-``bits``, modulo t."""

    bits: int

    @classmethod
    def for_sums(cls, largest: float, terms: int) -> FixedPoint:
        """The finest one in which sums of ``terms`` numbers, up to ``largest``, stay below t / 2.

        Raises:
            DataError: ``largest`` is not finite.
        """
        if not math.isfinite(largest):
            raise DataError("the model has leaves that are not finite; mode 'sealed' takes none")
        room = PRIME // 2 - terms
        bits = math.frexp(room / largest)[1] - 1 if largest else 0
        return cls(min(bits, 1000))

    def of(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """``numbers`` modulo t, rounded."""
        return np.rint(np.ldexp(numbers, self.bits)).astype(np.int64) % PRIME

    def read(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Signed ``sums`` as numbers."""
        return np.ldexp(sums.astype(np.float64), -self.bits)
