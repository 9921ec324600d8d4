"""How do shares of a field become shares of an integer? By a transfer for each possible carry.

Once the label holder has added 2^(F - 2) to its field of g, both fields stand for numbers below
2^(F - 1). Two shares of such a number have wrapped around 2^F exactly if the highest bit of either
is set. That is one AND of a bit of each, whose shares come of a correlated transfer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.hidden.field import Field, Shares
from fedmq.privacy.oblivious_transfer.wide_integers import Wide, add, shift_up, subtract, wide

__all__ = ["carries_to_offer", "chosen_carries", "offset", "receiver_lift", "sender_lift"]


def offset(shares: Shares, field: Field) -> Shares:
    """The label holder's shares (..., 2) with 2^(F - 2) added to the field of g."""
    moved = shares.copy()
    moved[..., 0] = moved[..., 0] + np.uint64(field.bound) & field.mask
    return moved


def chosen_carries(moved: Shares, field: Field) -> NDArray[np.bool_]:
    """The choices of the label holder, whose shares are `offset`: bool (2n,) of (n, 2)."""
    return field.top(moved).T.reshape(-1)


def carries_to_offer(shares: Shares, field: Field) -> Wide:
    """The numbers of the feature holder with shares (n, 2): (2n, 1, 2)."""
    unset = ~field.top(shares).T.reshape(-1)
    return wide(unset.astype(np.uint64))[:, np.newaxis]


def sender_lift(shares: Shares, carries: Wide, field: Field) -> Wide:
    """The feature holder's shares of G modulo 2^128: (n, 2). ``carries`` (2n, 1, 2)."""
    set_already = wide(field.top(shares).T.astype(np.uint64))
    return _lifted(shares, add(carries.reshape(2, -1, 2), set_already), field)


def receiver_lift(moved: Shares, carries: Wide, field: Field) -> Wide:
    """The label holder's shares of G modulo 2^128: (n, 2). Its own ones are `offset`."""
    lifted = _lifted(moved, carries.reshape(2, -1, 2), field)
    return subtract(lifted, wide(np.array(field.bound, np.uint64)))


def _lifted(shares: Shares, carries: Wide, field: Field) -> Wide:
    """The field of g with what h carries into it, and without what it carries away."""
    of_g, of_h = carries
    return subtract(add(wide(shares[..., 0]), of_h), shift_up(of_g, field.bits))
