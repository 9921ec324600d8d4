"""Cross-validation: a model for each fold estimates the quality on unseen rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.objectives.custom import MetricFunction, ObjectiveFunction
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.data.data_frame import party_features
from fedmq.party.data.held_out import Fold, folds_of
from fedmq.privacy.registry import engine_named
from fedmq.protocol.training.terms import ActiveTable
from fedmq.protocol.training.terms import Fold as Masks
from fedmq.simulation.names_of_xgboost import answering_names_of_xgboost
from fedmq.simulation.signs import parsed, with_signs
from fedmq.simulation.simulate import Surroundings, check_parties, run_training
from fedmq.simulation.tables import ACTIVE, Join, active_table, by_index, targets_of

__all__ = ["cv"]

_TEST = "test"


@answering_names_of_xgboost
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
    join: Join = "same",
    engine: str = "plain",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    smallest_cell: int = 0,
) -> Any:
    """Cross-validate, as ``xgb.cv`` does, with every party in this process.

    Each fold trains on the other folds' rows and is scored on its own; all in one session, whose
    cuts are those of all rows. An exact engine gives the figures of ``xgb.cv`` on the joined table,
    for the same folds and cuts. Arguments that are not listed are those of ``fedmq.simulate``.

    Args:
        params: XGBoost's parameters; ``num_boost_round`` is among them.
        nfold: how many folds; the same seed gives the folds of ``xgb.cv``.
        stratified: every fold has the classes' shares; needs scikit-learn.
        folds: pairs of row numbers, to learn from and to score; or a splitter of scikit-learn. With
            ``join="inner"`` the rows are those that all tables hold.
        groups: (rows,); rows of one group are in one fold.
        metrics: in place of ``params``' ``eval_metric``.
        early_stopping_rounds: the result ends with the best round of the last metric's mean, after
            which so many rounds were no better; no fold trains more.
        as_pandas: a data frame, if pandas is installed; otherwise, and without it, a dict of lists.
        seed: of the folds.
        shuffle: rows keep their order without it.

    Returns:
        A row for each round, with the columns ``train-logloss-mean``, ``train-logloss-std``,
        ``test-logloss-mean`` and ``test-logloss-std`` of each metric, over the folds.

    Raises:
        ConfigError, DataError: a parameter, a fold or a table is wrong.
    """
    given = params.model_dump() if isinstance(params, TrainParams) else dict(params or {})
    if metrics:
        given["eval_metric"] = metrics
    given["early_stopping_rounds"] = _early_stopping_rounds(given, early_stopping_rounds)
    terms, signs = parsed(given)
    terms = terms.with_targets(targets_of(terms, label))
    check_parties(passive)
    matched = by_index(
        {ACTIVE: active, **passive},
        {"label": label, "weight": weight, "base_margin": base_margin, "groups": groups},
        join,
    )
    tables = {party: party_features(data, party) for party, data in matched.tables.items()}
    terms = with_signs(terms, signs, tables)
    whole = active_table(
        tables.pop(ACTIVE),
        terms,
        matched.beside["label"],
        weight=matched.beside["weight"],
        base_margin=matched.beside["base_margin"],
        obj=obj,
        custom_metric=custom_metric,
        maximize=maximize,
    )
    held = {ACTIVE: whole.values, **{party: features.values for party, features in tables.items()}}
    for party, values in held.items():
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
    rows, masks = _session_rows(chosen, len(whole.label))
    own = ActiveTable(
        whole.values[rows],
        whole.features,
        whole.label[rows],
        ~np.logical_or.reduce([fold.learning for fold in masks]),
        weight=None if whole.weight is None else whole.weight[rows],
        base_margin=None if whole.base_margin is None else whole.base_margin[rows],
        objective=whole.objective,
        metric=whole.metric,
        folds=masks,
        category_columns=whole.category_columns,
        bins=whole.bins,
    )
    others = {
        party: features._replace(values=features.values[rows]) for party, features in tables.items()
    }
    surroundings = Surroundings(workers=workers, smallest_cell=smallest_cell)
    found: CrossValidated = run_training(own, others, terms, spec, surroundings)[0]
    return _framed({name: list(values) for name, values in found.figures.items()}, as_pandas)


def _early_stopping_rounds(given: dict[str, Any], asked: int | None) -> int | None:
    """The number of rounds without gain that stops the training."""
    named = given.get("early_stopping_rounds")
    if asked is not None and named is not None and asked != named:
        raise ConfigError("early_stopping_rounds is given twice, with two values")
    rounds = named if asked is None else asked
    if rounds is not None and rounds < 1:
        raise ConfigError(f"early_stopping_rounds = {rounds}: at least 1 is needed")
    return rounds


def _session_rows(folds: Sequence[Fold], rows: int) -> tuple[NDArray[np.intp], tuple[Masks, ...]]:
    """The rows of a session with all ``folds`` of so many rows, and each fold as masks of them.

    A row that a fold names twice, as in a draw with replacement, appears twice.
    """
    most = np.ones(rows, np.intp)
    for train, test in folds:
        np.maximum(most, np.bincount(np.concatenate((train, test)), minlength=rows), out=most)
    chosen = np.repeat(np.arange(rows), most)
    copy = np.arange(len(chosen)) - np.repeat(np.cumsum(most) - most, most)
    masks = []
    for train, test in folds:
        learnt = np.bincount(train, minlength=rows)
        scored = learnt + np.bincount(test, minlength=rows)
        learning = copy < learnt[chosen]
        masks.append(Masks(learning, (copy < scored[chosen]) & ~learning))
    return chosen, tuple(masks)


def _framed(figures: dict[str, list[float]], as_pandas: bool) -> Any:
    if not as_pandas:
        return figures
    try:
        import pandas
    except ImportError:
        return figures
    return pandas.DataFrame.from_dict(figures)
