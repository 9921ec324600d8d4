"""How are shares read at a place that neither party knows? By a choice of one table by each.

Both know a share of the place: place = i_A ⊕ i_P. Each permutes its table of shares by its own
share of the place, and takes off a mask of its own: entry j of what it offers is that of the place
j ⊕ its share. The other one chooses entry j = its share, by a transfer of one of 2^b (Naor and
Pinkas, STOC 1999, section 2: entry j is hidden by one pad of each of b transfers, those of the bits
of j). What each reads, with its own mask, is a fresh share.

A slot is one such place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.hidden.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.correlated import add, bits_of, wide
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS, Permutation, Tweaks, hashed

__all__ = [
    "Places",
    "chosen_entries",
    "fresh_shares",
    "hidden_entries",
    "index_choices",
    "offered_entries",
]

Places = NDArray[np.int64]
"""(nodes, slots): a party's shares of places."""


def index_choices(places: Places, bits: int) -> NDArray[np.bool_]:
    """The choices of ``places``, slot by slot, the lowest bit first: bool (slots * bits,)."""
    return bits_of(wide(places.reshape(-1)), bits).T.reshape(-1)


def offered_entries(
    shares: Shares, places: Places, masks: Shares, bits: int, field: Field
) -> NDArray[np.uint64]:
    """A party's tables: uint64 (slots, 2^bits, 2).

    ``shares`` (nodes, C, 2); ``masks`` (nodes, slots, 2), which are this party's fresh ones.
    """
    nodes, candidates, _ = shares.shape
    entries = np.arange(1 << bits)
    # Nobody asks beyond the last candidate.
    at = np.minimum(entries ^ places[..., np.newaxis], candidates - 1)
    rows = shares[np.arange(nodes)[:, np.newaxis, np.newaxis], at]
    less = field.less(rows, np.broadcast_to(masks[:, :, np.newaxis], rows.shape))
    return less.reshape(places.size, 1 << bits, BLOCK_WORDS)


def hidden_entries(
    tables: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    secret: NDArray[np.uint64],
    permutation: Permutation,
    tweaks: Tweaks,
) -> NDArray[np.uint64]:
    """``tables`` (slots, 2^b, 2) as the other party may read one entry of each; same shape.

    ``rows`` uint64 (slots * b, 2): the sender's of transfers.
    """
    slots, entries, _ = tables.shape
    bits = (entries - 1).bit_length()
    numbers = tweaks.spend(len(rows))
    of_bits = [
        hashed(permutation, blocks, numbers, entries).reshape(slots, bits, entries, BLOCK_WORDS)
        for blocks in (rows, rows ^ secret)
    ]
    hidden = tables.copy()
    for bit in range(bits):
        chosen = (np.arange(entries) >> bit & 1).astype(np.bool_)[:, np.newaxis]
        hidden ^= np.where(chosen, of_bits[1][:, bit], of_bits[0][:, bit])
    return hidden


def chosen_entries(
    hidden: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    places: Places,
    permutation: Permutation,
    tweaks: Tweaks,
) -> NDArray[np.uint64]:
    """The entries at ``places``: uint64 (slots, 2). ``rows``: the receiver's of transfers."""
    slots, entries, _ = hidden.shape
    bits = (entries - 1).bit_length()
    pads = hashed(permutation, rows, tweaks.spend(len(rows)), entries)
    at = places.reshape(-1)
    together = np.bitwise_xor.reduce(pads.reshape(slots, bits, entries, BLOCK_WORDS), axis=1)
    entry: NDArray[np.uint64] = (hidden ^ together)[np.arange(slots), at]
    return entry


def fresh_shares(entries: NDArray[np.uint64], masks: Shares, field: Field) -> Shares:
    """A party's shares of the places, of what it read and its own masks: (nodes, slots, 2)."""
    read = field.joined(entries.reshape(masks.shape))
    return field.parted(add(read, field.joined(masks)))
