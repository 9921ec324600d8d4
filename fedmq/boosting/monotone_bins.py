"""Neighbouring bins pooled until the weight of evidence only rises along them, or only falls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import Strength

__all__ = ["monotone_pools"]


def monotone_pools(counts: NDArray[np.integer], ones: NDArray[np.integer]) -> NDArray[np.intp]:
    """The pool of each bin of ``counts`` rows and ``ones`` among them, ascending from 0; (bins,).

    Adjacent violators are pooled (Ayer et al. 1955), so that the share of ones, and with it the
    weight of evidence, strictly rises or strictly falls from pool to pool: in the direction that
    keeps more information value. Every pool has ones and zeros, if any bins have.
    """
    held = np.asarray(ones, np.int64)
    lacking = np.asarray(counts, np.int64) - held
    rising, falling = _rising(held, lacking), _rising(lacking, held)
    return max(rising, falling, key=lambda pools: _information(pools, held, lacking))


def _rising(ones: NDArray[np.int64], zeros: NDArray[np.int64]) -> NDArray[np.intp]:
    pools: list[list[int]] = []  # ones, zeros and number of bins
    for one, zero in zip(ones.tolist(), zeros.tolist(), strict=True):
        pools.append([one, zero, 1])
        while len(pools) > 1 and not _rises(pools[-2], pools[-1]):
            _pool_last(pools)
    while len(pools) > 1 and not (pools[-1][0] and pools[-1][1]):
        _pool_last(pools)
    return np.repeat(np.arange(len(pools)), [bins for *_, bins in pools])


def _rises(below: list[int], above: list[int]) -> bool:
    """Whether the lower of two pools has both labels, and the smaller share of ones."""
    return bool(below[0] and below[1]) and below[0] * above[1] < above[0] * below[1]


def _pool_last(pools: list[list[int]]) -> None:
    last = pools.pop()
    pools[-1] = [held + more for held, more in zip(pools[-1], last, strict=True)]


def _information(
    pools: NDArray[np.intp], ones: NDArray[np.int64], zeros: NDArray[np.int64]
) -> float:
    held, lacking = (np.bincount(pools, each).astype(np.int64) for each in (ones, zeros))
    strength = Strength.of(held + lacking, held)
    return 0.0 if strength is None else strength.iv
