"""Which ring elements do both sides share? One for each block of rows, and one for masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmq.privacy.lattice.layout import LIMBS, Layout
from fedmq.privacy.lattice.ring import Transform, transformed
from fedmq.privacy.lattice.sampling import public_element

__all__ = ["MASK_ELEMENT", "PublicElements", "TransformPublic", "shares_of"]

MASK_ELEMENT = 2**32
"""The number of a', with which hints are masked; blocks have smaller numbers."""


@dataclass(frozen=True, eq=False)
class PublicElements:
    """In the frequency domain: ``every`` one, (blocks + 1, 6, N/2), that of masks last."""

    every: Transform

    @classmethod
    def joined(cls, parts: Sequence[Transform]) -> PublicElements:
        """Of what the computations of `shares_of` made."""
        return cls(np.concatenate(parts))

    @property
    def blocks(self) -> Transform:
        """Those of the rows: (blocks, 6, N/2)."""
        return self.every[:-1]

    @property
    def mask(self) -> Transform:
        """That of masks: (6, N/2)."""
        mask: Transform = self.every[-1]
        return mask


@dataclass(frozen=True, eq=False)
class TransformPublic:
    """The elements of these numbers in the frequency domain: complex128 (numbers, 6, N/2)."""

    label: ClassVar[str] = "TransformPublic"
    seed: bytes
    numbers: Sequence[int]
    degree: int

    def run(self) -> Transform:
        transforms = np.empty((len(self.numbers), LIMBS, self.degree // 2), np.complex128)
        for place, number in enumerate(self.numbers):
            transforms[place] = transformed(public_element(self.seed, number, self.degree))
        return transforms


def shares_of(seed: bytes, layout: Layout, parallelism: int) -> list[TransformPublic]:
    """All that ``layout`` needs, shared out."""
    numbers = [*range(layout.blocks), MASK_ELEMENT]
    size = -(-len(numbers) // parallelism)
    return [
        TransformPublic(seed, tuple(numbers[start : start + size]), layout.degree)
        for start in range(0, len(numbers), size)
    ]
