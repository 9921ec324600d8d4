"""Learning to rank: LambdaMART of pairs, NDCG and MAP, and the metrics of ranked queries.

XGBoost's ``lambdarank_obj.cc``, ``ranking_utils.cc`` and ``rank_metric.cc``. Labels are float32
(rows, 2): how relevant a row is, and the number of its query. Rows of a query are those that are
ranked against one another, in the order of the table where predictions tie. In the order of the
file: which rows belong to a query, gains, gradients, and metrics.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import Objective, newton_step
from fedmq.errors import ConfigError, DataError

__all__ = ["RANKING_METRICS", "RankMAP", "RankNDCG", "RankPairs", "ranking_metric"]

_Floats = NDArray[np.float32]
_Doubles = NDArray[np.float64]
_Truths = NDArray[np.bool_]

RANKING_METRICS = ("ndcg", "map", "pre")
_MOST_RELEVANT = 31
_MOST_QUERIES = 2**24
_EPSILON = 1e-16
_APART = 0.01


def _queries(labels: _Floats) -> Iterator[tuple[NDArray[np.intp], _Truths]]:
    """Rows by query, of queries of like sizes at a time: numbers and whether one is there.

    Both are (queries, rows of the largest of them); in the order of queries within a block.
    """
    order = np.argsort(labels[:, 1], kind="stable")
    starts = np.flatnonzero(np.diff(labels[order, 1], prepend=-1.0))
    sizes = np.diff(np.append(starts, len(order)))
    classes = np.ceil(np.log2(np.maximum(sizes, 1)))
    for held in np.unique(classes):
        block = np.flatnonzero(classes == held)
        places = np.arange(sizes[block].max())
        there = places < sizes[block, None]
        yield order[np.where(there, starts[block, None] + places, 0)], there


def _weights(labels: _Floats, weight: _Floats | None) -> tuple[_Floats, float]:
    """The weight of each row's query, and the number of queries over their sum.

    Raises:
        DataError: the rows of a query have several weights.
    """
    if weight is None:
        return np.ones(len(labels), np.float32), 1.0
    _, first, query = np.unique(labels[:, 1], return_index=True, return_inverse=True)
    if (weight != weight[first][query]).any():
        number = labels[np.argmax(weight != weight[first][query]), 1]
        raise DataError(f"weight: the rows of query {number:g} have several; a query has one")
    total = float(np.cumsum(weight[first], dtype=np.float64)[-1])
    return weight, len(first) / total if total else 0.0


def _descending(values: NDArray[np.floating]) -> NDArray[np.intp]:
    """The descending order of ``values`` (queries, rows) within each query; ties stay."""
    return np.argsort(-values, axis=1, kind="stable")


def _discounts(rows: int) -> _Doubles:
    """The discounts of DCG by rank, (rows,)."""
    return np.array([1.0 / math.log2(rank + 2.0) for rank in range(rows)])


def _gains(relevance: _Floats, exponential: bool) -> _Doubles:
    """The gains of DCG: 2^relevance - 1, or the relevance."""
    if not exponential:
        return relevance.astype(np.float64)
    return np.ldexp(1.0, relevance.astype(np.int64)) - 1.0


def _last(sums: NDArray[Any]) -> NDArray[Any]:
    """Sums along rows, one after the other, of (queries, rows)."""
    return np.add.accumulate(sums, axis=1)[:, -1]


@dataclass(frozen=True)
class _Ranks:
    """Queries of like sizes, ranked by their predictions: all (queries, rows).

    Where a query has fewer rows, ``there`` is false; ``relevance`` is 0 there.
    """

    scores: _Floats
    relevance: _Floats
    there: _Truths
    rows: NDArray[np.intp]

    @classmethod
    def of(cls, rows: NDArray[np.intp], there: _Truths, scores: _Floats, labels: _Floats) -> _Ranks:
        held = np.where(there, scores[rows], -np.inf)
        relevance = np.where(there, labels[rows, 0], np.float32(0))
        order = _descending(held)
        return cls(
            *(np.take_along_axis(values, order, 1) for values in (held, relevance, there, rows))
        )

    def inverse_ideal(self, limit: int, exponential: bool) -> _Doubles:
        """1 over the DCG of the best order, down to rank ``limit``; 0 without a relevant row."""
        order = _descending(np.where(self.there, self.relevance, -np.inf))
        best = np.take_along_axis(self.relevance, order, 1)
        gains = (_discounts(best.shape[1]) * _gains(best, exponential))[:, :limit]
        ideal = _last(gains)
        inverse: _Doubles = np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal != 0)
        return inverse


@dataclass(frozen=True)
class _LambdaMART(Objective):
    """Pairs of rows of a query, one of them among the first ``pairs`` by prediction.

    Gradients of all rows depend on the other rows of their query.
    """

    pairs: int = 32
    normalised: bool = True
    by_score: bool = True
    exponential: bool = True

    takes_targets = False
    own_parameters = (
        "lambdarank_num_pair_per_sample",
        "lambdarank_normalization",
        "lambdarank_score_normalization",
        "ndcg_exp_gain",
    )
    metrics = RANKING_METRICS
    default_metric: ClassVar[str] = "ndcg@{lambdarank_num_pair_per_sample}"
    export_section = "lambdarank_param"

    @classmethod
    def exported(cls, params: Any) -> Mapping[str, str]:
        """XGBoost writes truths as 1 and 0."""
        return {name: str(int(getattr(params, name))) for name in cls.own_parameters}

    @classmethod
    def check_metric(cls, metric: str) -> None:
        """Raise ConfigError if ``metric`` is no metric of ranks, such as ndcg@10 or map@5-."""
        name, at, argument = metric.partition("@")
        limit = argument.removesuffix("-")
        if name not in cls.metrics or (at and not (limit.isdecimal() and int(limit) > 0)):
            raise ConfigError(
                f"eval_metric = {metric!r} does not fit {cls.name}; use ndcg@10, map@10 or pre@10, "
                "say"
            )

    def labels(self, values: ArrayLike, where: str) -> _Floats:
        """``values`` (rows, 2), relevance and query, as labels: float32 (rows, 2).

        Raises:
            DataError: there are no queries, or a label does not fit; the text names its row.
        """
        with np.errstate(over="ignore"):
            labels = np.array(values, dtype=np.float32)
        if labels.ndim == 1:
            raise DataError(f"{where}: {self.name} needs the query of each row; name it by qid")
        query = labels[:, 1]
        wrong = ~((query >= 0) & (query < _MOST_QUERIES) & (query == np.floor(query)))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"{where}: qid in row {row + 1} is {query[row]:g}; a whole number from 0 to "
                f"{_MOST_QUERIES - 1:,} is needed"
            )
        super().labels(labels[:, 0], where)
        return labels

    def _fits(self, labels: _Floats) -> _Truths:
        fits: _Truths = np.isfinite(labels) & (labels >= 0)
        if self.exponential:
            fits &= (labels <= _MOST_RELEVANT) & (labels == np.floor(labels))
        return fits

    def _estimate(self, labels: _Floats, weight: _Floats | None) -> np.float32:
        """One step of Newton's method from 0, rows in the order of queries."""
        gradients = self.gradients(np.zeros(len(labels), np.float32), labels, weight)
        return newton_step(gradients[np.argsort(labels[:, 1], kind="stable")])

    def gradients(
        self, margins: _Floats, labels: _Floats, weight: _Floats | None = None
    ) -> _Floats:
        """Sums over pairs: of a pair with the better row b and the worse row w, ``p`` the sigmoid
        of their predictions' difference and ``d`` what exchanging them changes of the metric,
        g_b = (p - 1) d = -g_w, and h = 2 p (1 - p) d for both.
        """
        gradients = np.zeros((len(labels), 2), np.float32)
        weights, norm = _weights(labels, weight)
        for rows, there in _queries(labels):
            ranks = _Ranks.of(rows, there, margins, labels)
            g, h, size = self._pairs(ranks)
            if self.normalised:
                factors = [math.log2(1.0 + lot) / lot if lot > 0 else 1.0 for lot in size.tolist()]
                factor = np.array(factors, np.float32)[:, None]
                g, h = g * factor, h * factor
            counts = weights[ranks.rows]
            both = np.stack((g, h), axis=2) * counts[..., None] * np.float32(norm)
            gradients[ranks.rows[ranks.there]] = both[ranks.there]
        return gradients

    def _pairs(self, ranks: _Ranks) -> tuple[_Floats, _Floats, _Doubles]:
        """g and h of rows by rank (queries, rows), and the sum of all \\|g\\| of each query."""
        queries, width = ranks.scores.shape
        g, h = np.zeros((2, queries, width), np.float32)
        size = np.zeros(queries)
        changes = self._changes(ranks)
        last = ranks.there.sum(axis=1)[:, None] - 1
        spread = ranks.scores[:, :1] != np.take_along_axis(ranks.scores, last, axis=1)
        for high in range(min(width - 1, self.pairs)):
            first, others = slice(high, high + 1), slice(high + 1, None)
            relevance = ranks.relevance
            differ = ranks.there[:, others] & (relevance[:, first] != relevance[:, others])
            above = relevance[:, first] > relevance[:, others]
            with np.errstate(invalid="ignore"):
                apart = ranks.scores[:, first] - ranks.scores[:, others]
                better = np.where(ranks.there[:, others], np.where(above, apart, -apart), 0)
            p = single_precision.sigmoid(better).astype(np.float64)
            change = np.abs(changes(high))
            if self.by_score:
                nearness = np.abs(better).astype(np.float64) + _APART
                change = np.where(spread, change / nearness, change)
            pull = np.where(differ, (p - 1.0) * change, 0.0).astype(np.float32)
            curvature = np.maximum(p * (1.0 - p), _EPSILON) * change * 2.0
            bend = np.where(differ, curvature, 0.0).astype(np.float32)
            signed = np.where(above, pull, -pull)
            g[:, others] -= signed
            h[:, others] += bend
            g[:, high] = _last(np.concatenate((g[:, first], signed), axis=1))
            h[:, high] = _last(np.concatenate((h[:, first], bend), axis=1))
            pulls = -2.0 * pull.astype(np.float64)
            size = _last(np.concatenate((size[:, None], pulls), axis=1))
        return g, h, size

    @abstractmethod
    def _changes(self, ranks: _Ranks) -> Any:
        """A function of a rank: what exchanging it with each below changes of the metric."""


@dataclass(frozen=True)
class RankPairs(_LambdaMART):
    """The number of pairs in the wrong order (RankNet); predictions are the margins."""

    name = "rank:pairwise"
    wanted = "rank:pairwise takes relevances, whole numbers from 0 to 31"

    def _changes(self, ranks: _Ranks) -> Any:
        return lambda rank: np.ones((len(ranks.scores), ranks.scores.shape[1] - rank - 1))


@dataclass(frozen=True)
class RankNDCG(_LambdaMART):
    """Normalised discounted cumulative gain; predictions are the margins."""

    name = "rank:ndcg"
    wanted = "rank:ndcg takes relevances, whole numbers from 0 to 31"

    def _changes(self, ranks: _Ranks) -> Any:
        gains = _gains(ranks.relevance, self.exponential)
        discounts = _discounts(gains.shape[1])
        inverse = ranks.inverse_ideal(self.pairs, self.exponential)[:, None]

        def changed(rank: int) -> _Doubles:
            here, below = gains[:, rank : rank + 1], gains[:, rank + 1 :]
            of_here, of_below = discounts[rank], discounts[rank + 1 :]
            before = here * of_here + below * of_below
            after: _Doubles = (before - (below * of_here + here * of_below)) * inverse
            return after

        return changed


@dataclass(frozen=True)
class RankMAP(_LambdaMART):
    """Mean average precision of rows that are relevant or not; predictions are the margins."""

    name = "rank:map"
    wanted = "rank:map takes 0 and 1"
    default_metric = "map@{lambdarank_num_pair_per_sample}"

    def _fits(self, labels: _Floats) -> _Truths:
        return np.isin(labels, (0, 1))

    def _changes(self, ranks: _Ranks) -> Any:
        relevance = ranks.relevance.astype(np.float64)
        found = np.add.accumulate(relevance, axis=1)
        places = np.arange(1.0, relevance.shape[1] + 1)
        precision = np.add.accumulate(relevance / places, axis=1)
        relevant = found[:, -1:]

        def changed(rank: int) -> _Doubles:
            n, m = found[:, rank : rank + 1], found[:, rank + 1 :]
            here, below = places[rank], places[rank + 1 :]
            between = precision[:, rank:-1] - precision[:, rank : rank + 1]
            risen = m / below - (n + 1.0) / here - between
            fallen = n / here - m / below + between
            worse = relevance[:, rank : rank + 1] < relevance[:, rank + 1 :]
            with np.errstate(all="ignore"):
                change: _Doubles = np.where(worse, risen, fallen) / relevant
            return change

        return changed


def ranking_metric(
    name: str, exponential: bool, labels: _Floats, predictions: _Floats, weight: _Floats | None
) -> float:
    """The mean over queries of the metric ``name``, such as ndcg@10; NaN without rows.

    Queries without a relevant row count as 1, or as 0 where the name ends with a minus.
    """
    if not len(labels):
        return float("nan")
    kind, _, argument = name.partition("@")
    empty = 0.0 if argument.endswith("-") else 1.0
    limit = int(argument.removesuffix("-") or len(labels))
    weights, _ = _weights(labels, weight)
    scores, counts, numbers = [], [], []
    for rows, there in _queries(labels):
        ranks = _Ranks.of(rows, there, predictions, labels)
        counted = weights[rows[:, 0]].astype(np.float64)
        scores.append(_scored(kind, ranks, limit, exponential, empty) * counted)
        # XGBoost gives a query without gains no weight of its own.
        if kind == "ndcg":
            ideal = ranks.inverse_ideal(limit, exponential)
            scores[-1] = np.where(ideal > 0, scores[-1], empty)
        counts.append(counted)
        numbers.append(labels[rows[:, 0], 1])
    order = np.argsort(np.concatenate(numbers))
    total, held = (
        float(np.cumsum(np.concatenate(values)[order])[-1]) for values in (scores, counts)
    )
    return min(1.0, total / held if held > 0 else total)


def _scored(kind: str, ranks: _Ranks, limit: int, exponential: bool, empty: float) -> _Doubles:
    """The metric of each query, (queries,)."""
    relevance = ranks.relevance.astype(np.float64)
    sizes = ranks.there.sum(axis=1)
    if kind == "ndcg":
        gains = _discounts(relevance.shape[1]) * _gains(ranks.relevance, exponential)
        inverse = ranks.inverse_ideal(limit, exponential)[:, None]
        ndcg: _Doubles = _last((gains * inverse)[:, :limit])
        return ndcg
    if kind == "pre":
        hits: _Doubles = _last(relevance[:, :limit]) / np.minimum(limit, sizes)
        return hits
    found = np.add.accumulate(relevance, axis=1)
    places = np.arange(1.0, relevance.shape[1] + 1)
    sums = _last((found / places * relevance)[:, :limit])
    relevant = found[:, -1]
    with np.errstate(all="ignore"):
        return np.where(relevant > 0, sums / np.minimum(relevant, limit), empty)
