"""Joined trees as an ``xgboost.Booster`` over raw values, and constraints of the joined columns.

The document is the JSON model of XGBoost 3.2 or 3.4.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.params import OLDEST, TrainParams, arithmetic_of
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.errors import ConfigError

if TYPE_CHECKING:
    import xgboost

__all__ = [
    "check_objective",
    "import_xgboost",
    "joined_constraints",
    "joint_booster",
    "to_booster",
]

_NO_PARENT = 2**31 - 1
_NO_CHILD = -1
_LARGEST = np.finfo(np.float32).max


def import_xgboost() -> ModuleType:
    """The package ``xgboost``.

    Raises:
        ConfigError: it is not installed; the text names the extra that brings it.
    """
    try:
        import xgboost
    except ImportError:
        raise ConfigError("xgboost is not installed; run: pip install 'fedmq[xgboost]'") from None
    module: ModuleType = xgboost
    return module


_SINCE = {"reg:expectileerror": (3, 3)}
"""The first release of XGBoost that has an objective, of those that came after 3.2."""


def check_objective(objective: str) -> None:
    """Raise ConfigError where the installed XGBoost does not have ``objective``."""
    since, installed = _SINCE.get(objective, (0, 0)), import_xgboost().__version__
    if tuple(int(part) for part in installed.split(".")[:2]) < since:
        raise ConfigError(
            f"{objective}: the installed XGBoost, {installed}, does not have it; install "
            f"xgboost-cpu {since[0]}.{since[1]} or later on Python 3.12 or later"
        )


def joint_booster(share: ActiveShare, splits: Sequence[OwnerSplits]) -> xgboost.Booster:
    """The model of ``share`` with the splits of all its parties, by index, as one booster.

    Columns are named ``party.column``. A column of categories that is split by sets holds codes
    there; the booster's attribute ``categories`` has their names by column, as JSON.
    """
    named = {
        f"{party}.{name}": list(categories)
        for party, own in zip(share.parties, splits, strict=True)
        for name, categories in zip(own.columns, own.categories, strict=True)
    }
    booster = to_booster(
        [PooledTree.joined(tree, splits) for tree in share.grown_trees],
        share.params,
        list(named),
        share.tree_weights,
        ["c" if categories else "float" for categories in named.values()],
    )
    if coded := {name: categories for name, categories in named.items() if categories}:
        booster.set_attr(categories=json.dumps(coded, ensure_ascii=False))
    return booster


def to_booster(
    trees: Sequence[PooledTree],
    params: TrainParams,
    feature_names: Sequence[str],
    tree_weights: Sequence[float] = (),
    feature_types: Sequence[str] = (),
) -> xgboost.Booster:
    """``trees`` as a booster whose columns are ``feature_names``; its margins equal ours.

    ``tree_weights``: what each tree weighs, where they are DART's. ``feature_types``: "c" of
    columns that hold codes of categories; all hold numbers where it is left out.
    XGBoost sends ``x < condition`` left where fedmq sends ``x <= threshold``, so a condition is the
    next float32 above the threshold.
    """
    check_objective(params.objective)
    booster: xgboost.Booster = import_xgboost().Booster()
    types = feature_types or ["float"] * len(feature_names)
    document = _document(trees, params, feature_names, types, tree_weights)
    booster.load_model(bytearray(json.dumps(document), "ascii"))
    return booster


def _document(
    trees: Sequence[PooledTree],
    params: TrainParams,
    feature_names: Sequence[str],
    feature_types: Sequence[str],
    tree_weights: Sequence[float],
) -> dict[str, Any]:
    model = {
        "gbtree_model_param": {
            "num_parallel_tree": str(params.num_parallel_tree),
            "num_trees": str(len(trees)),
        },
        "iteration_indptr": list(range(0, len(trees) + 1, params.trees_per_round)),
        "tree_info": [params.output_of(index) for index in range(len(trees))],
        "trees": [_tree(index, tree, len(feature_names)) for index, tree in enumerate(trees)],
    }
    boosted = {"model": model, "name": "gbtree"}
    dart = {"name": "dart", "gbtree": boosted, "weight_drop": list(tree_weights)}
    if arithmetic_of(import_xgboost().__version__) != OLDEST:  # XGBoost 3.4 warns about the name
        dart = {"model": model | {"weight_drop": list(tree_weights)}, "name": "gbtree"}
    assert params.base_score is not None  # a finished model has one
    scores = np.broadcast_to(np.array(params.base_score, np.float32), params.outputs)
    return {
        "learner": {
            "attributes": {},
            "feature_names": list(feature_names),
            "feature_types": list(feature_types),
            "gradient_booster": dart if params.booster == "dart" else boosted,
            "learner_model_param": {
                "base_score": f"[{','.join(map(str, scores))}]",
                "boost_from_average": "0",
                "num_class": str(params.num_class or 0),
                "num_feature": str(len(feature_names)),
                "num_target": str(1 if params.num_class else params.outputs),
            },
            "objective": _objective(params),
        },
        "version": [3, 2, 0],
    }


def _objective(params: TrainParams) -> dict[str, Any]:
    """The objective's name and parameters, as its ``LoadConfig`` reads them."""
    objective = OBJECTIVES[params.objective]
    if objective.export_section is None:
        return {"name": objective.name}
    return {"name": objective.name, objective.export_section: dict(objective.exported(params))}


def _tree(index: int, joined: PooledTree, n_features: int) -> dict[str, Any]:
    tree = joined.tree
    leaf = tree.is_leaf
    # JSON has no inf, and no training value lies above the largest float32.
    above = np.minimum(np.nextafter(joined.threshold, np.float32(np.inf)), _LARGEST)
    parents = np.full(len(tree), _NO_PARENT, np.int64)
    parents[tree.left[~leaf]] = np.flatnonzero(~leaf)
    parents[tree.right[~leaf]] = np.flatnonzero(~leaf)
    sizes = [len(codes) for codes in joined.categories.values()]
    by_codes = np.isin(np.arange(len(tree)), list(joined.categories))
    document = {
        "base_weights": tree.weight.ravel().tolist(),
        "categories": [code for codes in joined.categories.values() for code in codes],
        "categories_nodes": list(joined.categories),
        "categories_segments": [sum(sizes[:place]) for place in range(len(sizes))],
        "categories_sizes": sizes,
        "default_left": joined.default_left.astype(int).tolist(),
        "id": index,
        "left_children": np.where(leaf, _NO_CHILD, tree.left).tolist(),
        "loss_changes": tree.gain.tolist(),
        "parents": parents.tolist(),
        "right_children": np.where(leaf, _NO_CHILD, tree.right).tolist(),
        "split_conditions": above.tolist(),
        "split_indices": joined.feature.tolist(),
        "split_type": by_codes.astype(int).tolist(),
        "sum_hessian": tree.cover.tolist(),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(len(tree)),
            "size_leaf_vector": str(tree.outputs),
        },
    }
    if tree.outputs == 1:
        return document | {"split_conditions": np.where(leaf, tree.weight, above).tolist()}
    # XGBoost keeps vectors apart, and a leaf's place among them in place of its right child.
    places = np.cumsum(leaf) - 1
    return document | {
        "leaf_weights": tree.weight[leaf].ravel().tolist(),
        "parents": np.where(parents == _NO_PARENT, _NO_CHILD, parents).tolist(),
        "right_children": np.where(leaf, places, tree.right).tolist(),
    }


def joined_constraints(params: TrainParams, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The constraints of ``params`` as parameters of ``xgboost.train``.

    ``columns``: the names of each party's columns, the active party's first.
    """
    own, *others = columns
    joined = [*columns[own], *(f"{party}.{name}" for party in others for name in columns[party])]
    groups, start = {}, 0
    for party, names in columns.items():
        groups["*" if party == own else f"{party}.*"] = range(start, start + len(names))
        start += len(names)

    def places(name: str | int) -> Sequence[int]:
        if isinstance(name, int):
            return [name]
        if name in joined:
            return [joined.index(name)]
        if name in groups:
            return groups[name]
        return [place for place, column in enumerate(joined) if column.startswith(f"{name}=")]

    constraints: dict[str, Any] = {}
    if params.monotone_constraints:
        signs = (params.monotone_constraints.get(name, 0) for name in joined)
        constraints["monotone_constraints"] = tuple(signs)
    if params.interaction_constraints:
        together = (
            sorted(set(itertools.chain.from_iterable(map(places, names))))
            for names in params.interaction_constraints
        )
        constraints["interaction_constraints"] = json.dumps(list(together))
    return constraints
