"""The plain arithmetic that training machines order: no ciphertexts, no messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.fixed_point import FixedPoint
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.histogram import histograms
from fedmq.boosting.interactions import InteractionNode
from fedmq.boosting.metrics.registry import metric_of
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.monotone import MonotoneNode
from fedmq.boosting.objectives.objective import BaseScore
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.split import best, first_order_gains, split_gains
from fedmq.errors import DataError
from fedmq.privacy.engine import Best
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
    table: LookupTable, candidates: CandidateTable, candidate: int
) -> tuple[LookupTable, int]:
    """``table`` with a record of the split at ``candidate``, and the record's id."""
    grown = table.appended(
        candidates.feature[candidate],
        candidates.threshold[candidate],
        candidates.default_left[candidate],
    )
    return grown, len(table)


def went_left(
    table: LookupTable, record: int, values: NDArray[np.float32], rows: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which of ``rows`` go left at ``record``: bool, of the length of ``rows``."""
    return table.directions_at(values, rows, record)


@dataclass(frozen=True, slots=True, eq=False)
class BinTable:
    """Cuts over the training rows of ``values`` (rows, features), and all rows as bins."""

    label: ClassVar[str] = "BinTable"
    values: NDArray[np.float32]
    training: NDArray[np.bool_]
    max_bin: int

    def run(self) -> BinMatrix:
        return BinMatrix.of(self.values, Cuts.of(self.values[self.training], self.max_bin))


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
    interaction constraints do; None without any.
    """

    label: ClassVar[str] = "ScoreCandidates"
    left: NDArray[np.int64]
    total: NDArray[np.int64]
    scale: FixedPoint
    params: TrainParams
    first_order: bool = False
    monotone: MonotoneNode | None = None
    interactions: InteractionNode | None = None

    def run(self) -> Best:
        left, right = self.scale.to_float(self.left), self.scale.to_float(self.total - self.left)
        if self.first_order:
            gains = first_order_gains(left, right, self.params)
        else:
            total = self.scale.to_float(self.total)
            gains = split_gains(left, right, total, self.params, self.monotone)
        if self.interactions is not None:
            gains = np.where(self.interactions.allows(), gains, np.float32(-np.inf))
        gain, tied = best(gains)
        return self.offer(float(gain), tied.astype(np.uint32))

    def offer(
        self, gain: float, named: NDArray[np.uint32], left: NDArray[np.int64] | None = None
    ) -> Best:
        """The offer of the candidates ``named``, with what is known of their columns."""
        signs = None if self.monotone is None else self.monotone.signs[named]
        interactions = self.interactions
        constraints = None if interactions is None else interactions.constraints[named]
        return Best(gain, named, left, signs, constraints)


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

    def run(self) -> list[Best]:
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
            ).run()
            for candidates, total, histogram, monotone, interactions in zip(
                self.candidates, self.totals, sums, self.monotone, self.interactions, strict=True
            )
        ]
