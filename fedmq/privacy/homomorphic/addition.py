"""With which arithmetic does a feature holder add ciphertexts?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.homomorphic.arithmetic.ciphertext_bytes import from_wire, to_wire
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

Sums = NDArray[Any]
"""Encrypted histograms (nodes, features, codes), in the form of the `Addition` that made them."""


@dataclass(frozen=True)
class Addition(ABC):
    """Adds ciphertexts under ``key``; ``tricks`` save products where they are allowed."""

    key: PublicKey
    tricks: Tricks

    @abstractmethod
    def sum_bins(
        self,
        ciphertexts: NDArray[np.uint8],
        ciphertext_of: NDArray[np.integer],
        bins: NDArray[np.integer],
        slots: NDArray[np.integer],
        *,
        nodes: int,
        codes: int,
    ) -> Sums:
        """Sums per cell: ``ciphertexts`` (count, bytes) of the wire, one of them for each row.

        ``bins`` and ``slots`` as of `encrypted_histogram.sum_bins`, with its errors.
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

        ``sums`` (places, features, codes) of one node; ``runs`` of its cells are cumulated one
        after another, and of these sums the ``chosen`` are shown.
        """


@dataclass(frozen=True)
class OneByOne(Addition):
    """With numbers of GMP, as objects."""

    def sum_bins(
        self,
        ciphertexts: NDArray[np.uint8],
        ciphertext_of: NDArray[np.integer],
        bins: NDArray[np.integer],
        slots: NDArray[np.integer],
        *,
        nodes: int,
        codes: int,
    ) -> Sums:
        numbers = from_wire(ciphertexts, self.key.modulus)
        return sum_bins(
            [numbers[index] for index in ciphertext_of.tolist()],
            bins,
            slots,
            nodes=nodes,
            codes=codes,
            modulus=self.key.modulus,
            tricks=self.tricks,
        )

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
        packed = layout.pack(layout.by_place(shown), self.key.modulus)
        if layout.rows > 1:
            packed = self.key.add(packed, layout.masks(len(chosen), random))
        return to_wire(self.key.rerandomise(packed, random), self.key.modulus)
