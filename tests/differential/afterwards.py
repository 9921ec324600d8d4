"""What a model does after its training: scores of some rounds, reasons, and leaves weighed anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.xgboost_comparison.export import import_xgboost
from fedmq.boosting.xgboost_comparison.parity import by_query, labelled, of_bounds
from fedmq.errors import ConfigError

__all__ = ["assert_refreshed_alike", "assert_scored_alike", "is_refreshed"]

Values = NDArray[np.float32]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
STEPS = ("binary:hinge", "multi:softmax")
"""Objectives whose predictions jump where margins cross."""
OF_TREES = ("left_children", "right_children", "split_indices", "default_left")


def assert_scored_alike(
    random: np.random.Generator,
    model: fedmq.SimulatedModel,
    given: Mapping[str, Any],
    reference: Any,
    bins: BinMatrix,
) -> None:
    """``model`` scores its training rows as the ``reference`` of their ``bins`` does.

    By some of its rounds, from margins of its own or from the base score; and says why.
    """
    params, rows = model.share.params, len(bins.codes)
    first = int(random.integers(params.num_boost_round))
    rounds = first, int(random.integers(first + 1, params.num_boost_round + 1))
    margin = None
    if random.random() < 0.4:
        shape = rows if params.outputs == 1 else (rows, params.outputs)
        margin = random.normal(size=shape).astype(np.float32)
    indices = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    sets = {column for columns in bins.cuts.category_columns for column in columns}
    types = ["c" if column in sets else "q" for column in range(bins.cuts.n_features)]
    data = labelled(indices, None, None, margin, types)
    for asked in ({}, {"iteration_range": rounds}):
        for raw in (True, False):
            if not raw and params.objective in STEPS:
                continue
            ours = model.predict(**given, base_margin=margin, output_margin=raw, **asked)
            theirs = reference.predict(data, output_margin=raw, **asked)
            what = f"scores of {asked or 'all rounds'}, margins: {raw}, from {margin is not None}"
            np.testing.assert_allclose(ours, theirs, **TOLERANCE, err_msg=what)
    if params.vector_outputs == 1 and random.random() < 0.3:
        ours = model.predict(**given, base_margin=margin, pred_contribs=True)
        theirs = reference.predict(data, pred_contribs=True)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg="contributions")


def is_refreshed(params: TrainParams) -> bool:
    """Whether XGBoost refreshes such a model."""
    bound = params.xgboost_arithmetic != OLDEST and any(params.monotone_constraints.values())
    dropping = params.booster == "dart" and (params.rate_drop > 0 or params.one_drop)
    return not (bound or dropping or params.vector_outputs > 1)


def assert_refreshed_alike(
    random: np.random.Generator,
    model: fedmq.SimulatedModel,
    given: Mapping[str, Any],
    labels: Values,
    rows: Mapping[str, Values],
) -> None:
    """``model``, refreshed on some of its rows with labels of others, is XGBoost's update of it.

    ``rows``: weights and first margins. Where XGBoost refuses, fedmq does.
    """
    params = model.share.params
    taken = random.integers(0, len(labels), len(labels) // 2 + 5)
    if params.objective.startswith("rank:"):  # a query has one weight
        taken = np.sort(taken)
    known = labels[taken if params.objective.startswith("rank:") else random.permutation(taken)]
    beside = {name: values[taken] for name, values in rows.items()}
    joined = model.joined_values(**given)[taken]
    tables = model.share.parties, [given["active"], *given["passive"].values()]
    parts = {
        party: _rows_of(table, given["active"], taken) for party, table in zip(*tables, strict=True)
    }
    active = parts.pop("active")
    leaves = bool(random.random() < 0.75)

    def refreshed() -> fedmq.SimulatedModel:
        return model.refreshed(
            active=active, label=known, passive=parts, refresh_leaf=leaves, **beside
        )

    if not is_refreshed(params):
        try:
            refreshed()
        except ConfigError as error:
            assert "train it anew" in str(error)
            return
        raise AssertionError("a model was refreshed that XGBoost does not refresh")
    found, expected = refreshed(), _updated(model, joined, known, beside, leaves=leaves)
    ours, theirs = trees_of(found.to_xgboost()), trees_of(expected)
    assert len(ours) == len(theirs)
    for number, (tree, wanted) in enumerate(zip(ours, theirs, strict=True)):
        for name in OF_TREES:
            assert tree[name] == wanted[name], f"refreshed tree {number}: {name}"
        for name in ("split_conditions", "sum_hessian", "loss_changes"):
            what = f"refreshed tree {number}: {name}, leaves: {leaves}"
            np.testing.assert_allclose(tree[name], wanted[name], **TOLERANCE, err_msg=what)


def _rows_of(table: Any, leading: Any, taken: NDArray[np.integer[Any]]) -> Any:
    """The ``taken`` rows of ``leading`` in ``table``: by ids, or by position where it has none."""
    if not hasattr(table, "loc"):
        return table[taken]
    if table is leading or not hasattr(leading, "loc"):
        return table.iloc[taken].reset_index(drop=True)
    return table.loc[leading.index[taken]].reset_index(drop=True)


def _updated(
    model: fedmq.SimulatedModel,
    values: Values,
    labels: Values,
    beside: Mapping[str, Values],
    *,
    leaves: bool,
) -> Any:
    """XGBoost's own update of the joined ``model``; its columns have no constraints there."""
    booster, params = model.to_xgboost(), model.share.params
    ranked = params.objective.startswith("rank:")
    made = of_bounds if params.objective == "survival:aft" else by_query if ranked else labelled
    data = made(
        values,
        labels,
        beside.get("weight"),
        beside.get("base_margin"),
        booster.feature_types,
    )
    data.feature_names = booster.feature_names
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": int(leaves)}
    given = params.to_xgboost() | update | {"verbosity": 0, "nthread": 1}
    rounds = len(model.share.trees) // params.trees_per_round
    return import_xgboost().train(given, data, rounds, xgb_model=booster)


def trees_of(booster: Any) -> Sequence[dict[str, Any]]:
    """The trees of ``booster``, each as its JSON document."""
    found = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    trees: list[dict[str, Any]] = found.get("gbtree", found)["model"]["trees"]
    return trees
