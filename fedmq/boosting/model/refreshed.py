"""What do the trees of a model become on other rows, if splits stay and leaves are weighed anew?

XGBoost's ``process_type = "update"`` with ``updater = "refresh"``. Leaves are sums of gradients
also where a training takes quantiles of residuals: XGBoost's updater knows no others. Who computes
it needs the labels and the leaf in which each row ends, as the active party has them after scores;
no sum and no gradient leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Tree
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import leaf_weights
from fedmq.errors import ConfigError

__all__ = ["check_refreshable", "refreshed", "refreshing_params"]

LEAF_PARAMETERS: Final = ("eta", "reg_lambda", "reg_alpha", "max_delta_step", "min_child_weight")
"""What weighs leaves, and so may differ from what the splits were found with."""

_OF_NO_MODEL: Final = ("eval_metric", "early_stopping_rounds")


def refreshing_params(share: ActiveShare, given: Mapping[str, Any]) -> TrainParams:
    """The parameters with which ``share`` is refreshed: its own, but for what is ``given``.

    Raises:
        ConfigError: what is given would be of other splits, or of another objective.
    """
    params = share.params
    for name, value in given.items():
        before = getattr(params, name)
        if name not in (*LEAF_PARAMETERS, *_OF_NO_MODEL) and value not in (before, None):
            raise ConfigError(
                f"refresh: {name} = {value!r}, model {share.model_id!r} has {before!r}, and keeps "
                f"it; leave it out, what may change is {', '.join(LEAF_PARAMETERS)}"
            )
    if given.get("early_stopping_rounds") is not None:
        raise ConfigError("refresh: early_stopping_rounds: all trees are refreshed; leave it out")
    changed = {name: given[name] for name in LEAF_PARAMETERS if name in given}
    if given.get("eval_metric"):
        changed["eval_metric"] = given["eval_metric"]
    return params.model_copy(update={**changed, "early_stopping_rounds": None})


def refreshed(
    share: ActiveShare,
    leaves: Sequence[NDArray[np.int32]],
    labels: NDArray[np.float32],
    weight: NDArray[np.float32] | None = None,
    base_margin: NDArray[np.float32] | None = None,
    *,
    refresh_leaf: bool = True,
    learning: NDArray[np.bool_] | None = None,
    objective: Objective | None = None,
    after_round: Callable[[NDArray[np.float32]], None] = lambda _: None,
) -> ActiveShare:
    """``share`` with gains and covers of new rows, and their leaf weights with ``refresh_leaf``.

    ``leaves``: by tree of `ActiveShare.grown_trees`, int32 (rows,), the node at which each row
    ends. ``labels`` and ``weight`` float32 (rows,); ``base_margin`` float32 (rows,) or (rows,
    outputs). Each round's gradients are those at the margins of the refreshed trees before it.
    ``learning`` bool (rows,): the rows from which leaves are learned, all where it is left out.
    ``objective``: a caller's own, in place of the one that the parameters name. ``after_round``
    takes the margins of all rows, float32 (rows,) or (rows, outputs), after each round.

    Raises:
        ConfigError: the model is of a kind that is not refreshed.
    """
    params = share.params
    check_refreshable(share)
    objective = objective or objective_of(params)
    rows = np.ones(len(labels), np.bool_) if learning is None else learning
    margins = np.empty((len(labels), params.outputs), np.float32)
    margins[:] = objective.first_margin(share.base_score)
    if base_margin is not None:
        margins[:] = base_margin.reshape(margins.shape)
    trees: list[Tree] = []
    for number, (tree, ends) in enumerate(zip(share.grown_trees, leaves, strict=True)):
        if number % params.trees_per_round == 0:  # all trees of a round have the same margins
            seen = margins[rows, 0] if params.outputs == 1 else margins[rows]
            weights = None if weight is None else weight[rows]
            gradients = objective.gradients(seen, labels[rows], weights)
        output = params.output_of(number)
        pairs = gradients if gradients.ndim == 2 else gradients[:, output]
        new = _refreshed_tree(tree, ends[rows], pairs, params, refresh_leaf)
        margins[:, output] += new.weight[ends]
        trees.append(new)
        if len(trees) % params.trees_per_round == 0:
            after_round((margins[:, 0] if params.outputs == 1 else margins).copy())
    return share.model_copy(
        update={"trees": tuple(trees), "best_iteration": None, "history": {}},
    )


def check_refreshable(share: ActiveShare) -> None:
    """Raise ConfigError if ``share`` is of a kind that XGBoost does not refresh."""
    params = share.params
    refused = {
        "booster = 'dart', which weighs trees beside their leaves": bool(share.tree_weights)
        and (params.rate_drop > 0 or params.one_drop),
        "multi_strategy = 'multi_output_tree'": params.vector_outputs > 1,
        "monotone_constraints, which leaves weighed anew may break": bool(
            params.xgboost_arithmetic != OLDEST and any(params.monotone_constraints.values())
        ),
    }
    if found := [what for what, is_so in refused.items() if is_so]:
        raise ConfigError(
            f"refresh: XGBoost {params.xgboost_arithmetic} refreshes no model with {found[0]}; "
            "train it anew"
        )


def _refreshed_tree(
    tree: Tree,
    ends: NDArray[np.int32],
    gradients: NDArray[np.float32],
    params: TrainParams,
    refresh_leaf: bool,
) -> Tree:
    scale = FixedPoint.of(gradients)
    exact = np.zeros((len(tree), 2), np.int64)
    np.add.at(exact, ends, scale.encode(gradients))
    splits = np.flatnonzero(~tree.is_leaf)
    for node in splits[::-1].tolist():  # a parent stands before its children
        exact[node] = exact[tree.left[node]] + exact[tree.right[node]]
    sums = scale.to_float(exact)
    values = _values(sums, params)
    gain = np.zeros(len(tree), np.float32)
    gain[splits] = values[tree.left[splits]] + values[tree.right[splits]] - values[splits]
    changes = {"gain": gain, "cover": sums[:, 1].astype(np.float32)}
    if refresh_leaf:
        weights = leaf_weights(sums, params)
        changes["weight"] = np.where(tree.is_leaf, weights, tree.weight).astype(np.float32)
    return tree.model_copy(update=changes)


def _values(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """``CalcGain`` of nodes in float64: that of the updater has no float32 in it.

    3.2 adds alpha once where weights have a limit, and takes nodes lighter than min_child_weight
    for empty.
    """
    G, H = sums[:, 0], sums[:, 1]
    is_oldest = params.xgboost_arithmetic == OLDEST
    names = ("reg_alpha", "reg_lambda", "min_child_weight", "max_delta_step")
    alpha, lambda_, lightest, limit = (float(np.float32(getattr(params, name))) for name in names)
    shrunk = np.sign(G) * np.maximum(np.abs(G) - alpha, 0)
    below = H + lambda_
    heavy = (H > 0) & (not is_oldest or lightest <= H)
    with np.errstate(divide="ignore", invalid="ignore"):
        if limit == 0:
            return np.where(heavy, shrunk**2 / below, 0.0)
        weight = np.clip(-shrunk / below, -limit, limit)
    value = -(2 * G * weight + below * weight**2)
    penalty = alpha * np.abs(weight)
    return np.where(heavy, value + penalty if is_oldest else value - 2 * penalty, 0.0)
