"""The model of fedmq and that of XGBoost on the joined table, compared node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.export import import_xgboost, joined_constraints
from fedmq.boosting.xgboost_comparison.parity import (
    compare,
    installed_arithmetic,
    joined_bins,
    labelled,
    of_bounds,
    train_reference,
)
from fedmq.party.data.given_bins import joined_places
from fedmq.simulation.repeated_ids import by_person, check_duplicates
from fedmq.simulation.simulate import simulate
from fedmq.simulation.tables import ACTIVE, by_index, targets_of

__all__ = ["XGBoostComparison", "compare_with_xgboost"]


@dataclass(frozen=True, slots=True)
class XGBoostComparison:
    """How a federated model and XGBoost's differ on the same rows.

    ``identical`` of ``nodes`` are the same where both choose among the same cuts; the first that is
    not is in ``first_difference``, in words. XGBoost chooses cuts in its own way when it is given
    the values themselves: ``own_cuts_difference`` is how far its prediction of a training row is
    then from ours at most, and ``own_cuts_mean`` how far on average.
    """

    identical: int
    nodes: int
    first_difference: str | None
    own_cuts_difference: float
    own_cuts_mean: float


def compare_with_xgboost(
    *,
    active: Any,
    label: ArrayLike,
    passive: Mapping[str, Any],
    params: TrainParams | Mapping[str, Any] | None = None,
    engine: str | None = None,
    column_bins: Mapping[str, Mapping[str, Any]] | None = None,
    duplicates: Literal["each", "hidden"] = "each",
) -> XGBoostComparison:
    """Train on these tables by ``fedmq.simulate`` and by XGBoost, and compare the models.

    The arguments are those of ``simulate``. ``engine`` is "plain" where it is left out, and
    "lattice" with ``duplicates = "hidden"``; XGBoost then has each row of a person, too, among cuts
    that other parties make of people. Needs the extra ``fedmq[xgboost]``. Where ``params`` do not
    name an ``xgboost_arithmetic``, it is that of the XGBoost that is installed.

    Raises:
        ConfigError: xgboost is not installed or computes otherwise than ``params`` want, a
            parameter is wrong, or it draws rows or columns at random, which XGBoost does otherwise.
        DataError: a table is wrong.
    """
    if not isinstance(params, TrainParams):
        params = TrainParams.parse(params or {}, "params")
    xgb = import_xgboost()
    if "xgboost_arithmetic" not in params.model_fields_set:
        params = params.model_copy(update={"xgboost_arithmetic": installed_arithmetic()})
    params = params.with_targets(targets_of(params, label))
    check_duplicates(duplicates)
    match = by_person if duplicates == "hidden" else by_index
    matched = match({ACTIVE: active, **passive}, {"label": label}, "same")
    tables, label = dict(matched.tables), matched.beside["label"]
    passive = {party: tables[party] for party in passive}
    model = simulate(
        active=active,
        label=label,
        passive=passive,
        params=params,
        engine=engine or ("plain" if matched.person is None else "lattice"),
        column_bins=column_bins,
        duplicates=duplicates,
    )
    values = model.joined_values(active=active, passive=passive)
    constraints = joined_constraints(params, model.columns)
    labels = np.asarray(label, dtype=np.float32)
    types = model.to_xgboost().feature_types or ()
    given = joined_places(model.columns, column_bins)
    own, every = len(model.share.lookup_table.columns), np.ones(len(values), np.bool_)
    bins = joined_bins(values, every, params.max_bin, types, given, matched.person, own)
    reference = train_reference(bins, labels, params, constraints=constraints)
    parity = compare(reference, model.joined_trees(), bins)
    made = of_bounds if params.objective == "survival:aft" else labelled
    rows = made(values, labels, types=types)
    booster = xgb.train(params.to_xgboost() | constraints, rows, params.num_boost_round)
    apart = np.abs(booster.predict(rows) - model.predict(active=active, passive=passive))
    return XGBoostComparison(
        parity.identical,
        parity.total,
        parity.first_difference,
        float(apart.max()),
        float(apart.mean()),
    )
