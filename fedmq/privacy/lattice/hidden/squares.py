"""How do two parties share the squares of sums that they share? Cross products by transfers.

With G_L = a + p, G_L² = a² + p² + 2ap, and of the right side (G - G_L)² = G_L² + G² - 2G·G_L. Each
party squares its own share; ap, and Gp of a whole node at once, are products of what one party
holds and the other (`correlated`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.hidden.field import Field
from fedmq.privacy.oblivious_transfer.correlated import (
    factor_choices,
    joined_products,
    offered_factors,
)
from fedmq.privacy.oblivious_transfer.wide_integers import (
    Wide,
    add,
    multiply,
    shift_up,
    subtract,
    wide,
)

__all__ = [
    "chosen_shares",
    "chosen_totals",
    "receiver_squares",
    "sender_squares",
    "shares_to_offer",
    "totals_to_offer",
]


def chosen_shares(lifted: Wide, field: Field) -> NDArray[np.bool_]:
    """The label holder's choices for ap, one for each bit of its shares (n, 2)."""
    return factor_choices(lifted, field.square_bits - 1)


def shares_to_offer(lifted: Wide, field: Field) -> Wide:
    """The feature holder's numbers for ap: (bits * n, 1, 2) of its shares (n, 2)."""
    return offered_factors(lifted[:, np.newaxis], field.square_bits - 1)


def chosen_totals(totals: NDArray[np.int64], field: Field) -> NDArray[np.bool_]:
    """The label holder's choices for Gp, a bit of G + 2^(F - 2) each; ``totals``: G (nodes,)."""
    return factor_choices(wide(totals + np.int64(field.bound)), field.bits - 1)


def totals_to_offer(lifted: Wide, nodes: int, field: Field) -> Wide:
    """The feature holder's numbers for Gp: (bits * nodes, candidates, 2)."""
    return offered_factors(lifted.reshape(nodes, -1, 2), field.bits - 1)


def sender_squares(
    lifted: Wide, of_shares: Wide, of_totals: Wide, field: Field
) -> tuple[Wide, Wide]:
    """The feature holder's shares of G_L² and G_R²: (n, 2) each."""
    cross, with_total = _products(of_shares, of_totals, field)
    with_total = subtract(with_total, shift_up(lifted, field.bits - 2))
    left = add(multiply(lifted, lifted), shift_up(cross, 1))
    return left, subtract(left, shift_up(with_total, 1))


def receiver_squares(
    lifted: Wide, totals: NDArray[np.int64], of_shares: Wide, of_totals: Wide, field: Field
) -> tuple[Wide, Wide]:
    """The label holder's shares of G_L² and G_R²: (n, 2) each; ``totals`` int64 (nodes,)."""
    cross, with_total = _products(of_shares, of_totals, field)
    total = np.repeat(wide(totals), len(lifted) // len(totals), axis=0)
    left = add(multiply(lifted, lifted), shift_up(cross, 1))
    with_total = add(with_total, multiply(total, lifted))
    return left, add(left, subtract(multiply(total, total), shift_up(with_total, 1)))


def _products(of_shares: Wide, of_totals: Wide, field: Field) -> tuple[Wide, Wide]:
    """Shares of ap and of (G + 2^(F - 2)) p: (n, 2) each."""
    cross = joined_products(of_shares, field.square_bits - 1).reshape(-1, 2)
    return cross, joined_products(of_totals, field.bits - 1).reshape(-1, 2)
