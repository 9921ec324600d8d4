"""With which arithmetic does a feature holder add ciphertexts?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.homomorphic.arithmetic.ciphertext_bytes import from_wire, to_wire, width
from fedmq.privacy.homomorphic.arithmetic.encrypted_histogram import (
    cumulate,
    merge,
    subtract,
    sum_bins,
)
from fedmq.privacy.homomorphic.arithmetic.joint_histogram import Tricks
from fedmq.privacy.homomorphic.arithmetic.noise import SeededBytes
from fedmq.privacy.homomorphic.arithmetic.packing import SlotLayout
from fedmq.privacy.homomorphic.arithmetic.scheme import PublicKey

__all__ = ["Addition", "OneByOne", "Sums"]

_NUMBER_BYTES = 64  # that a number takes in memory besides its own

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
    """Ciphertexts that are packed side by side: fewer take as long."""

    @property
    @abstractmethod
    def sum_bytes(self) -> int:
        """What a sum takes in memory."""

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

        ``bins`` and ``slots`` as of `encrypted_histogram.sum_bins`, with its errors; ``codes``
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
    """With numbers of GMP, as objects."""

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
        # A node after the other, so that no more than one has cells up to the widest feature's.
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
        if layout.rows > 1:
            packed = self.key.add_plaintexts(packed, layout.masks(len(chosen), random))
        return to_wire(self.key.rerandomise(packed, random), self.key.modulus)
