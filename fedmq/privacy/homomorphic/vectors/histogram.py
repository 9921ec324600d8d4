"""Encrypted histograms of many columns: eight columns of a row are summed by one product.

The sums are those of `encrypted_histogram`, as rows of `residues`: arrays (…, words).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.homomorphic.arithmetic.joint_histogram import Tricks
from fedmq.privacy.homomorphic.vectors.machine_code import LANES
from fedmq.privacy.homomorphic.vectors.residues import Residues, Rows

__all__ = ["cumulate", "one_by_one", "sum_bins"]

# Products of eight columns take the time of so many made one by one, by measurement at 2048 bits.
_EIGHT = 1.4


def one_by_one(bins: NDArray[np.integer], tricks: Tricks) -> NDArray[np.bool_]:
    """Which columns of ``bins`` (rows, features) are summed faster without vectors.

    Columns of few values are summed jointly there, as many as have fewer joint cells than there are
    rows; and the fullest bin, such as zero, costs nothing (see `joint_histogram`).
    """
    rows = max(2, len(bins))
    chosen = np.zeros(bins.shape[1], np.bool_)
    for column in range(bins.shape[1]):
        counts = np.bincount(bins[:, column])
        values = max(2, int(np.count_nonzero(counts)))
        joined = max(1, int(log(rows) / log(values))) if tricks.joint else 1
        skipped = int(counts.max(initial=0)) if tricks.skip_fullest else 0
        chosen[column] = min(rows - skipped, rows / joined) < rows * _EIGHT / LANES
    return chosen


def sum_bins(
    residues: Residues,
    factors: Rows,
    bins: NDArray[np.integer],
    slots: NDArray[np.integer],
    *,
    nodes: int,
    codes: NDArray[np.integer],
) -> Rows:
    """Sums per cell, (nodes, cells, words), of the rows ``factors`` (rows, words).

    ``bins`` (rows, features) and ``slots`` (rows,) as of `encrypted_histogram.sum_bins`; ``codes``
    (features,): a feature's cells stand side by side, as many as it has codes.
    """
    held = np.flatnonzero(slots >= 0)
    features = bins.shape[1]
    groups = -(-features // LANES)
    # Columns that do not fill eight are summed with empty ones, of one cell each.
    padding = groups * LANES - features
    every = np.append(codes, np.ones(padding, np.int64)).astype(np.int64)
    first_cell = np.cumsum(every) - every
    padded = np.zeros((len(held), groups * LANES), np.int64)
    padded[:, :features] = bins[held]
    cells = residues.ones(nodes * int(every.sum()))
    factor_at = np.repeat(held, LANES)
    first_of = slots[held].astype(np.int64)[:, None] * int(every.sum())
    for group in range(groups):
        lanes = np.arange(group * LANES, (group + 1) * LANES)
        places = (first_of + first_cell[lanes] + padded[:, lanes]).ravel()
        residues.multiply(cells, places, cells, places, factors, factor_at)
    shaped = cells.reshape(nodes, -1, residues.words)
    return np.ascontiguousarray(shaped[:, : int(codes.sum())])


def cumulate(residues: Residues, sums: Rows, runs: Sequence[NDArray[np.intp]]) -> Rows:
    """Running sums (candidates, words) of each run of ``sums`` (cells, words), side by side.

    A run lists cells, as of `encrypted_histogram.cumulate`.
    """
    lengths = np.array([len(run) for run in runs], np.int64)
    starts = np.cumsum(lengths) - lengths
    cells = np.concatenate([np.empty(0, np.int64), *runs]).astype(np.int64)
    running = sums[cells]
    for step in range(1, int(lengths.max(initial=0))):
        places = starts[lengths > step] + step
        residues.multiply(running, places, running, places - 1, sums, cells[places])
    return running
