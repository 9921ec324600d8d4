"""Which leaves does a person's score tell, if it is a sum of leaves whose weights are known?

The sum is exact, so of few trees one combination of leaves alone has it: found by halves, as
subset sums are. Of many trees a great many combinations have it. Then each tree's leaf is guessed
by how far the rest of the sum is from what the other trees come to on average.

With reasons there are several sums, one a party.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["guessed_leaves", "likeliest_leaves"]

_MOST_OF_A_HALF = 15
"""Combinations of half of the trees, as a power of two."""


def likeliest_leaves(covers: Sequence[NDArray[np.float64]]) -> list[int]:
    """By tree, the leaf where most of the training stood: what is guessed without a score."""
    return [int(np.argmax(cover)) for cover in covers]


def guessed_leaves(
    weights: Sequence[NDArray[np.int64]],
    covers: Sequence[NDArray[np.float64]],
    totals: NDArray[np.int64],
) -> list[int]:
    """By tree, the leaf that is guessed from the sums ``totals`` (n,) of one leaf of each tree.

    ``weights`` (leaves, n) and ``covers`` (leaves,) of each tree: what a leaf adds to each sum, and
    how much of the training stood there.
    """
    chances = [np.log(np.maximum(cover, 1e-9) / cover.sum()) for cover in covers]
    first = _halved(weights)
    sizes = np.log2([len(tree) for tree in weights])
    if max(sizes[:first].sum(), sizes[first:].sum()) <= _MOST_OF_A_HALF:
        # One number stands for several sums, for they are all equal or none.
        mixed = np.random.default_rng(0).integers(2**62, size=len(totals)) | 1
        found = _by_halves(
            [weight @ mixed for weight in weights], chances, first, int(totals @ mixed)
        )
        if found is not None:
            return found
    return _by_likelihood(weights, chances, totals)


def _halved(weights: Sequence[NDArray[np.int64]]) -> int:
    """How many trees to take first, so that both halves have about as many combinations."""
    sizes = np.cumsum([np.log(len(tree)) for tree in weights])
    return int(np.searchsorted(sizes, sizes[-1] / 2)) + 1


def _sums(
    weights: Sequence[NDArray[np.int64]], chances: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The sum and the logarithmic chance of each combination, the last tree's leaves fastest."""
    sums, logs = np.zeros(1, np.int64), np.zeros(1)
    for weight, chance in zip(weights, chances, strict=True):
        sums = np.add.outer(sums, weight).ravel()
        logs = np.add.outer(logs, chance).ravel()
    return sums, logs


def _by_halves(
    weights: Sequence[NDArray[np.int64]],
    chances: Sequence[NDArray[np.float64]],
    first: int,
    total: int,
) -> list[int] | None:
    """The likeliest combination with this sum; None if there is none."""
    head, head_logs = _sums(weights[:first], chances[:first])
    tail, tail_logs = _sums(weights[first:], chances[first:])
    order = np.lexsort((-tail_logs, tail))
    ordered = tail[order]
    place = np.searchsorted(ordered, total - head)  # the likeliest of equal sums comes first
    place = np.minimum(place, len(ordered) - 1)
    fits = np.flatnonzero(ordered[place] == total - head)
    if not len(fits):
        return None
    logs = head_logs[fits] + tail_logs[order[place[fits]]]
    best = fits[np.argmax(logs)]
    parts = ((weights[:first], int(best)), (weights[first:], int(order[place[best]])))
    return [
        int(leaf)
        for trees, number in parts
        for leaf in (np.unravel_index(number, [len(tree) for tree in trees]) if len(trees) else ())
    ]


def _by_likelihood(
    weights: Sequence[NDArray[np.int64]],
    chances: Sequence[NDArray[np.float64]],
    totals: NDArray[np.int64],
) -> list[int]:
    means, spreads = [], []
    for weight, chance in zip(weights, chances, strict=True):
        shares = np.exp(chance) / np.exp(chance).sum()
        means.append(shares @ weight)
        apart = weight - means[-1]
        spreads.append((apart.T * shares) @ apart)
    found = []
    for tree, (weight, chance) in enumerate(zip(weights, chances, strict=True)):
        rest = totals - (sum(means) - means[tree]) - weight
        spread = sum(spreads) - spreads[tree]
        spread = spread + np.diag(np.maximum(1e-9 * np.diag(spread), 1.0))
        far = np.einsum("ij,ij->i", rest @ np.linalg.inv(spread), rest)
        found.append(int(np.argmax(chance - far / 2)))
    return found
