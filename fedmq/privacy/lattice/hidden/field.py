"""How are sums shared? As two fields, each of which may carry into the next.

The label holder's share a and the feature holder's p of a pair are uniform numbers with
a + p = G·2^F + H modulo 2^(2F). They are kept as their upper and lower F bits: uint64 (..., 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.oblivious_transfer.wide_integers import Wide, add, shift_up, subtract, wide

__all__ = ["Field", "Shares"]

Shares = NDArray[np.uint64]
"""(nodes, candidates, 2): fields of g and of h."""

_WORD = 64
_LEAST_WEIGHT_BITS = 57


@dataclass(frozen=True, slots=True)
class Field:
    """Fields of ``bits``, F at most 64: |G| < 2^(F - 2) and 0 <= H < 2^(F - 2), strictly."""

    bits: int

    @property
    def bound(self) -> int:
        """Sums are smaller than this."""
        return 1 << (self.bits - 2)

    @property
    def square_bits(self) -> int:
        """Of the square of a sum."""
        return 2 * (self.bits - 2)

    @property
    def weight_bits(self) -> int:
        """Of a sum of hessians and lambda: enough for a lambda of some thousands."""
        return max(self.bits, _LEAST_WEIGHT_BITS)

    @property
    def mask(self) -> np.uint64:
        """The bits of a field."""
        return np.uint64((1 << self.bits) - 1)

    def top(self, fields: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The highest bit of each."""
        highest: NDArray[np.bool_] = (fields >> np.uint64(self.bits - 1)).astype(np.bool_)
        return highest

    def joined(self, shares: Shares) -> Wide:
        """Both fields as one number."""
        return add(shift_up(wide(shares[..., 0]), self.bits), wide(shares[..., 1]))

    def parted(self, numbers: Wide) -> Shares:
        """Numbers as fields."""
        low, high = numbers[..., 0], numbers[..., 1]
        if self.bits == _WORD:
            return np.stack([high, low], axis=-1)
        upper = low >> np.uint64(self.bits) | high << np.uint64(_WORD - self.bits)
        return np.stack([upper & self.mask, low & self.mask], axis=-1)

    def less(self, above: Shares, beside: Shares) -> Shares:
        """A share of a node: of its parent, less that of its sibling."""
        return self.parted(subtract(self.joined(above), self.joined(beside)))
