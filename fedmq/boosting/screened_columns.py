"""What is a column like, and how well does it alone tell a binary label? Bins, WOE, IV, KS, AUC.

With shares p1 and p0 of the ones and of the zeros in a bin, its weight of evidence is ln(p1 / p0),
and a column's information value the sum of (p1 - p0) ln(p1 / p0) over its bins (Siddiqi 2006). KS
and AUC are those of the weight of evidence taken as a score: they need no order of the bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, ColumnBins, Cuts

__all__ = ["ColumnKind", "ScreenedColumn", "Strength", "chosen_rows", "screened_columns"]

ColumnKind = Literal["number", "categories"]

_MOST_BINS = 50  # of a column of numbers, beside those of missing values
_MOST_CATEGORIES = 50  # bins of a column of categories; a message holds a sum for each
_FEW_ROWS = 2048
_COLUMNS_TOGETHER = 64
_STEPS = ((1, "1"), (2, "2"), (10, "3 to 10"), (100, "11 to 100"))


@dataclass(frozen=True, slots=True, eq=False)
class ScreenedColumn:
    """A column in bins: ``bin_of`` uint16 (rows,), from 0 on, none of them empty.

    ``missing``: the share of rows without a value. ``distinct``: its number of values, in steps.
    """

    name: str
    kind: ColumnKind
    missing: float
    distinct: str
    bin_of: NDArray[np.uint16]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each bin."""
        return np.bincount(self.bin_of)

    def ones(self, label: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Rows of each bin whose ``label`` (rows,) is 1."""
        return np.bincount(self.bin_of[label], minlength=len(self.counts))

    def for_others(self, smallest: int, draw: np.random.Generator) -> ScreenedColumn:
        """The column as others may see it: bins in random order, the missing share in hundredths.

        Fewer than ``smallest`` rows with a value, or without one, are not told from none.
        """
        order = draw.permutation(len(self.counts)).astype(np.uint16)
        rows = len(self.bin_of)
        without = round(self.missing * rows)
        shown = 0.0 if without < smallest else 1.0 if rows - without < smallest else self.missing
        distinct = self.distinct if rows - without >= smallest else _in_steps(1)
        return replace(self, missing=round(shown, 2), distinct=distinct, bin_of=order[self.bin_of])


def chosen_rows(rows: int, most: int, seed: int) -> NDArray[np.intp]:
    """At most ``most`` of so many ``rows``, ascending, drawn by ``seed``."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def screened_columns(
    values: NDArray[np.float32],
    features: Sequence[str],
    category_columns: Mapping[str, Sequence[str]],
    bins: int,
    smallest: int,
    given: Mapping[str, ColumnBins] = MappingProxyType({}),
) -> Iterator[ScreenedColumn]:
    """The columns of ``values``, float32 (rows, features), in bins of ``smallest`` rows or more.

    Numbers are cut at their quantiles into at most so many ``bins``, and missing values have one of
    their own; a column of ``category_columns`` has a bin for each category, and 50 at most, the
    smallest of them together. Small bins are joined:
    numbers with their neighbours, categories with one another, missing values with the last bin.

    ``given``: what owners say of the bins of their columns. Given cuts are taken whatever ``bins``
    is, but 49 at most: of more, the first above each quantile.
    """
    column_of = {name: column for column, names in category_columns.items() for name in names}
    places = {name: place for place, name in enumerate(features)}
    of_numbers = [name for name in features if name not in column_of]
    numbers = _numbers(values, [(name, places[name]) for name in of_numbers], bins, smallest, given)
    done = set()
    for name in features:
        column = column_of.get(name)
        if column is None:
            yield next(numbers)
        elif column not in done:
            done.add(column)
            of_column = [places[each] for each in category_columns[column]]
            yield _of_categories(column, values[:, of_column], smallest)


def _numbers(
    values: NDArray[np.float32],
    features: Sequence[tuple[str, int]],
    bins: int,
    smallest: int,
    given: Mapping[str, ColumnBins],
) -> Iterator[ScreenedColumn]:
    """The columns of numbers ``features``, by name and place, binned some at a time."""
    for first in range(0, len(features), _COLUMNS_TOGETHER):
        part = features[first : first + _COLUMNS_TOGETHER]
        held = values[:, [place for _, place in part]]
        asked = {at: given[name] for at, (name, _) in enumerate(part) if name in given}
        binned = BinMatrix.of(held, _cuts(held, bins, asked))
        for at, (name, _) in enumerate(part):
            yield _of_number(name, held[:, at], binned, at, smallest)


def _of_number(
    name: str, values: NDArray[np.float32], binned: BinMatrix, at: int, smallest: int
) -> ScreenedColumn:
    codes, cells = binned.codes[:, at].astype(np.uint16), int(binned.cuts.n_bins[at])
    missing = codes == cells
    counts = np.bincount(codes, minlength=cells + 1)[:cells]
    bin_of = np.append(_neighbours(counts, smallest), 0).astype(np.uint16)[codes]
    last = int(bin_of[~missing].max(initial=0))
    apart = missing.sum() >= smallest and (~missing).sum() >= smallest
    bin_of[missing] = last + 1 if apart else last
    distinct = _in_steps(_distinct(values[~missing]))
    return ScreenedColumn(name, "number", float(missing.mean()), distinct, bin_of)


def _distinct(values: NDArray[np.float32]) -> int:
    """How many ``values`` there are, or a number above all steps: often few rows tell that."""
    some = len(np.unique(values[:_FEW_ROWS]))
    return some if some > _STEPS[-1][0] else len(np.unique(values))


def _cuts(values: NDArray[np.float32], bins: int, given: Mapping[int, ColumnBins]) -> Cuts:
    """The cuts of columns of numbers (rows, columns), with as many bins as a message holds."""
    cuts = Cuts.of(values, bins, given)
    thresholds = list(cuts.thresholds)
    for place in given:
        own = thresholds[place]
        if len(own) >= _MOST_BINS:
            [quantiles] = Cuts.of(values[:, [place]], _MOST_BINS).thresholds
            nearest = np.unique(np.searchsorted(own, quantiles).clip(max=len(own) - 1))
            thresholds[place] = own[nearest]
    return Cuts(thresholds=tuple(thresholds), has_missing=cuts.has_missing)


def _of_categories(name: str, ones: NDArray[np.float32], smallest: int) -> ScreenedColumn:
    missing = np.isnan(ones).all(axis=1) | (np.nan_to_num(ones).sum(axis=1) == 0)
    codes = np.where(missing, ones.shape[1], np.nan_to_num(ones).argmax(axis=1))
    counts = np.bincount(codes, minlength=ones.shape[1] + 1)
    bin_of = _small_together(counts, smallest)[codes]
    distinct = _in_steps(int((counts[:-1] > 0).sum()))
    return ScreenedColumn(name, "categories", float(missing.mean()), distinct, bin_of)


def _neighbours(counts: NDArray[np.int64], smallest: int) -> NDArray[np.uint16]:
    """The bin of each cell of a number's ``counts``: as many cells as it takes, in their order."""
    bin_of = np.zeros(len(counts), np.uint16)
    number, held = 0, 0
    for cell, count in enumerate(counts.tolist()):
        bin_of[cell] = number
        held += count
        if held >= max(1, smallest):
            number, held = number + 1, 0
    return np.minimum(bin_of, max(0, number - 1)).astype(np.uint16)


def _small_together(counts: NDArray[np.int64], smallest: int) -> NDArray[np.uint16]:
    """The bin of each category: small ones share the last, with larger ones while it is small."""
    ascending = np.argsort(counts, kind="stable").tolist()
    together, held = [], 0
    while ascending and (
        counts[ascending[0]] < smallest
        or 0 < held < smallest
        or len(ascending) > _MOST_CATEGORIES - bool(held)
    ):
        together.append(ascending.pop(0))
        held += int(counts[together[-1]])
    kept = [category for category in ascending if counts[category]]
    bin_of = np.full(len(counts), len(kept), np.uint16)
    bin_of[kept] = np.arange(len(kept), dtype=np.uint16)
    return bin_of


def _in_steps(distinct: int) -> str:
    return next((text for most, text in _STEPS if distinct <= most), "more than 100")


@dataclass(frozen=True, slots=True)
class Strength:
    """How well a column alone tells the label; ``woe``: the weight of evidence of each bin."""

    iv: float
    ks: float
    auc: float
    woe: tuple[float, ...]

    @classmethod
    def of(cls, counts: NDArray[np.integer], ones: NDArray[np.integer]) -> Strength | None:
        """The strength by the rows and the ones of each bin (bins,); None if all labels are alike.

        Where a bin has no ones or no zeros, half a row of each is added to it, so that it has a
        weight.
        """
        ones = np.asarray(ones, np.float64)
        zeros = np.asarray(counts, np.float64) - ones
        if not ones.sum() or not zeros.sum():
            return None
        half = np.where((ones == 0) | (zeros == 0), 0.5, 0.0)
        p1, p0 = (ones + half) / ones.sum(), (zeros + half) / zeros.sum()
        woe = np.log(p1 / p0)
        order = np.argsort(woe, kind="stable")
        up1, up0 = np.cumsum(ones[order]) / ones.sum(), np.cumsum(zeros[order]) / zeros.sum()
        below = np.append(0, up0[:-1])
        auc = float((ones[order] / ones.sum() * (below + up0) / 2).sum())
        ks = float(np.abs(up1 - up0).max())
        return cls(float(((p1 - p0) * woe).sum()), ks, auc, tuple(woe.tolist()))
