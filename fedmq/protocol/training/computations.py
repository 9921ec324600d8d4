"""The plain arithmetic that training machines order: no ciphertexts, no messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.metrics import metric_of
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.objectives.objective import BaseScore
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import (
    CandidateTable,
    CategorySet,
    InteractionNode,
    MonotoneNode,
    SetScan,
    best,
    first_order_gains,
    split_gains,
)
from fedmq.errors import DataError
from fedmq.privacy.engine import SplitOffer
from fedmq.protocol.training.tables import ActiveTable

__all__ = [
    "BinTable",
    "DeriveGradients",
    "EstimateBaseScore",
    "ScoreCandidates",
    "ScoreOwnCandidates",
    "recorded",
    "went_left",
]

# Of the largest gradient: the resolution is 2^-40 of it, and float32 has 24 bits.
_NARROWEST = 2.0**-24


def recorded(
    table: LookupTable, candidates: CandidateTable, split: int | CategorySet
) -> tuple[LookupTable, int]:
    """``table`` with a record of the ``split``, by a candidate or a set; and the record's id."""
    candidate = split if isinstance(split, int) else int(split.right[0])
    default_left = candidates.default_left[candidate]
    sets: tuple[tuple[int, ...], ...] = ()
    if not isinstance(split, int):
        default_left = np.bool_(split.default_left)
        sets = (tuple(candidates.feature[split.right].tolist()),)
    feature, threshold = candidates.feature[candidate], candidates.threshold[candidate]
    return table.appended(feature, threshold, default_left, sets), len(table)


def went_left(
    table: LookupTable, record: int, values: NDArray[np.float32], rows: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which of ``rows`` go left at ``record``: bool, of the length of ``rows``."""
    return table.directions_at(values, rows, record)


@dataclass(frozen=True, slots=True, eq=False)
class BinTable:
    """Cuts over the training rows of ``values`` (rows, features), and all rows as bins.

    ``category_columns``: the features of columns of categories, which are split by sets where so
    many as ``by_sets`` occur; None: none is.
    """

    label: ClassVar[str] = "BinTable"
    values: NDArray[np.float32]
    training: NDArray[np.bool_]
    max_bin: int
    category_columns: Sequence[Sequence[int]] = ()
    by_sets: int | None = None

    def run(self) -> BinMatrix:
        cuts = Cuts.of(self.values[self.training], self.max_bin)
        return BinMatrix.of(self.values, cuts.by_sets(self.category_columns, self.by_sets))


@dataclass(frozen=True, slots=True, eq=False)
class EstimateBaseScore:
    """The prediction before the first tree, from the labels of the training rows of ``table``."""

    label: ClassVar[str] = "EstimateBaseScore"
    params: TrainParams
    table: ActiveTable

    def run(self) -> BaseScore:
        training = ~self.table.evaluation
        weight = self.table.weight
        return (self.table.objective or objective_of(self.params)).base_scores(
            self.table.label[training], None if weight is None else weight[training]
        )


@dataclass(frozen=True, slots=True, eq=False)
class DeriveGradients:
    """The gradients from which the next tree grows, and the metrics of the model so far.

    The gradients are those of ``margins``, the metrics those of ``evaluated`` margins.

    Metrics are keyed as XGBoost prints them: ``train-logloss``, ``eval-auc``; the last is the one
    that early stopping watches. There are none while a round lacks trees. Raises
    `DataError` where the labels span more than sums of the fixed resolution can keep.
    """

    label: ClassVar[str] = "DeriveGradients"
    params: TrainParams
    margins: NDArray[np.float32]
    evaluated: NDArray[np.float32]
    table: ActiveTable
    tree: int

    def run(self) -> tuple[Gradients, dict[str, float]]:
        table = self.table
        training = ~table.evaluation
        gradients = Gradients.of(
            self.margins,
            table.label,
            training,
            self.params,
            self.tree,
            table.weight,
            table.objective,
        )
        if self.tree == 0:
            self._check_spread(training)
        if self.tree % self.params.trees_per_round:
            return gradients, {}  # the round is not complete
        return gradients, self._metrics(training)

    def _metrics(self, training: NDArray[np.bool_]) -> dict[str, float]:
        table = self.table
        evaluated = objective_of(self.params).evaluated(self.evaluated)
        # As in XGBoost: a caller's metric takes margins where the objective is a caller's as well.
        shown = evaluated if table.objective is None else self.evaluated
        metrics: dict[str, float] = {}
        for name, rows in {"train": training, **table.evaluation_sets}.items():
            label, weight = table.label[rows], None if table.weight is None else table.weight[rows]
            values = {
                metric: metric_of(metric, self.params).of(label, evaluated[rows], weight)
                for metric in self.params.eval_metric
            }
            if table.metric is not None:
                values |= table.metric.of(label, shown[rows], weight)
            metrics |= {f"{name}-{metric}": value for metric, value in values.items()}
        return metrics

    def _check_spread(self, training: NDArray[np.bool_]) -> None:
        table = self.table
        if table.objective is not None:
            return  # a caller's own knows what it gives
        objective = objective_of(self.params)
        gradients = objective.gradients(self.margins, table.label, table.weight)
        g = np.abs(gradients[training][..., 0])
        most, usual = float(g.max(initial=0.0)), float(np.median(g[g > 0])) if g.any() else 0.0
        if usual < most * _NARROWEST:
            what = "label" if table.weight is None else "label or weight"
            raise DataError(
                f"{what}: one lies {most:g} from base_score, and half of them within {usual:g}; "
                "sums would lose the small ones: clip it, or take its logarithm"
            )


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCandidates:
    """The best of a party's candidates by XGBoost's gain, from their left sums (candidates, 2).

    ``first_order``: by g alone, which takes every party's candidates to the same scale.
    ``monotone``: the node as monotone constraints bound it, ``interactions``: the node as
    interaction constraints do; None without any. ``categories``: the candidates of each column that
    is split by sets; they are no splits by themselves.
    """

    label: ClassVar[str] = "ScoreCandidates"
    left: NDArray[np.int64]
    total: NDArray[np.int64]
    scale: FixedPoint
    params: TrainParams
    first_order: bool = False
    monotone: MonotoneNode | None = None
    interactions: InteractionNode | None = None
    categories: Sequence[NDArray[np.int64]] = ()

    def run(self) -> SplitOffer:
        scans = self.scans()
        gain, tied = best(self._gains(scans))
        sets: list[CategorySet] = []
        start = len(self.left)
        for scan in scans:
            of_scan = tied[(tied >= start) & (tied < start + len(scan))]
            sets += [scan.split(int(place) - start) for place in of_scan[:1]]
            start += len(scan)
        return self.offer(float(gain), tied[tied < len(self.left)].astype(np.uint32), sets)

    def scans(self) -> Sequence[SetScan]:
        """The sets of each column that is split by sets."""
        return [
            SetScan.of(candidates, self.left, self.total, self.scale, self.params)
            for candidates in self.categories
        ]

    def offer(
        self,
        gain: float,
        named: NDArray[np.uint32],
        sets: Sequence[CategorySet] = (),
        left: NDArray[np.int64] | None = None,
    ) -> SplitOffer:
        """The offer of the candidates ``named`` and of ``sets``, with what is known of them."""
        columns = np.append(named, np.array([split.right[0] for split in sets], np.uint32))
        signs = None if self.monotone is None else self.monotone.signs[columns]
        interactions = self.interactions
        constraints = None if interactions is None else interactions.constraints[columns]
        return SplitOffer(gain, named, left, signs, constraints, tuple(sets))

    def left_of(self, split: CategorySet) -> NDArray[np.int64]:
        """What goes left of a set; int64 (columns,)."""
        column = next(held for held in self.categories if split.right[0] in held)
        if split.default_left:
            return np.asarray(self.total - self._alone(split.right))
        return self._alone(np.setdiff1d(column, split.right))

    def _alone(self, candidates: NDArray[np.integer]) -> NDArray[np.int64]:
        """The sums of these categories together."""
        return np.asarray((self.total - self.left[candidates]).sum(axis=0))

    def _gains(self, scans: Sequence[SetScan]) -> NDArray[np.float32]:
        """Of all candidates, and of the sets of each column after them; -inf of no splits."""
        monotone, interactions = self.monotone, self.interactions
        sums = np.concatenate((self.left, *(scan.left for scan in scans)))
        left, right = self.scale.to_float(sums), self.scale.to_float(self.total - sums)
        columns = np.arange(len(sums))  # a candidate of the same column
        columns[len(self.left) :] = np.repeat(
            [scan.candidates[0] for scan in scans], [len(scan) for scan in scans]
        )
        if self.first_order:
            gains = first_order_gains(left, right, self.params)
        else:
            total = self.scale.to_float(self.total)
            if monotone is not None:
                monotone = replace(monotone, signs=monotone.signs[columns])
            gains = split_gains(left, right, total, self.params, monotone)
        if interactions is not None:
            gains = np.where(interactions.allows()[columns], gains, np.float32(-np.inf))
        for candidates in self.categories:
            gains[candidates] = -np.inf
        return gains


@dataclass(frozen=True, slots=True, eq=False)
class ScoreOwnCandidates:
    """The active party's own best of the ``candidates`` of nodes, given by rows and sums."""

    label: ClassVar[str] = "ScoreOwnCandidates"
    bins: BinMatrix
    candidates: Sequence[CandidateTable]
    gradients: Gradients
    nodes: Sequence[NDArray[np.int32]]
    totals: Sequence[NDArray[np.int64]]
    params: TrainParams
    monotone: Sequence[MonotoneNode | None]
    interactions: Sequence[InteractionNode | None]
    first_order: bool = False

    def run(self) -> list[SplitOffer]:
        sums = histograms(self.bins, self.gradients.pairs, self.nodes)
        return [
            ScoreCandidates(
                candidates.left_sums(histogram),
                total,
                self.gradients.scale,
                self.params,
                self.first_order,
                monotone,
                interactions,
                candidates.categories,
            ).run()
            for candidates, total, histogram, monotone, interactions in zip(
                self.candidates, self.totals, sums, self.monotone, self.interactions, strict=True
            )
        ]
