"""Encrypted histograms: sums of ciphertexts per node, feature and bin.

To add ciphertexts is to multiply them modulo the key's modulus, 3 to 4 µs at 2048 bits, two thirds
of them the reduction; everything else here is about doing it less often. A cell that no row falls
into is 1, the encryption of zero without noise, and products of the same ciphertexts are the same
number: sums must be re-randomised before they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from gmpy2 import invert, mpz
from numpy.typing import NDArray

from fedmq.errors import DataError, MessageError
from fedmq.privacy.homomorphic.arithmetic.joint_histogram import (
    Cells,
    FeatureCells,
    Tricks,
    plan_cells,
    saved_by_skipping,
)

__all__ = ["Sums", "cumulate", "merge", "subtract", "sum_bins"]

ALL_TRICKS = Tricks()

# An array of ciphertexts (mpz); pickles, slices and reshapes like any other.
Sums = NDArray[np.object_]

# Features that are considered for joint sums at a time; comparing all pairs grows with the square.
_FEATURES_AT_ONCE = 16

_ZERO = mpz(1)


def sum_bins(
    ciphertexts: Sequence[mpz],
    bins: NDArray[np.integer],
    slots: NDArray[np.integer],
    *,
    nodes: int,
    codes: int,
    modulus: mpz,
    tricks: Tricks = ALL_TRICKS,
) -> Sums:
    """Sums per cell, of shape (nodes, features, codes).

    ``bins`` (rows, features) holds bin codes below ``codes``, a missing value being a code like any
    other. ``slots`` (rows,) holds each row's node in [0, nodes), or -1 if it is not asked for.
    ``tricks`` (see `joint_histogram`) save products. To share the work among processes split the
    rows and `merge`: the work falls evenly, and joint sums lose less than by splitting features.

    Raises:
        DataError: shapes or codes do not fit.
        MessageError: a ciphertext shares a factor with the modulus.
    """
    _check(len(ciphertexts), bins, slots, nodes, codes)
    sums = np.full((nodes, bins.shape[1], codes), _ZERO, dtype=np.object_)
    for node in range(nodes):
        rows = np.flatnonzero(slots == node)
        factors = [ciphertexts[row] for row in rows.tolist()]
        blocks = [
            slice(start, start + _FEATURES_AT_ONCE)
            for start in range(0, bins.shape[1], _FEATURES_AT_ONCE)
        ]
        groups = [
            (group, sums[node, block])
            for block in blocks
            for group in plan_cells(bins[rows, block], tricks)
        ]
        # One group is summed in full, for the total: the one that loses least by it.
        groups.sort(key=lambda pair: saved_by_skipping(pair[0]))
        skips = tricks.skip_fullest and any(saved_by_skipping(group) > 0 for group, _ in groups[1:])
        total: mpz | None = None
        for group, target in groups:
            if total is not None and saved_by_skipping(group) > 0:
                cells = _products_but_fullest(factors, group, total, modulus)
            else:
                cells = _products(factors, group.cell_of, group.size, modulus)
            if skips and total is None:
                total = _product(cells, modulus)
            _spread(group, cells, target, modulus)
    return sums


def merge(partials: Sequence[Sums], modulus: mpz) -> Sums:
    """The sums over all rows from sums over parts of them, of equal shape."""
    return reduce(lambda merged, partial: merged * partial % modulus, partials)


def subtract(parents: Sums, children: Sums, modulus: mpz) -> Sums:
    """parents - children: the other sibling's sums, of the same shape.

    One modular inverse for all (Montgomery's trick, Math. Comp. 48 (1987)), three products a cell
    more. Raises `MessageError` if a sum shares a factor with the modulus.
    """
    divisors = children.ravel().tolist()
    prefixes = [_ZERO]
    for divisor in divisors:
        prefixes.append(prefixes[-1] * divisor % modulus)
    inverse = _inverse(prefixes[-1], modulus)
    differences = np.empty(len(divisors), dtype=np.object_)
    minuends = parents.ravel().tolist()
    for i in range(len(divisors) - 1, -1, -1):
        differences[i] = minuends[i] * (inverse * prefixes[i] % modulus) % modulus
        inverse = inverse * divisors[i] % modulus
    return differences.reshape(parents.shape)


def cumulate(sums: Sums, runs: Sequence[NDArray[np.intp]], modulus: mpz) -> Sums:
    """Running sums for split candidates, one-dimensional: those of each run, one after another.

    A run lists the flat indices into ``sums`` of one feature's bins in one node, in the order of
    its cuts; a candidate in another order is then a matter of indexing the result.
    """
    flat = sums.ravel()
    running = []
    for run in runs:
        accumulated = _ZERO
        for c in flat[run].tolist():
            accumulated = accumulated * c % modulus
            running.append(accumulated)
    cumulated = np.empty(len(running), dtype=np.object_)
    cumulated[:] = running
    return cumulated


def _products(
    factors: Sequence[mpz], cell_of: NDArray[np.int64], size: int, modulus: mpz
) -> list[mpz]:
    """The product of the factors of each cell."""
    products = [_ZERO] * size
    for cell, factor in zip(cell_of.tolist(), factors, strict=True):
        products[cell] = products[cell] * factor % modulus
    return products


def _products_but_fullest(
    factors: Sequence[mpz], group: Cells, total: mpz, modulus: mpz
) -> list[mpz]:
    """The same, where the cell of most rows is ``total`` less all others."""
    fullest = int(np.bincount(group.cell_of).argmax())
    rest = np.flatnonzero(group.cell_of != fullest)
    chosen = [factors[row] for row in rest.tolist()]
    cells = _products(chosen, group.cell_of[rest], group.size, modulus)
    cells[fullest] = total * _inverse(_product(cells, modulus), modulus) % modulus
    return cells


def _product(factors: Sequence[mpz], modulus: mpz) -> mpz:
    return reduce(lambda product, factor: product * factor % modulus, factors, _ZERO)


def _inverse(product: mpz, modulus: mpz) -> mpz:
    try:
        return invert(product, modulus)
    except ZeroDivisionError:
        raise MessageError(
            "ciphertexts: a sum shares a factor with the key; ask the key's owner to encrypt again"
        ) from None


def _spread(group: Cells, cells: list[mpz], sums: Sums, modulus: mpz) -> None:
    """Write the cells of a group into the bins of its features, ``sums`` (features, codes)."""
    if isinstance(group, FeatureCells):
        sums[group.feature, group.codes] = cells
        return
    for part, part_of in ((group.first, group.first_of), (group.second, group.second_of)):
        _spread(part, _products(cells, part_of, part.size, modulus), sums, modulus)


def _check(
    count: int,
    bins: NDArray[np.integer],
    slots: NDArray[np.integer],
    nodes: int,
    codes: int,
) -> None:
    if bins.ndim != 2 or slots.shape != (count,) or len(bins) != count:
        raise DataError(
            f"sums: {count} ciphertexts, bins of shape {bins.shape} and slots of shape "
            f"{slots.shape} do not describe the same rows"
        )
    if bins.size and (bins.min() < 0 or bins.max() >= codes):
        row, feature = np.argwhere((bins < 0) | (bins >= codes))[0]
        raise DataError(
            f"row {row}, feature {feature}: bin {bins[row, feature]} is not in [0, {codes})"
        )
    if slots.size and (slots.min() < -1 or slots.max() >= nodes):
        row = int(np.flatnonzero((slots < -1) | (slots >= nodes))[0])
        raise DataError(f"row {row}: node slot {slots[row]} is not in [-1, {nodes})")
