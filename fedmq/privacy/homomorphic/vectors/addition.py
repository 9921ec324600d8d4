"""Ciphertexts added eight at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.homomorphic.addition import Addition, OneByOne, Sums
from fedmq.privacy.homomorphic.arithmetic.noise import (
    SeededBytes,
    exponent_bytes,
    has_table,
    powers_of,
    public_noise,
)
from fedmq.privacy.homomorphic.arithmetic.packing import SlotLayout
from fedmq.privacy.homomorphic.arithmetic.scheme import PublicKey
from fedmq.privacy.homomorphic.vectors.histogram import cumulate, one_by_one, sum_bins
from fedmq.privacy.homomorphic.vectors.machine_code import LANES
from fedmq.privacy.homomorphic.vectors.residues import Residues, Rows, residues_of

__all__ = ["EightAtOnce"]


@dataclass(frozen=True)
class EightAtOnce(Addition):
    """With rows of `residues`; columns that are faster by joint sums go that way.

    The plaintexts are those of `OneByOne`, and so are the noise and who can read it.
    """

    at_once = LANES

    @property
    def _residues(self) -> Residues:
        return residues_of(self.key.modulus)

    @property
    def sum_bytes(self) -> int:
        return int(self._residues.words * np.dtype(np.uint64).itemsize)

    def sum_bins(
        self,
        ciphertexts: NDArray[np.uint8],
        ciphertext_of: NDArray[np.integer],
        bins: NDArray[np.integer],
        slots: NDArray[np.integer],
        *,
        nodes: int,
        codes: NDArray[np.integer],
    ) -> Sums:
        residues = self._residues
        sums = np.empty((nodes, int(codes.sum()), residues.words), np.uint64)
        alone = one_by_one(bins, self.tricks)
        cell_alone = np.repeat(alone, codes)
        if alone.any():
            numbers = OneByOne(self.key, self.tricks).sum_bins(
                ciphertexts, ciphertext_of, bins[:, alone], slots, nodes=nodes, codes=codes[alone]
            )
            rows = residues.from_numbers(numbers.ravel().tolist())
            sums[:, cell_alone] = rows.reshape(*numbers.shape, residues.words)
        if not alone.all():
            factors = residues.from_bytes(ciphertexts)[ciphertext_of]
            sums[:, ~cell_alone] = sum_bins(
                residues, factors, bins[:, ~alone], slots, nodes=nodes, codes=codes[~alone]
            )
        return sums

    def merge(self, parts: Sequence[Sums]) -> Sums:
        merged, *others = parts
        for part in others:
            merged = self._product(merged, part)
        return merged

    def subtract(self, parent: Sums, sibling: Sums) -> Sums:
        inverses = self._residues.inverses(sibling.reshape(-1, sibling.shape[-1]))
        return self._product(parent, inverses)

    def _product(self, left: Sums, right: Sums) -> Sums:
        words = left.shape[-1]
        product = self._residues.product(
            np.ascontiguousarray(left).reshape(-1, words),
            np.ascontiguousarray(right).reshape(-1, words),
        )
        return product.reshape(left.shape)

    def show(
        self,
        sums: Sums,
        runs: Sequence[NDArray[np.intp]],
        chosen: NDArray[np.integer],
        layout: SlotLayout,
        random: SeededBytes | None = None,
    ) -> NDArray[np.uint8]:
        residues = self._residues
        shown = [
            cumulate(residues, np.ascontiguousarray(place).reshape(-1, residues.words), runs)[
                chosen
            ]
            for place in sums
        ]
        if layout.parts > 1:
            packed = np.stack([self._packed(part, layout) for part in shown], axis=1)
            packed = packed.reshape(-1, residues.words)
        else:
            together = np.stack(shown[::-1], axis=1).reshape(-1, residues.words)
            packed = self._packed(together, layout)
        if layout.rows > 1:
            numbers = residues.to_numbers(packed)
            masked = self.key.add_plaintexts(numbers, layout.masks(len(chosen), random))
            packed = residues.from_numbers(masked)
        return residues.to_bytes(self._hidden(packed, random))

    def _packed(self, places: Rows, layout: SlotLayout) -> Rows:
        """`SlotLayout.pack`, all ciphertexts side by side."""
        residues, capacity = self._residues, layout.capacity * layout.rows
        if capacity == 1:
            return places
        starts = np.arange(0, len(places), capacity)
        packed = residues.in_eights(residues.ones(len(starts)))
        every = np.arange(len(packed))
        # The last ciphertext may hold fewer sums, and of eight some may be none: they take ones.
        factors = np.concatenate((places, residues.ones(1)))
        first = np.append(starts, np.full(len(packed) - len(starts), len(places)))
        for place in reversed(range(min(capacity, len(places)))):
            if place + 1 < capacity:
                residues.square(packed, layout.slot_bits * layout.pairs)
            factor_at = np.minimum(first + place, len(places))
            residues.multiply(packed, every, packed, every, factors, factor_at)
        return packed[: len(starts)]

    def _hidden(self, rows: Rows, random: SeededBytes | None) -> Rows:
        """The same plaintexts under noise that is uniform up to 2^-64: `PublicKey.rerandomise`."""
        random = random or SeededBytes()
        residues, size = self._residues, exponent_bytes(self.key.noise_bits)
        if not has_table(self.key.modulus, size):
            base, bits = self.key.noise_base, self.key.noise_bits
            noise = public_noise(base, self.key.modulus, bits, len(rows), random)
            return residues.product(rows, residues.from_numbers(noise))
        drawn = b"".join(random.draw(b"noise", index, size) for index in range(len(rows)))
        hidden = residues.in_eights(rows)
        digits = np.zeros((len(hidden), size), np.int64)
        digits[: len(rows)] = np.frombuffer(drawn, np.uint8).reshape(len(rows), size)
        every = np.tile(np.arange(len(hidden)), size)
        power_at = (digits + 256 * np.arange(size)).T.ravel()
        residues.multiply(hidden, every, hidden, every, _powers(self.key, size), power_at)
        return hidden[: len(rows)]


@lru_cache(maxsize=2)
def _powers(key: PublicKey, places: int) -> Rows:
    """The table of `noise` as rows: the power d·256^i of the noise's base at 256·i + d."""
    powers = powers_of(key.noise_base, key.modulus, places)
    return residues_of(key.modulus).from_numbers([power for row in powers for power in row])
