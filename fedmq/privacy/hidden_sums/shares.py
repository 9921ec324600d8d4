"""How are sums shared? As two fields, each of which may carry into the next.

The active party's share a and the passive party's p of a pair are uniform numbers with
a + p = G·2^F + H modulo 2^(2F). They are kept as their upper and lower F bits: uint64 (..., 2).

Circuits do not know where shares come from. The halves of an engine make them: `ActiveShares` and
`PassiveShares`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.engine import ActiveHalf, PassiveHalf
from fedmq.privacy.oblivious_transfer.correlated import (
    Wide,
    add,
    factor_choices,
    joined_products,
    multiply,
    offered_factors,
    shift_up,
    subtract,
    wide,
)

__all__ = [
    "ActiveShares",
    "Field",
    "PassiveShares",
    "Shares",
    "carries_to_offer",
    "chosen_carries",
    "chosen_shares",
    "chosen_totals",
    "offset",
    "receiver_lift",
    "receiver_squares",
    "sender_lift",
    "sender_squares",
    "shares_to_offer",
    "sums_field",
    "totals_to_offer",
]

Shares = NDArray[np.uint64]
"""(nodes, candidates, 2): fields of g and of h."""

_WORD = 64
_LEAST_WEIGHT_BITS = 57
_MOST_SUM_BITS = 62  # the fixed point of gradients has no larger sums


@dataclass(frozen=True, slots=True)
class Field:
    """Fields of ``bits``, F at most 64: |G| < 2^(F - 2) and 0 <= H < 2^(F - 2), strictly."""

    bits: int

    @property
    def bound(self) -> int:
        """The bound of sums, exclusive."""
        return 1 << (self.bits - 2)

    @property
    def square_bits(self) -> int:
        """Bits of the square of a sum."""
        return 2 * (self.bits - 2)

    @property
    def weight_bits(self) -> int:
        """Bits of a sum of hessians and lambda: enough for a lambda of some thousands."""
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
        """A node's share: its parent's less its sibling's."""
        return self.parted(subtract(self.joined(above), self.joined(beside)))


def sums_field(training: NDArray[np.bool_], value_bits: int) -> Field:
    """The fields for sums over rows of ``training``, bool, of g and h up to ``2**value_bits``."""
    bits = value_bits + int(np.count_nonzero(training)).bit_length()
    return Field(min(_MOST_SUM_BITS, bits) + 2)


class ActiveShares(ActiveHalf):
    """An active half that reads its shares of sums, and no sum: its answers are `HiddenSums`."""

    @property
    @abstractmethod
    def public_seed(self) -> bytes:
        """Fresh in each session, and known to both halves."""

    @property
    @abstractmethod
    def field(self) -> Field:
        """The fields of the session's shares, once it has started."""

    @abstractmethod
    def shares(self, peer: str, node: int) -> Shares:
        """The shares of the candidates of ``peer``, (C, 2), in a node that was answered."""


class PassiveShares(PassiveHalf):
    """The passive half that faces `ActiveShares`: it keeps the other shares of what it answers."""

    @property
    @abstractmethod
    def public_seed(self) -> bytes:
        """The active half's."""

    @property
    @abstractmethod
    def field(self) -> Field:
        """The fields of the session's shares, once it has started."""

    @abstractmethod
    def shares(self, node: int) -> Shares:
        """The shares of the candidates, (C, 2), in a node of the growing tree.

        Raises:
            MessageError: the active party did not ask about the node.
        """


# How do shares of a field become shares of an integer? By a transfer for each possible carry.
#
# Once the active party has added 2^(F - 2) to its field of g, both fields stand for numbers below
# 2^(F - 1). Two shares of such a number have wrapped around 2^F exactly if the highest bit of
# either is set. That is one AND of a bit of each, shared by a correlated transfer.


def offset(shares: Shares, field: Field) -> Shares:
    """The active party's shares (..., 2) with 2^(F - 2) added to the field of g."""
    moved = shares.copy()
    moved[..., 0] = moved[..., 0] + np.uint64(field.bound) & field.mask
    return moved


def chosen_carries(moved: Shares, field: Field) -> NDArray[np.bool_]:
    """The choices of the active party, whose shares are `offset`: bool (2n,) of (n, 2)."""
    return field.top(moved).T.reshape(-1)


def carries_to_offer(shares: Shares, field: Field) -> Wide:
    """The numbers of the passive party with shares (n, 2): (2n, 1, 2)."""
    unset = ~field.top(shares).T.reshape(-1)
    return wide(unset.astype(np.uint64))[:, np.newaxis]


def sender_lift(shares: Shares, carries: Wide, field: Field) -> Wide:
    """The passive party's shares of G modulo 2^128: (n, 2). ``carries`` (2n, 1, 2)."""
    set_already = wide(field.top(shares).T.astype(np.uint64))
    return _lifted(shares, add(carries.reshape(2, -1, 2), set_already), field)


def receiver_lift(moved: Shares, carries: Wide, field: Field) -> Wide:
    """The active party's shares of G modulo 2^128: (n, 2). Its own ones are `offset`."""
    lifted = _lifted(moved, carries.reshape(2, -1, 2), field)
    return subtract(lifted, wide(np.array(field.bound, np.uint64)))


def _lifted(shares: Shares, carries: Wide, field: Field) -> Wide:
    """The field of g, with the carry from h and without its own carry."""
    of_g, of_h = carries
    return subtract(add(wide(shares[..., 0]), of_h), shift_up(of_g, field.bits))


# How do two parties share the squares of sums that they share? Cross products by transfers.
#
# With G_L = a + p, G_L² = a² + p² + 2ap, and of the right side (G - G_L)² = G_L² + G² - 2G·G_L.
# Each party squares its own share; ap, and Gp of a whole node at once, are products of what one
# party holds and the other (`correlated`).


def chosen_shares(lifted: Wide, field: Field) -> NDArray[np.bool_]:
    """The active party's choices for ap, one for each bit of its shares (n, 2)."""
    return factor_choices(lifted, field.square_bits - 1)


def shares_to_offer(lifted: Wide, field: Field) -> Wide:
    """The passive party's numbers for ap: (bits * n, 1, 2) of its shares (n, 2)."""
    return offered_factors(lifted[:, np.newaxis], field.square_bits - 1)


def chosen_totals(totals: NDArray[np.int64], field: Field) -> NDArray[np.bool_]:
    """The active party's choices for Gp, a bit of G + 2^(F - 2) each; ``totals``: G (nodes,)."""
    return factor_choices(wide(totals + np.int64(field.bound)), field.bits - 1)


def totals_to_offer(lifted: Wide, nodes: int, field: Field) -> Wide:
    """The passive party's numbers for Gp: (bits * nodes, candidates, 2)."""
    return offered_factors(lifted.reshape(nodes, -1, 2), field.bits - 1)


def sender_squares(
    lifted: Wide, of_shares: Wide, of_totals: Wide, field: Field
) -> tuple[Wide, Wide]:
    """The passive party's shares of G_L² and G_R²: (n, 2) each."""
    cross, with_total = _products(of_shares, of_totals, field)
    with_total = subtract(with_total, shift_up(lifted, field.bits - 2))
    left = add(multiply(lifted, lifted), shift_up(cross, 1))
    return left, subtract(left, shift_up(with_total, 1))


def receiver_squares(
    lifted: Wide, totals: NDArray[np.int64], of_shares: Wide, of_totals: Wide, field: Field
) -> tuple[Wide, Wide]:
    """The active party's shares of G_L² and G_R²: (n, 2) each; ``totals`` int64 (nodes,)."""
    cross, with_total = _products(of_shares, of_totals, field)
    total = np.repeat(wide(totals), len(lifted) // len(totals), axis=0)
    left = add(multiply(lifted, lifted), shift_up(cross, 1))
    with_total = add(with_total, multiply(total, lifted))
    return left, add(left, subtract(multiply(total, total), shift_up(with_total, 1)))


def _products(of_shares: Wide, of_totals: Wide, field: Field) -> tuple[Wide, Wide]:
    """Shares of ap and of (G + 2^(F - 2)) p: (n, 2) each."""
    cross = joined_products(of_shares, field.square_bits - 1).reshape(-1, 2)
    return cross, joined_products(of_totals, field.bits - 1).reshape(-1, 2)
