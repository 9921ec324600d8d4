"""Encrypted histograms: sums of ciphertexts per node, feature and bin, in few products.

Summing n rows into the bins of one feature takes about n products. Two features summed into their
*joint* cells take n products together; the bins of each are then sums of those cells, of which
there are few: n + U products instead of 2n, where U counts the joint cells that hold a row. Groups
of features are joined greedily, the greatest saving first.

The *fullest* cell of a group needs no product of its rows: it is the total less all others, for one
inverse. So a column that is mostly zero, or mostly missing, costs its other rows alone. One group
is summed in full, for the total. Cells are counted on the bins, which costs next to nothing beside
the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from gmpy2 import invert, mpz
from numpy.typing import NDArray

from fedmq.errors import DataError, MessageError

__all__ = [
    "COLUMNS_AT_ONCE",
    "Cells",
    "FeatureCells",
    "JointCells",
    "Sums",
    "Tricks",
    "cumulate",
    "merge",
    "plan_cells",
    "saved_by_skipping",
    "subtract",
    "sum_bins",
]

# Products that a joint must save to be worth its bookkeeping.
_LEAST_SAVING = 64

# A modular inverse takes the time of so many products, by measurement at 2048 and 4096 bits.
_INVERSE = 32

# Joint cells are counted in a table of cells, at most so many times longer than the rows.
_SPARSEST = 16


@dataclass(frozen=True, slots=True)
class Tricks:
    """The permitted ways to save products; the sums are the same."""

    joint: bool = True
    skip_fullest: bool = True


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """The occupied bins of one feature.

    ``cell_of`` (rows,) int64 is each row's cell, ``codes`` (cells,) the bin of each cell, and
    ``fullest`` the most rows of a cell.
    """

    feature: int
    cell_of: NDArray[np.int64]
    codes: NDArray[np.int64]
    fullest: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.codes)

    @property
    def spread(self) -> int:
        """Products from the sums of cells to the sums of bins."""
        return 0


@dataclass(frozen=True, eq=False)
class JointCells:
    """The occupied pairs of cells of two groups.

    ``cell_of`` (rows,) int64 is each row's cell; ``first_of`` and ``second_of`` (cells,) are the
    cells of ``first`` and ``second`` that each cell belongs to.
    """

    cell_of: NDArray[np.int64]
    first: FeatureCells | JointCells
    second: FeatureCells | JointCells
    first_of: NDArray[np.int64]
    second_of: NDArray[np.int64]
    fullest: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.first_of)

    @property
    def spread(self) -> int:
        """Products from the sums of cells to the sums of bins."""
        parts = (self.first, self.second)
        return sum(self.size - part.size + part.spread for part in parts)


Cells = FeatureCells | JointCells


def saved_by_skipping(group: Cells) -> int:
    """Products saved if the fullest cell is the total less the others; negative for a loss.

    The first factor of a cell needs no product; in the product of all others each factor does.
    """
    return group.fullest - group.size - _INVERSE


def products(groups: Sequence[Cells], tricks: Tricks) -> int:
    """Products to sum all rows into the bins of all features of ``groups``."""
    taken = sum(len(group.cell_of) - group.size + group.spread for group in groups)
    skipping = groups if tricks.skip_fullest else ()
    saved = [max(0, saved_by_skipping(group)) for group in skipping]
    return taken - sum(saved) + min(saved, default=0)


def plan_cells(bins: NDArray[np.integer], tricks: Tricks) -> list[Cells]:
    """Groups of features to sum jointly, covering each column of ``bins`` (rows, features) once.

    Every group is one feature without ``tricks.joint``.
    """
    rows = len(bins)
    features: list[Cells] = [
        _feature_cells(feature, bins[:, feature]) for feature in range(bins.shape[1])
    ]
    if not tricks.joint or rows <= _LEAST_SAVING:
        return features
    return min(_joined(features), features, key=lambda groups: products(groups, tricks))


def _joined(features: Sequence[Cells]) -> list[Cells]:
    """Groups joined greedily. Ignoring skipped fullest cells joins a little too much."""
    groups = dict(enumerate(features))
    savings = {(a, b): _saving(groups[a], groups[b]) for b in groups for a in range(b)}
    joined = len(groups)
    while savings:
        a, b = max(savings, key=savings.__getitem__)
        if savings[a, b] < _LEAST_SAVING:
            break
        union = _join(groups.pop(a), groups.pop(b))
        savings = {pair: saving for pair, saving in savings.items() if not {a, b} & set(pair)}
        savings |= {(name, joined): _saving(group, union) for name, group in groups.items()}
        groups[joined] = union
        joined += 1
    return list(groups.values())


def _feature_cells(feature: int, codes: NDArray[np.integer]) -> FeatureCells:
    return FeatureCells(feature, *_occupied(codes, np.bincount(codes)))


def _occupied(
    place: NDArray[np.integer], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Each row's number among the occupied places, these places, and the most rows in one."""
    rank = np.cumsum(counts > 0) - 1
    return rank[place], np.flatnonzero(counts), int(counts.max(initial=0))


def _counts(first: Cells, second: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each row's place in the table of all pairs of cells, and how many rows each place holds."""
    place = first.cell_of * second.size + second.cell_of
    return place, np.bincount(place, minlength=first.size * second.size)


def _saving(first: Cells, second: Cells) -> int:
    """Products saved by joining; none if the table of pairs is too sparse to promise any."""
    rows = len(first.cell_of)
    if first.size * second.size > _SPARSEST * rows:
        return 0
    return rows - int(np.count_nonzero(_counts(first, second)[1]))


def _join(first: Cells, second: Cells) -> JointCells:
    cell_of, places, fullest = _occupied(*_counts(first, second))
    of_first, of_second = np.divmod(places, second.size)
    return JointCells(cell_of, first, second, of_first, of_second, fullest)


# Encrypted histograms: sums of ciphertexts per node, feature and bin.
#
# To add ciphertexts is to multiply them modulo the key's modulus, 3 to 4 µs at 2048 bits, two
# thirds of them the reduction; the rest of this file saves products. A cell that no
# row falls into is 1, the encryption of zero without noise, and products of the same ciphertexts
# are the same number: sums must be re-randomised before they leave.


ALL_TRICKS = Tricks()

# An array of ciphertexts (mpz); pickles, slices and reshapes like any other.
Sums = NDArray[np.object_]

COLUMNS_AT_ONCE = 16
"""Features that are considered for joint sums at a time: all pairs grow with the square."""

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
    ``tricks`` save products. To share the work among processes split the
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
            slice(start, start + COLUMNS_AT_ONCE)
            for start in range(0, bins.shape[1], COLUMNS_AT_ONCE)
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
    """The same products; the cell of most rows is ``total`` less all others."""
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
