"""How good would a model be on rows that it has not seen? A training for each fold of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.metrics.early_stopping import EarlyStopping
from fedmq.boosting.metrics.registry import watched_maximizes
from fedmq.boosting.objectives.custom import MetricFunction, ObjectiveFunction
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.data.data_frame import feature_table
from fedmq.privacy.registry import engine_named
from fedmq.protocol.training.tables import ActiveTable
from fedmq.simulation.active_table import ACTIVE, active_table
from fedmq.simulation.folds import Fold, folds_of
from fedmq.simulation.row_index import by_index
from fedmq.simulation.training import PartyFeatures, Surroundings, check_parties, train

__all__ = ["cv"]

_TEST = "test"


def cv(
    *,
    active: Any,
    label: ArrayLike,
    passive: Mapping[str, Any],
    params: TrainParams | Mapping[str, Any] | None = None,
    nfold: int = 3,
    stratified: bool = False,
    folds: Any = None,
    groups: ArrayLike | None = None,
    metrics: str | Sequence[str] = (),
    obj: ObjectiveFunction | None = None,
    custom_metric: MetricFunction | None = None,
    maximize: bool | None = None,
    early_stopping_rounds: int | None = None,
    as_pandas: bool = True,
    seed: int = 0,
    shuffle: bool = True,
    weight: ArrayLike | None = None,
    base_margin: ArrayLike | None = None,
    engine: str = "plain",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    smallest_cell: int = 0,
) -> Any:
    """Cross-validate, as ``xgb.cv`` does, with every party in this process.

    Each fold trains on the other folds' rows and is scored on its own. An exact engine gives the
    figures of ``xgb.cv`` on the joined table, for the same folds and cuts.

    Args:
        active, label, passive, weight, base_margin, obj, custom_metric, maximize, engine,
            engine_options, workers, smallest_cell: as in :func:`fedmq.simulate`.
        params: XGBoost's parameters; ``num_boost_round`` is among them.
        nfold: how many folds; the same seed gives the folds of ``xgb.cv``.
        stratified: every fold has the classes' shares; needs scikit-learn.
        folds: pairs of row numbers, to learn from and to score; or a splitter of scikit-learn.
        groups: (rows,); rows of one group are in one fold.
        metrics: in place of ``params``' ``eval_metric``.
        early_stopping_rounds: the result ends with the best round of the last metric's mean, after
            which so many rounds were no better.
        as_pandas: a data frame, if pandas is installed; otherwise, and without it, a dict of lists.
        seed, shuffle: of the folds; rows keep their order without ``shuffle``.

    Returns:
        A row for each round, with the columns ``train-logloss-mean``, ``train-logloss-std``,
        ``test-logloss-mean`` and ``test-logloss-std`` of each metric, over the folds.

    Raises:
        ConfigError, DataError: a parameter, a fold or a table is wrong.
    """
    given = params.model_dump() if isinstance(params, TrainParams) else dict(params or {})
    if metrics:
        given["eval_metric"] = metrics
    stops_after = _early_stopping_rounds(given, early_stopping_rounds)
    parsed = TrainParams.parse(given, "params")
    check_parties(passive)
    matched = by_index(
        {ACTIVE: active, **passive},
        {"label": label, "weight": weight, "base_margin": base_margin, "groups": groups},
    )
    tables = {party: feature_table(data, party) for party, data in matched.tables.items()}
    whole = active_table(
        *tables.pop(ACTIVE),
        parsed,
        matched.beside["label"],
        weight=matched.beside["weight"],
        base_margin=matched.beside["base_margin"],
        obj=obj,
        custom_metric=custom_metric,
        maximize=maximize,
    )
    for party, (values, _) in {ACTIVE: (whole.values, ()), **tables}.items():
        if len(values) != len(whole.label):
            raise DataError(f"{party} has {len(values)} rows, there are {len(whole.label)} labels")
    spec = engine_named(engine, engine_options or {}, "cv")
    chosen = folds_of(
        whole.label,
        nfold=nfold,
        stratified=stratified,
        folds=folds,
        groups=matched.beside["groups"],
        shuffle=shuffle,
        seed=seed,
    )
    surroundings = Surroundings(workers=workers, smallest_cell=smallest_cell)
    curves = []
    for fold in chosen:
        model = train(
            _own_rows(whole, fold), _others_rows(tables, fold), parsed, spec, surroundings
        )
        curves.append(model.share.history)
    return _framed(_figures(curves, stops_after, parsed, whole), as_pandas)


def _early_stopping_rounds(given: dict[str, Any], asked: int | None) -> int | None:
    """How many rounds without gain end the result; folds train all rounds."""
    named = given.pop("early_stopping_rounds", None)
    if asked is not None and named is not None and asked != named:
        raise ConfigError("early_stopping_rounds is given twice, with two values")
    rounds = named if asked is None else asked
    if rounds is not None and rounds < 1:
        raise ConfigError(f"early_stopping_rounds = {rounds}: at least 1 is needed")
    return rounds


def _own_rows(whole: ActiveTable, fold: Fold) -> ActiveTable:
    """The rows of a fold: those to learn from, then those to score."""
    rows = np.concatenate(fold)
    held_out = np.arange(len(rows)) >= len(fold[0])
    return ActiveTable(
        whole.values[rows],
        whole.features,
        whole.label[rows],
        held_out,
        weight=None if whole.weight is None else whole.weight[rows],
        base_margin=None if whole.base_margin is None else whole.base_margin[rows],
        objective=whole.objective,
        metric=whole.metric,
        evaluation_sets={_TEST: held_out},
    )


def _others_rows(tables: Mapping[str, PartyFeatures], fold: Fold) -> dict[str, PartyFeatures]:
    rows = np.concatenate(fold)
    return {party: (values[rows], names) for party, (values, names) in tables.items()}


def _figures(
    curves: Sequence[Mapping[str, Sequence[float]]],
    stops_after: int | None,
    params: TrainParams,
    table: ActiveTable,
) -> dict[str, list[float]]:
    """Mean and deviation of each metric over the folds, by round."""
    over_folds: dict[str, NDArray[np.float64]] = {
        name: np.array([curve[name] for curve in curves]) for name in curves[0]
    }
    end = None
    if stops_after is not None:
        watched, scores = list(over_folds.items())[-1]  # of the rows to score, as XGBoost does
        _, _, metric = watched.partition("-")
        stopping = EarlyStopping(
            rounds=stops_after, maximize=watched_maximizes(metric, params, table.metric)
        )
        end = _best_end(stopping, scores.mean(axis=0).tolist())
    return {
        f"{name}-{kind}": figure[:end].tolist()
        for name, values in over_folds.items()
        for kind, figure in (("mean", values.mean(axis=0)), ("std", values.std(axis=0)))
    }


def _best_end(stopping: EarlyStopping, scores: Sequence[float]) -> int | None:
    """How many rounds the result has; all where early stopping is never due."""
    for number, score in enumerate(scores):
        stopping = stopping.after(number, score)
        if stopping.is_due:
            return stopping.best_iteration + 1
    return None


def _framed(figures: dict[str, list[float]], as_pandas: bool) -> Any:
    if not as_pandas:
        return figures
    try:
        import pandas
    except ImportError:
        return figures
    return pandas.DataFrame.from_dict(figures)
