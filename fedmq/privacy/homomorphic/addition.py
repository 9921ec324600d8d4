"""With which arithmetic does a passive party add ciphertexts? One by one, or eight at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any, ClassVar

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.privacy.homomorphic.histogram import Tricks, cumulate, merge, subtract, sum_bins
from fedmq.privacy.homomorphic.instructions import LANES, eight_times
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.residues import (
    Residues,
    Rows,
    from_wire,
    residues_of,
    to_wire,
    width,
)
from fedmq.privacy.homomorphic.scheme import (
    PublicKey,
    SeededBytes,
    exponent_bytes,
    has_table,
    powers_of,
    public_noise,
)

__all__ = ["Addition", "EightAtOnce", "OneByOne", "Sums", "one_by_one"]

_NUMBER_BYTES = 64  # overhead of a number in memory

Sums = NDArray[Any]
"""Encrypted histograms (nodes, cells), in the form of the `Addition` that made them.

A feature's cells stand side by side, as many as it has codes, after those of the features before.
"""


@dataclass(frozen=True)
class Addition(ABC):
    """Adds ciphertexts under ``key``; ``tricks`` save products where they are allowed."""

    key: PublicKey
    tricks: Tricks

    at_once: ClassVar[int] = 1
    """Ciphertexts that are packed together: fewer take as long."""

    @property
    @abstractmethod
    def sum_bytes(self) -> int:
        """Bytes of a sum in memory."""

    @abstractmethod
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
        """Sums per cell: ``ciphertexts`` (count, bytes) of the wire, one of them for each row.

        ``bins`` and ``slots`` as of `histogram.sum_bins`, with its errors; ``codes``
        (features,): of each feature.
        """

    @abstractmethod
    def merge(self, parts: Sequence[Sums]) -> Sums:
        """The sums over all rows from sums over parts of them, of equal shape."""

    @abstractmethod
    def subtract(self, parent: Sums, sibling: Sums) -> Sums:
        """The other sibling's sums; MessageError if a sum shares a factor with the modulus."""

    @abstractmethod
    def show(
        self,
        sums: Sums,
        runs: Sequence[NDArray[np.intp]],
        chosen: NDArray[np.integer],
        layout: SlotLayout,
        random: SeededBytes | None = None,
    ) -> NDArray[np.uint8]:
        """Running sums packed, masked and under noise, fresh or of ``random``, as wire bytes.

        ``sums`` (places, cells) of one node; ``runs`` of its cells are cumulated one
        after another, and of these sums the ``chosen`` are shown.
        """


@dataclass(frozen=True)
class OneByOne(Addition):
    """Adds GMP numbers, one by one, as objects."""

    @property
    def sum_bytes(self) -> int:
        return int(width(self.key.modulus)) + _NUMBER_BYTES

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
        numbers = from_wire(ciphertexts, self.key.modulus)
        widest = int(codes.max(initial=0))
        filled = np.arange(widest) < codes[:, np.newaxis]
        sums = np.empty((nodes, int(codes.sum())), np.object_)
        # One node at a time, so that only one has its cells padded to the widest feature.
        for node in range(nodes):
            rows = np.flatnonzero(slots == node)
            [by_feature] = sum_bins(
                [numbers[index] for index in ciphertext_of[rows].tolist()],
                bins[rows],
                np.zeros(len(rows), np.int32),
                nodes=1,
                codes=widest,
                modulus=self.key.modulus,
                tricks=self.tricks,
            )
            sums[node] = by_feature[filled]
        return sums

    def merge(self, parts: Sequence[Sums]) -> Sums:
        return merge(parts, self.key.modulus)

    def subtract(self, parent: Sums, sibling: Sums) -> Sums:
        return subtract(parent, sibling, self.key.modulus)

    def show(
        self,
        sums: Sums,
        runs: Sequence[NDArray[np.intp]],
        chosen: NDArray[np.integer],
        layout: SlotLayout,
        random: SeededBytes | None = None,
    ) -> NDArray[np.uint8]:
        shown = [cumulate(place, runs, self.key.modulus)[chosen].tolist() for place in sums]
        if layout.parts > 1:
            parts = [layout.pack(part, self.key.modulus) for part in shown]
            packed = [ciphertext for group in zip(*parts, strict=True) for ciphertext in group]
        else:
            packed = layout.pack(layout.by_place(shown), self.key.modulus)
        if layout.masked:
            packed = self.key.add_plaintexts(packed, layout.masks(len(chosen), random))
        return to_wire(self.key.rerandomise(packed, random), self.key.modulus)


# Encrypted histograms of many columns: eight columns of a row are summed by one product.
#
# The sums are those of `histogram`, as rows of `residues`: arrays (…, words).


def one_by_one(bins: NDArray[np.integer], tricks: Tricks) -> NDArray[np.bool_]:
    """Which columns of ``bins`` (rows, features) are summed faster without vectors.

    Columns of few values are summed jointly there, as many as have fewer joint cells than there are
    rows; and the fullest bin, such as zero, costs nothing.
    """
    rows = max(2, len(bins))
    chosen = np.zeros(bins.shape[1], np.bool_)
    for column in range(bins.shape[1]):
        counts = np.bincount(bins[:, column])
        values = max(2, int(np.count_nonzero(counts)))
        joined = max(1, int(log(rows) / log(values))) if tricks.joint else 1
        skipped = int(counts.max(initial=0)) if tricks.skip_fullest else 0
        chosen[column] = min(rows - skipped, rows / joined) < rows * eight_times() / LANES
    return chosen


def _sum_columns(
    residues: Residues,
    factors: Rows,
    bins: NDArray[np.integer],
    slots: NDArray[np.integer],
    *,
    nodes: int,
    codes: NDArray[np.integer],
) -> Rows:
    """Sums per cell, (nodes, cells, words), of the rows ``factors`` (rows, words).

    ``bins`` (rows, features) and ``slots`` (rows,) as of `histogram.sum_bins`; ``codes``
    (features,): a feature's cells stand side by side, as many as it has codes.
    """
    held = np.flatnonzero(slots >= 0)
    features = bins.shape[1]
    groups = -(-features // LANES)
    # Columns that do not fill eight are summed with empty ones, of one cell each.
    padding = groups * LANES - features
    every = np.append(codes, np.ones(padding, np.int64)).astype(np.int64)
    first_cell = np.cumsum(every) - every
    cells = residues.ones(nodes * int(every.sum()))
    factor_at = np.repeat(held, LANES)
    first_of = slots[held].astype(np.int64)[:, None] * int(every.sum())
    for group in range(groups):
        lanes = np.arange(group * LANES, (group + 1) * LANES)
        places = first_of + first_cell[lanes]
        own = lanes[: features - group * LANES]
        places[:, : len(own)] += bins[np.ix_(held, own)]
        places = places.ravel()
        residues.multiply(cells, places, cells, places, factors, factor_at)
    shaped = cells.reshape(nodes, -1, residues.words)
    return np.ascontiguousarray(shaped[:, : int(codes.sum())])


def _cumulate_columns(residues: Residues, sums: Rows, runs: Sequence[NDArray[np.intp]]) -> Rows:
    """Running sums (candidates, words) of each run of ``sums`` (cells, words), side by side.

    A run lists cells, as of `histogram.cumulate`.
    """
    lengths = np.array([len(run) for run in runs], np.int64)
    starts = np.cumsum(lengths) - lengths
    cells = np.concatenate([np.empty(0, np.int64), *runs]).astype(np.int64)
    running = sums[cells]
    for step in range(1, int(lengths.max(initial=0))):
        places = starts[lengths > step] + step
        residues.multiply(running, places, running, places - 1, sums, cells[places])
    return running


@dataclass(frozen=True)
class EightAtOnce(Addition):
    """Adds rows of `residues`; columns that joint sums make faster use `OneByOne`.

    Plaintexts, noise and secrecy are those of `OneByOne`.
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
            sums[:, ~cell_alone] = _sum_columns(
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
            _cumulate_columns(
                residues, np.ascontiguousarray(place).reshape(-1, residues.words), runs
            )[chosen]
            for place in sums
        ]
        if layout.parts > 1:
            packed = np.stack([self._packed(part, layout) for part in shown], axis=1)
            packed = packed.reshape(-1, residues.words)
        else:
            together = np.stack(shown[::-1], axis=1).reshape(-1, residues.words)
            packed = self._packed(together, layout)
        if layout.masked:
            packed = self._masked(packed, layout.masks(len(chosen), random))
        return residues.to_bytes(self._hidden(packed, random))

    def _packed(self, places: Rows, layout: SlotLayout) -> Rows:
        """`SlotLayout.pack`, all ciphertexts side by side."""
        residues, capacity = self._residues, layout.capacity * layout.rows
        if capacity == 1:
            return places
        starts = np.arange(0, len(places), capacity)
        packed = residues.in_eights(residues.ones(len(starts)))
        every = np.arange(len(packed))
        # The last ciphertext may hold fewer sums, and a vector fewer than eight: ones fill both.
        factors = np.concatenate((places, residues.ones(1)))
        first = np.append(starts, np.full(len(packed) - len(starts), len(places)))
        for place in reversed(range(min(capacity, len(places)))):
            if place + 1 < capacity:
                residues.square(packed, layout.slot_bits * layout.pairs)
            factor_at = np.minimum(first + place, len(places))
            residues.multiply(packed, every, packed, every, factors, factor_at)
        return packed[: len(starts)]

    def _masked(self, rows: Rows, masks: Sequence[int]) -> Rows:
        """`PublicKey.add_plaintexts`."""
        residues, added = self._residues, self.key.added_by_powers(masks)
        if added is None or not has_table(self.key.modulus, added.size):
            masked = self.key.add_plaintexts(residues.to_numbers(rows), masks)
            return residues.from_numbers(masked)
        moved = self._times_powers(rows, added.base, added.exponents, added.size)
        return residues.product(moved, residues.from_numbers([added.back]))

    def _hidden(self, rows: Rows, random: SeededBytes | None) -> Rows:
        """The same plaintexts under noise that is uniform up to 2^-64: `PublicKey.rerandomise`."""
        random = random or SeededBytes()
        residues, size = self._residues, exponent_bytes(self.key.noise_bits)
        if not has_table(self.key.modulus, size):
            base, bits = self.key.noise_base, self.key.noise_bits
            noise = public_noise(base, self.key.modulus, bits, len(rows), random)
            return residues.product(rows, residues.from_numbers(noise))
        drawn = [random.draw(b"noise", index, size) for index in range(len(rows))]
        return self._times_powers(rows, self.key.noise_base, drawn, size)

    def _times_powers(self, rows: Rows, base: mpz, exponents: Sequence[bytes], size: int) -> Rows:
        """Each row times a power of ``base``; exponents of ``size`` bytes, the lowest first."""
        residues = self._residues
        product = residues.in_eights(rows)
        digits = np.zeros((len(product), size), np.int64)
        digits[: len(rows)] = np.frombuffer(b"".join(exponents), np.uint8).reshape(-1, size)
        every = np.tile(np.arange(len(product)), size)
        power_at = (digits + 256 * np.arange(size)).T.ravel()
        powers = _powers(base, self.key.modulus, size)
        residues.multiply(product, every, product, every, powers, power_at)
        return product[: len(rows)]


@lru_cache(maxsize=4)
def _powers(base: mpz, modulus: mpz, places: int) -> Rows:
    """The table of powers as rows: the power d·256^i of ``base`` at 256·i + d."""
    powers = powers_of(base, modulus, places)
    return residues_of(modulus).from_numbers([power for row in powers for power in row])
