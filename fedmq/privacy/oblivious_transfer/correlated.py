"""How do two parties come to share what depends on a bit of one and a number of the other?

Correlated transfers (Asharov, Lindell, Schneider and Zohner, CCS 2013): for each choice the parties
get random numbers modulo 2^128 whose sum is the sender's number where the choice is 1, and else 0.
Products are sums of such: of each bit of one factor, and the other factor times that bit's place
(Gilboa, CRYPTO 1999, section 4.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.hashing import Permutation, hashed
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks
from fedmq.privacy.oblivious_transfer.wide_integers import (
    Wide,
    add,
    bits_of,
    negate,
    shift_up,
    subtract,
    sum_of,
)

__all__ = ["factor_choices", "joined_products", "offer", "offered_factors", "receive"]


def offer(
    rows: NDArray[np.uint64],
    secret: NDArray[np.uint64],
    numbers: Wide,
    permutation: Permutation,
    tweaks: Tweaks,
) -> tuple[Wide, Wide]:
    """The sender's shares, and what it sends: both (n, k, 2).

    ``rows`` (n, 2) and ``secret`` as `ExtensionSender` has them; ``numbers`` (n, k, 2).
    """
    count, width, _ = numbers.shape
    places = tweaks.spend(count)
    unchosen = hashed(permutation, rows, places, width)
    chosen = hashed(permutation, rows ^ secret, places, width)
    return negate(unchosen), subtract(add(unchosen, numbers), chosen)


def receive(
    rows: NDArray[np.uint64],
    choices: NDArray[np.bool_],
    sent: object,
    width: int,
    permutation: Permutation,
    tweaks: Tweaks,
) -> Wide:
    """The receiver's shares: (n, k, 2), where k is ``width``.

    Raises:
        MessageError: what was ``sent`` is of another shape.
    """
    shape = (len(rows), width, 2)
    if not isinstance(sent, np.ndarray) or sent.dtype != np.uint64 or sent.shape != shape:
        raise MessageError(f"numbers of correlated transfers that are not uint64 {shape}")
    shares = hashed(permutation, rows, tweaks.spend(len(rows)), width)
    shares[choices] = add(shares[choices], sent[choices])
    return shares


def factor_choices(factors: Wide, bits: int) -> NDArray[np.bool_]:
    """The choices that stand for ``factors`` (n, 2) below 2^bits: bool (bits * n,)."""
    return bits_of(factors, bits).reshape(-1)


def offered_factors(factors: Wide, bits: int) -> Wide:
    """The numbers of ``factors`` (n, k, 2) for each of the other party's bits: (bits * n, k, 2)."""
    shifted = np.stack([shift_up(factors, bit) for bit in range(bits)])
    return shifted.reshape(-1, *factors.shape[1:])


def joined_products(shares: Wide, bits: int) -> Wide:
    """Shares of the products (n, k, 2), of those (bits * n, k, 2) of their parts."""
    return sum_of(shares.reshape(bits, -1, *shares.shape[1:]))
