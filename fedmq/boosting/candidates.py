"""The canonical order of split candidates. It decides ties, and does so as XGBoost does.

Feature by feature, ascending, as ``EnumerateSplit`` of XGBoost's ``evaluate_splits.h`` scans them:

1. forward, bins b ascending: bins up to b go left, missing values go right. The last bin is a
   candidate only if the feature has missing values ("all that is present goes left");
2. if the feature has missing values, backward, bins b descending to -1: bins up to b *and* missing
   values go left. At -1 only missing values do.

A category of a column that is split by sets has one candidate, of which it alone goes right: what
its set is made of, and no split by itself (see `category_sets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts

__all__ = ["CandidateTable"]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """Candidates in canonical order; all vectors have their number C as length.

    Left of candidate c are the histogram cells ``first_cell[c]`` up to, not including,
    ``stop_cell[c]``, and ``missing_cell[c]`` where ``default_left[c]``. ``categories``: the
    candidates of each column that is split by sets, ascending.
    """

    feature: NDArray[np.int32]
    bin: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    threshold: NDArray[np.float32]
    first_cell: NDArray[np.int64]
    stop_cell: NDArray[np.int64]
    missing_cell: NDArray[np.int64]
    categories: tuple[NDArray[np.int64], ...] = ()

    @classmethod
    def of(cls, cuts: Cuts, features: Iterable[int] | None = None) -> CandidateTable:
        """Candidates of ``features`` (default: all), which colsample_bytree may have narrowed.

        ``threshold`` is the cut right of the bin, +inf for the last bin and -inf for bin -1.
        """
        chosen = range(cuts.n_features) if features is None else sorted(features)
        of_sets = {feature for column in cuts.category_columns for feature in column}
        features_of, bins_of, default_left, threshold = [], [], [], []
        for feature in chosen:
            last = int(cuts.n_bins[feature]) - 1
            if feature in of_sets:
                alone = np.zeros(min(last, 1), np.int64)  # none where no row has the category
                features_of.append(np.full(len(alone), feature))
                bins_of.append(alone)
                default_left.append(np.full(len(alone), cuts.has_missing[feature]))
                threshold.append(cuts.thresholds[feature][alone])
                continue
            forward = np.arange(last + 1 if cuts.has_missing[feature] else last)
            backward = np.arange(last - 1, -2, -1) if cuts.has_missing[feature] else forward[:0]
            bins = np.concatenate((forward, backward))
            bounds = np.concatenate(([-np.inf], cuts.thresholds[feature], [np.inf]))
            features_of.append(np.full(len(bins), feature))
            bins_of.append(bins)
            default_left.append(np.arange(len(bins)) >= len(forward))
            threshold.append(bounds[bins + 1])
        f = np.concatenate([np.empty(0, np.int32), *features_of]).astype(np.int32)
        b = np.concatenate([np.empty(0, np.int32), *bins_of]).astype(np.int32)
        first_cell = cuts.first_cell[f]
        return cls(
            feature=f,
            bin=b,
            default_left=np.concatenate([np.empty(0, np.bool_), *default_left]),
            threshold=np.concatenate([np.empty(0), *threshold]).astype(np.float32),
            first_cell=first_cell,
            stop_cell=first_cell + b + 1,
            missing_cell=cuts.first_cell[f + 1] - 1,
            categories=tuple(
                held
                for column in cuts.category_columns
                if len(held := np.flatnonzero(np.isin(f, column)))
            ),
        )

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def columns(self) -> NDArray[np.int32]:
        """The first feature of each candidate's column; int32 (C,)."""
        columns = self.feature.copy()
        for held in self.categories:
            columns[held] = self.feature[held[0]]
        return columns

    @property
    def is_category(self) -> NDArray[np.bool_]:
        """Which candidates are categories of columns that are split by sets; bool (C,)."""
        return np.isin(np.arange(len(self)), np.concatenate([np.empty(0), *self.categories]))

    def has_set(self, candidates: NDArray[np.integer]) -> bool:
        """Whether they are some, but not all, of the categories of one column."""
        chosen = set(candidates.tolist())
        distinct = len(chosen) == len(candidates) > 0
        return distinct and any(chosen < set(held.tolist()) for held in self.categories)

    def left_sums(self, histograms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums that go left, per candidate: int64 (..., cells, k) to int64 (..., C, k)."""
        # Running sums over all features may wrap around; their differences are exact regardless.
        *nodes, cells, columns = histograms.shape
        running = np.zeros((*nodes, cells + 1, columns), np.int64)
        np.cumsum(histograms, axis=-2, out=running[..., 1:, :])
        left = running[..., self.stop_cell, :] - running[..., self.first_cell, :]
        backward = self.default_left
        left[..., backward, :] += histograms[..., self.missing_cell[backward], :]
        return left
