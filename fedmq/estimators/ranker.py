"""A ranker in the manner of ``xgboost.XGBRanker``, by federated trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.metrics import metric_of
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.estimators.estimator import FederatedEstimator, beside_rows, of_set
from fedmq.workbench.asked_model import ids_of

__all__ = ["FederatedRanker"]

_DEFAULT_OBJECTIVE = "rank:ndcg"
_QID = "qid"


class FederatedRanker(FederatedEstimator):
    """A ranker whose columns lie at several parties: rows are ranked within queries.

    Parameters and attributes are those of ``fedmq.FederatedClassifier``; ``objective`` is
    "rank:ndcg" where it is left out, or "rank:pairwise" or "rank:map". Queries are the active
    party's, as labels are. At daemons ``[data] qid`` of the active party's file names them.
    """

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        group: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
        eval_qid: Sequence[ArrayLike] | None = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        xgb_model: Any = None,
        verbose: bool | int | None = None,
    ) -> Self:
        """Train on ``X``, (rows, features), and the relevance ``y``, (rows,), of each row.

        ``qid`` (rows,): the number of each row's query, whose rows need not be neighbours; or
        ``group``: the sizes of the queries, whose rows follow one another; or a column "qid" of a
        pandas frame ``X``. ``sample_weight`` (queries,): how often each query counts, in the order
        of their numbers. ``eval_set`` with ``eval_qid`` or ``eval_group``: one for each pair.
        Everything else is as of ``fedmq.FederatedClassifier.fit``.

        Raises:
            ConfigError, DataError, ValueError: a parameter, table, label or query is wrong.
            FedmqError: daemons cannot train, as ``fedmq train`` says it.
        """
        if self.federation is not None:
            given = {
                "sample_weight": sample_weight,
                "group": group,
                "qid": qid,
                "base_margin": base_margin,
                "eval_set": eval_set,
                "eval_group": eval_group,
                "eval_qid": eval_qid,
                "xgb_model": xgb_model,
            }
            return self._fit_daemons(X, y, given, verbose)
        if self.job is not None:
            raise ConfigError("job: it is for daemons; name the party's file: federation=")
        table, queries = _queries(X, y, group, qid, ("group", "qid"), 0)
        beside = _ranked(y, queries, sample_weight, base_margin, "sample_weight")
        sets, seen = [], _after(queries)
        for number, (rows, labels) in enumerate(eval_set or ()):
            names = ("eval_group", "eval_qid")
            sizes, numbers = (
                of_set(eval_group, number, names[0]),
                of_set(eval_qid, number, names[1]),
            )
            held, of_rows = _queries(rows, labels, sizes, numbers, names, seen)
            weight = of_set(sample_weight_eval_set, number, "sample_weight_eval_set")
            margin = of_set(base_margin_eval_set, number, "base_margin_eval_set")
            sets.append((held, _ranked(labels, of_rows, weight, margin, "sample_weight_eval_set")))
            seen = _after(of_rows)
        return self._fit_tables(table, beside, sets, xgb_model, verbose)

    def predict(self, X: Any, *, base_margin: Any = None) -> NDArray[np.float32]:
        """The prediction of each row, float32 (rows,): the higher, the further to the front.

        A column "qid" of a pandas frame is left out; ``base_margin``, (rows,), is where a row
        starts.

        Raises:
            DataError, ValueError: ``X`` has other columns than in ``fit``.
        """
        return self._predictions(_without_queries(X), base_margin)

    def score(
        self, X: Any, y: Any, *, group: ArrayLike | None = None, qid: ArrayLike | None = None
    ) -> float:
        """The last of ``eval_metric``, or NDCG (MAP with "rank:map"), of rows of known relevance.

        ``group`` and ``qid`` as of ``fit``; without a query all rows are one.

        Raises:
            DataError, ValueError: columns, labels or queries do not fit, or a person has no score.
        """
        if group is None and qid is None and not _has_queries(X):
            qid = np.zeros(len(y), np.int64)
        table, queries = _queries(X, y, group, qid, ("group", "qid"), 0)
        found = np.asarray(self._predictions(table), np.float32)
        if unknown := np.flatnonzero(np.isnan(found)).tolist():
            raise DataError(f"X: {ids_of(X)[unknown[0]]!r} has no score: a party does not know it")
        params = TrainParams.parse(
            self._parameters() | self._learn_labels(np.asarray(y)), type(self).__name__
        )
        metric = metric_of(params.eval_metric[-1], params)
        order = np.argsort(queries, kind="stable")
        ranked = np.stack((np.asarray(y, np.float32), queries.astype(np.float32)), axis=1)
        return float(metric.of(ranked[order], found[order], None))

    def _learn_labels(self, y: NDArray[Any], classes: NDArray[Any] | None = None) -> dict[str, Any]:
        if callable(self.objective):
            raise ConfigError("objective: a ranker takes no function; use rank:ndcg, say")
        objective = self.objective or _DEFAULT_OBJECTIVE
        if not str(objective).startswith("rank:"):
            raise ConfigError(f"objective: {objective} is not for a ranker; use rank:ndcg, say")
        if y.ndim > 1:
            raise DataError("y: a ranker learns one relevance of each row")
        return {"objective": objective}

    def _numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        return y.astype(np.float64)


def _has_queries(X: Any) -> bool:
    """Whether ``X`` is a pandas frame with the column of queries."""
    return hasattr(X, "columns") and hasattr(X, "iloc") and _QID in X.columns


def _without_queries(X: Any) -> Any:
    return X.drop(columns=_QID) if _has_queries(X) else X


def _queries(
    X: Any, y: Any, group: Any, qid: Any, names: tuple[str, str], first: int
) -> tuple[Any, NDArray[np.int64]]:
    """``X`` without queries, and the query of each row of ``y``, numbered from ``first`` on.

    ``names``: the arguments by which sizes and numbers of queries were given.
    """
    given = [of is not None for of in (group, qid)] + [_has_queries(X)]
    if sum(given) != 1:
        raise ConfigError(
            f"{names[1]}: give each row's query once: by {names[1]}, by {names[0]}, or as column "
            f"{_QID!r} of a pandas frame"
        )
    if given[2]:
        qid, X = X[_QID].to_numpy(), _without_queries(X)
    rows = len(y)
    if group is not None:
        sizes = np.asarray(group)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
            raise DataError(f"{names[0]}: the sizes of queries are whole numbers from 1")
        if sizes.sum() != rows:
            raise DataError(f"{names[0]}: queries have {sizes.sum()} rows, and y has {rows}")
        return X, first + np.repeat(np.arange(len(sizes)), sizes)
    numbers = np.asarray(qid)
    if numbers.shape != (rows,):
        raise DataError(f"{names[1]} has the shape {numbers.shape}, and y has {rows} rows")
    if numbers.dtype.kind not in "iu":
        raise DataError(f"{names[1]}: queries are whole numbers")
    return X, first + np.unique(numbers, return_inverse=True)[1].reshape(-1)


def _after(queries: NDArray[np.int64]) -> int:
    """The first number of a query that ``queries`` do not have: sets share none."""
    return int(queries.max(initial=-1)) + 1


def _ranked(
    y: Any, queries: NDArray[np.int64], weight: Any, margin: Any, name: str
) -> Mapping[str, Any]:
    """What belongs to the rows: ``weight``, (queries,), is that of each row's query."""
    if weight is not None:
        place = queries - queries.min(initial=0)
        weights, number = np.asarray(weight, np.float64), int(place.max(initial=-1)) + 1
        if weights.shape != (number,):
            raise DataError(
                f"{name} has the shape {weights.shape}: one weight for each of {number} queries is "
                "needed"
            )
        weight = weights[place]
    return {**beside_rows(y, weight, margin), "qid": queries}
