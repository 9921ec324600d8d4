"""Columns in bins: cuts of the features, rows as bin codes, and sums of gradients by bin.

Rule of a split: ``x <= cut`` goes left. A feature with k cuts has the bins 0..k, and missing
values carry the code k + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from fedmq.boosting.machine_bins import FEWEST_VALUES, can_bin, write_codes
from fedmq.boosting.machine_sums import FEWEST_ROWS, add_by_cell, can_add
from fedmq.boosting.model.tree import Bools, Float32s
from fedmq.boosting.row_parts import row_parts, summed
from fedmq.computation import Parts, computation

__all__ = ["BinMatrix", "ColumnBins", "Cuts", "histogram_parts", "histograms"]

ColumnBins = tuple[float, ...] | int
"""How a column's owner has it cut: at these cuts, ascending, or into so many bins at most."""


class Cuts(BaseModel):
    """The distribution of each feature as training keeps it: ascending cuts, any missing values.

    It also fixes the *cells* of a histogram: features one after the other, each with one cell per
    bin and a last one for missing values. ``category_columns``: the features of each column that is
    split by sets of categories, ascending.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    thresholds: tuple[Float32s, ...]
    has_missing: Bools
    category_columns: tuple[tuple[int, ...], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.thresholds) != len(self.has_missing):
            raise ValueError("thresholds and has_missing differ in length")
        if any((np.diff(cuts) <= 0).any() for cuts in self.thresholds):
            raise ValueError("thresholds of a feature are not ascending")
        return self

    @classmethod
    def of(
        cls,
        X: NDArray[np.float32],
        max_bin: int,
        given: Mapping[int, ColumnBins] = MappingProxyType({}),
    ) -> Cuts:
        """Cuts of the training rows ``X`` (rows, features), at most ``max_bin`` bins a feature.

        The cuts are ``unique(numpy.quantile(x, i / max_bin, method="inverted_cdf"))`` for
        i in 1..max_bin-1 over the present values x, with NumPy's own rounding of the rank. There is
        no cut at the largest value, as in XGBoost: it would separate no training rows, only larger
        values that come later.

        ``given``: what the owner says of single features. Of given cuts those stay that XGBoost
        has when it learns from the numbers of the bins: an empty bin belongs to the one above it,
        and what lies above all training rows to the last.
        """
        thresholds = []
        counts = np.empty(X.shape[1], np.intp)
        for feature in range(X.shape[1]):
            if feature % _SORTED_TOGETHER == 0:
                together = slice(feature, feature + _SORTED_TOGETHER)
                block = np.sort(X[:, together], axis=0)  # NaN sorts last
                counts[together] = len(X) - np.isnan(block).sum(axis=0)
            present = block[: counts[feature], feature % _SORTED_TOGETHER]
            asked = given.get(feature, max_bin)
            if isinstance(asked, tuple):
                thresholds.append(_parting(asked, present))
                continue
            most = min(asked, max_bin)
            orders = np.arange(1, most) / most
            if not len(present):
                thresholds.append(np.empty(0, X.dtype))
                continue
            ranks = np.ceil(len(present) * orders - 1).astype(np.intp)
            cuts = np.unique(present[np.maximum(ranks, 0)])
            thresholds.append(cuts[cuts < present[-1]])
        return cls(thresholds=tuple(thresholds), has_missing=counts < X.shape[0])

    def by_sets(self, columns: Iterable[Sequence[int]], fewest: int | None) -> Cuts:
        """The same cuts, with the ``columns`` of enough categories split by sets.

        ``columns``: the features of each column of categories, 1 where a row has the category, else
        0. A column needs training rows in at least ``fewest`` categories, as with XGBoost's
        ``max_cat_to_onehot``; None: no column is split by sets.
        """
        if fewest is None:
            return self
        enough = max(2, fewest)
        chosen = (tuple(column) for column in columns)
        kept = tuple(column for column in chosen if len(self.categories(column)) >= enough)
        return self.model_copy(update={"category_columns": kept})

    def categories(self, column: Iterable[int]) -> tuple[int, ...]:
        """A column's features whose category some training rows have and some lack."""
        return tuple(feature for feature in column if len(self.thresholds[feature]))

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The features of each column, ascending: a single one, or one per category."""
        first = {column[0]: column for column in self.category_columns}
        others = {feature for column in self.category_columns for feature in column[1:]}
        return tuple(
            first.get(feature, (feature,))
            for feature in range(self.n_features)
            if feature not in others
        )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.thresholds)

    @cached_property
    def n_bins(self) -> NDArray[np.int32]:
        """Bins per feature, without the cell of missing values; int32 (features,)."""
        return np.array([len(cuts) + 1 for cuts in self.thresholds], dtype=np.int32)

    @cached_property
    def first_cell(self) -> NDArray[np.int64]:
        """First histogram cell per feature, and at the end the number of cells; (features + 1,)."""
        return np.concatenate(([0], np.cumsum(self.n_bins + 1, dtype=np.int64)))

    @property
    def n_cells(self) -> int:
        """Cells of a histogram: bins of all features, each feature's missing cell included."""
        return int(self.first_cell[-1])


_SORTED_TOGETHER = 64  # columns: a sorted copy of them is held
_MOST_NARROW = np.iinfo(np.uint8).max


def _parting(cuts: Sequence[float], present: NDArray[np.float32]) -> NDArray[np.float32]:
    """The ``cuts`` that part the ``present`` values: the last one between two values."""
    ascending = np.array(cuts, np.float32)
    filled = np.unique(np.searchsorted(ascending, present, side="left"))
    return ascending[filled[1:] - 1]


@dataclass(frozen=True, slots=True, eq=False)
class BinMatrix:
    """Rows as bin codes: ``codes`` (rows, features), uint8 where that fits, else uint16.

    Stored column by column, which is the order in which histograms read it.
    """

    codes: NDArray[np.uint8] | NDArray[np.uint16]
    cuts: Cuts

    @classmethod
    def of(cls, X: NDArray[np.float32], cuts: Cuts) -> BinMatrix:
        """Bins of float32 rows ``X`` (rows, features); NaN takes the code of missing values."""
        largest = max(map(len, cuts.thresholds), default=0) + 1
        codes = np.empty(X.shape, np.uint16 if largest > _MOST_NARROW else np.uint8, order="F")
        fast = X.size >= FEWEST_VALUES and can_bin(X)
        for feature, thresholds in enumerate(cuts.thresholds):
            column = X[:, feature]
            if fast:
                write_codes(codes[:, feature], column, thresholds)
                continue
            codes[:, feature] = np.searchsorted(thresholds, column, side="left")
            codes[np.isnan(column), feature] = len(thresholds) + 1
        if codes.max(initial=0) <= _MOST_NARROW:
            return cls(codes.astype(np.uint8, order="F", copy=False), cuts)
        return cls(codes, cuts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def goes_left(
        self, rows: NDArray[np.integer], feature: int, threshold: np.float32, default_left: bool
    ) -> NDArray[np.bool_]:
        """Whether each of ``rows``, ascending, goes left at a ``threshold``: bool, of their length.

        The threshold is a cut of the ``feature``, or an infinity: as a value at a cut, so a code.
        """
        cuts, codes = self.cuts.thresholds[feature], self.codes[:, feature]
        if len(rows) < len(codes):
            codes = codes.take(rows)
        below = -1 if np.isneginf(threshold) else int(np.searchsorted(cuts, threshold))
        left: NDArray[np.bool_] = codes <= below
        if default_left:
            left |= codes == len(cuts) + 1
        return left

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """Where values are missing; bool (rows, features)."""
        return np.equal(self.codes, self.cuts.n_bins)


def histogram_parts(
    parts: int, bins: BinMatrix, gradients: NDArray[np.int64], nodes: Sequence[NDArray[np.integer]]
) -> Parts | None:
    """`histograms` in parts of the rows."""
    return row_parts(
        parts,
        bins.n_rows,
        lambda part: histograms.bind(part.bins(bins), part.of(gradients), part.nodes(nodes)),
        summed,
    )


@computation("_SumBins", parted=histogram_parts)
def histograms(
    bins: BinMatrix, gradients: NDArray[np.int64], nodes: Sequence[NDArray[np.integer]]
) -> NDArray[np.int64]:
    """Exact sums of g and h over ``nodes``, each given by its rows; int64 (nodes, cells, columns).

    With vector leaves each output has two columns.
    ``gradients`` is int64 (rows, columns) as ``FixedPoint.encode`` gives it. Many rows are summed
    in machine code. Of NumPy, ``add.at`` adds integers, and is faster than ``bincount``, whose
    float64 sums are exact to 53 bits only.
    """
    cuts, lengths = bins.cuts, list(map(len, nodes))
    if sum(lengths) >= FEWEST_ROWS and can_add(bins.codes, gradients):
        summed = np.zeros((len(nodes), cuts.n_cells, gradients.shape[1]), dtype=np.int64)
        add_by_cell(summed, bins.codes, cuts.first_cell, gradients, nodes)
        return summed
    rows = np.concatenate([np.asarray(node, np.intp) for node in nodes] or [np.empty(0, np.intp)])
    sums = np.zeros((gradients.shape[1], len(nodes) * cuts.n_cells), dtype=np.int64)
    columns = np.ascontiguousarray(gradients.take(rows, axis=0).T)
    first = np.repeat(np.arange(len(nodes)) * cuts.n_cells, lengths)
    cells = np.empty(len(rows), dtype=np.intp)
    for feature, feature_first in enumerate(cuts.first_cell[:-1]):
        # A column lies in one piece, so that `take` is twice as fast as an index of two axes.
        np.add(first, bins.codes[:, feature].take(rows), out=cells)
        for of_column, column in zip(sums[:, feature_first:], columns, strict=True):
            np.add.at(of_column, cells, column)
    return np.ascontiguousarray(sums.T).reshape(len(nodes), cuts.n_cells, len(sums))
