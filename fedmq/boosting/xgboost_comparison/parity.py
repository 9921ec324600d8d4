"""Joined trees compared, node by node, with XGBoost's own trees of the pooled columns.

XGBoost chooses its own cuts, so it is trained on bin indices, where each bin is a value: its
candidates are then ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, ColumnBins, Cuts
from fedmq.boosting.model.tree import LEAF
from fedmq.boosting.params import OLDEST, Arithmetic, TrainParams, arithmetic_of
from fedmq.boosting.xgboost_comparison.export import check_objective, import_xgboost
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.errors import ConfigError, DataError

if TYPE_CHECKING:
    import xgboost

__all__ = [
    "Parity",
    "by_query",
    "compare",
    "installed_arithmetic",
    "joined_bins",
    "labelled",
    "of_bounds",
    "train_reference",
]

_LEAF_TOLERANCE = 1e-6  # of leaves up to 1, and of larger ones relative to them


@dataclass(frozen=True, slots=True)
class Parity:
    """How many of XGBoost's nodes are identical, and the first that is not, in words.

    ``total`` counts the nodes of XGBoost's trees, and of joined trees that XGBoost lacks.
    """

    identical: int
    total: int
    first_difference: str | None


def installed_arithmetic() -> Arithmetic:
    """The arithmetic of the installed XGBoost; ConfigError if none is installed."""
    return arithmetic_of(import_xgboost().__version__)


def train_reference(
    bins: BinMatrix,
    labels: NDArray[np.float32],
    params: TrainParams,
    weight: NDArray[np.float32] | None = None,
    base_margin: NDArray[np.float32] | None = None,
    constraints: Mapping[str, Any] = MappingProxyType({}),
) -> xgboost.Booster:
    """XGBoost's ``hist`` trained on the bin indices of the joined columns.

    Its cuts are those of the bins, which no weight moves: each bin is a value of its own.
    ``constraints``: those of the joined columns, as XGBoost's parameters. The columns that
    ``bins.cuts`` splits by sets are of type "c", and their bins are the codes of categories.

    Raises:
        ConfigError: ``params`` draw at random or treat parties differently, unlike XGBoost, or name
            an arithmetic that the installed XGBoost lacks.
    """
    check_objective(params.objective)
    wanted, installed = params.xgboost_arithmetic, installed_arithmetic()
    if wanted != installed:
        where = "" if wanted == OLDEST else " on Python 3.12 or later"
        raise ConfigError(
            f"xgboost_arithmetic = {wanted!r}: the installed XGBoost, "
            f"{import_xgboost().__version__}, computes as {installed} does; train with "
            f"{installed!r}, or install xgboost-cpu {wanted}{where}"
        )
    if params.booster == "dart" and import_xgboost().__version__.startswith("3.3."):
        raise ConfigError(
            "booster = 'dart': the installed XGBoost 3.3 draws trees neither as 3.2 nor as 3.4 "
            "does; install one of these to compare"
        )
    drawn = (
        params.subsample < 1
        or min(params.colsample_bytree, params.colsample_bylevel, params.colsample_bynode) < 1
        or params.goss
        or params.gradient_bits is not None
    )
    if drawn or params.active_only_trees:
        raise ConfigError(
            "a comparison with XGBoost needs subsample = 1, each colsample = 1, goss = false, "
            "no gradient_bits and active_only_trees = 0"
        )
    xgb = import_xgboost()
    ranked = params.objective.startswith("rank:")
    indices = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    max_bin = max(int(bins.cuts.n_bins.max()) + 1, 2)
    made = of_bounds if params.objective == "survival:aft" else by_query if ranked else labelled
    rows = made(indices, labels, weight, base_margin, _types(bins.cuts))
    reference: xgboost.Booster = xgb.train(
        params.to_xgboost() | dict(constraints) | {"max_bin": max_bin, "nthread": 1},
        rows,
        params.num_boost_round,
    )
    return reference


def by_query(
    values: NDArray[np.float32],
    labels: NDArray[np.float32],
    weight: NDArray[np.float32] | None = None,
    base_margin: NDArray[np.float32] | None = None,
    types: Sequence[str] = (),
) -> xgboost.DMatrix:
    """A DMatrix of ``values`` in the order of their queries, which are ``labels[:, 1]``.

    A query has one weight, as XGBoost wants it.
    """
    order = np.argsort(labels[:, 1], kind="stable")
    _, first = np.unique(labels[:, 1], return_index=True)
    made = labelled(
        values[order],
        np.ascontiguousarray(labels[order, 0]),
        None,
        None if base_margin is None else base_margin[order],
        types,
    )
    made.set_info(qid=labels[order, 1].astype(np.uint32))
    if weight is not None:
        made.set_weight(weight[first])
    return made


def labelled(
    values: NDArray[np.float32],
    labels: NDArray[np.float32] | None,
    weight: NDArray[np.float32] | None = None,
    base_margin: NDArray[np.float32] | None = None,
    types: Sequence[str] = (),
) -> xgboost.DMatrix:
    """A DMatrix of ``values`` and their labels, (rows,) or (rows, targets).

    ``types``: "c" of columns that hold codes of categories; all hold numbers where it is left out.
    """
    given: dict[str, Any] = {"label": labels, "weight": weight, "base_margin": base_margin}
    if types:
        given |= {"feature_types": list(types), "enable_categorical": True}
    made: xgboost.DMatrix = import_xgboost().DMatrix(values, nthread=1, **given)
    return made


def of_bounds(
    values: NDArray[np.float32],
    labels: NDArray[np.float32],
    weight: NDArray[np.float32] | None = None,
    base_margin: NDArray[np.float32] | None = None,
    types: Sequence[str] = (),
) -> xgboost.DMatrix:
    """A DMatrix of ``values`` whose ``labels`` (rows, 2) are bounds of times."""
    made = labelled(values, None, weight, base_margin, types)
    low, high = np.ascontiguousarray(labels.T)
    made.set_info(label_lower_bound=low, label_upper_bound=high)
    return made


def joined_bins(
    values: NDArray[np.float32],
    training: NDArray[np.bool_],
    max_bin: int,
    types: Sequence[str],
    given: Mapping[int, ColumnBins] = MappingProxyType({}),
    person: NDArray[np.integer[Any]] | None = None,
    own: int = 0,
) -> BinMatrix:
    """Bins of the joined columns ``values`` (rows, columns), cut as their owners cut them.

    ``training`` bool (rows,): the rows that cuts are made of. Of columns of ``types`` "c" each code
    of a training row is a bin, and such a column is one that ``cuts`` splits by sets. ``given``: as
    in `Cuts.of`, by joined column. With ``person``, whose each row is, cuts after those of the
    ``own`` first columns are made of people.
    """
    cuts = Cuts.of(values[training], max_bin, given)
    if person is not None:
        _, first = np.unique(person[training], return_index=True)
        of_people = Cuts.of(values[training][first], max_bin, given)
        cuts = Cuts(
            thresholds=(*cuts.thresholds[:own], *of_people.thresholds[own:]),
            has_missing=cuts.has_missing,
        )
    by_codes = [column for column, kind in enumerate(types) if kind == "c"]
    thresholds = list(cuts.thresholds)
    for column in by_codes:
        last = np.nanmax(values[training, column], initial=0)
        thresholds[column] = np.arange(last, dtype=np.float32)
    sets = tuple((column,) for column in by_codes)
    joined = Cuts(thresholds=tuple(thresholds), has_missing=cuts.has_missing, category_columns=sets)
    return BinMatrix.of(values, joined)


def _types(cuts: Cuts) -> Sequence[str]:
    by_codes = {column for columns in cuts.category_columns for column in columns}
    return ["c" if column in by_codes else "q" for column in range(cuts.n_features)]


def compare(reference: xgboost.Booster, trees: Sequence[PooledTree], bins: BinMatrix) -> Parity:
    """Count the nodes of ``reference`` that ``trees`` have too, starting from the roots.

    ``bins`` are the training rows. A split is identical if feature, bin and default direction are,
    a leaf if its weight is within 1e-6; below a differing split no node counts. Differences that no
    training row shows are not compared: bins beyond the last occupied one, the side of a category
    that no row of the node has, and the default direction of a node that no row with a missing
    value reaches. There both directions have the same gain, and XGBoost's choice depends on
    rounding errors.

    Raises:
        DataError: a threshold is no cut of ``bins``.
    """
    booster = json.loads(reference.save_raw("json"))["learner"]["gradient_booster"]
    theirs = booster.get("gbtree", booster)["model"]["trees"]  # DART keeps weights beside them
    present = np.where(bins.is_missing, -1, bins.codes.astype(np.int32))
    last_bin = present.max(axis=0, initial=-1)
    identical = 0
    differences = []
    for index, (our, their) in enumerate(zip(trees, theirs, strict=False)):
        same, difference = _compare_trees(
            _BinnedTree.of_joined(our, bins.cuts, last_bin),
            _BinnedTree.of_xgboost(their, last_bin),
            present,
        )
        identical += same
        if difference:
            differences.append(f"tree {index}, {difference}")
    surplus = [our.tree for our in trees[len(theirs) :]]
    if len(trees) != len(theirs):
        differences.append(f"{len(trees)} trees, XGBoost has {len(theirs)}")
    return Parity(
        identical=identical,
        total=sum(len(their["left_children"]) for their in theirs) + sum(map(len, surplus)),
        first_difference=differences[0] if differences else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _BinnedTree:
    """A tree on either side; ``bin`` is the last that goes left, ``left`` is -1 at leaves.

    ``categories``: by node, instead of a bin, the codes of a set that goes right.
    """

    feature: NDArray[np.int32]
    bin: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    weight: NDArray[np.float32]
    """(nodes, outputs)."""
    categories: Mapping[int, NDArray[np.integer]]

    @classmethod
    def of_joined(cls, joined: PooledTree, cuts: Cuts, last_bin: NDArray[np.int32]) -> _BinnedTree:
        tree = joined.tree
        bins = np.zeros(len(tree), np.int32)
        sets = {node: np.array(codes) for node, codes in joined.categories.items()}
        for node in np.flatnonzero(~tree.is_leaf).tolist():
            if node in sets:
                continue
            feature, threshold = int(joined.feature[node]), joined.threshold[node]
            bounds = np.concatenate(([-np.inf], cuts.thresholds[feature], [np.inf]))
            place = int(np.searchsorted(bounds, threshold))
            if bounds[place] != threshold:
                raise DataError(
                    f"node {node} splits feature {feature} at {threshold}, which is no cut of the "
                    "training rows given for the comparison"
                )
            bins[node] = min(place - 1, last_bin[feature])
        weight = tree.weight.reshape(len(tree), -1)
        return cls(joined.feature, bins, joined.default_left, tree.left, tree.right, weight, sets)

    @classmethod
    def of_xgboost(cls, document: dict[str, Any], last_bin: NDArray[np.int32]) -> _BinnedTree:
        left = np.array(document["left_children"], np.int32)
        feature = np.array(document["split_indices"], np.int32)
        conditions = np.array(document["split_conditions"], np.float32)
        # Bins < condition go left; XGBoost 3.4 writes -inf if none does, and none for a set.
        below = np.ceil(np.nan_to_num(np.maximum(conditions, 0), nan=0.0)).astype(np.int32) - 1
        return cls(
            feature,
            np.minimum(below, last_bin[feature]).astype(np.int32),
            np.array(document["default_left"], np.bool_),
            left,
            np.array(document["right_children"], np.int32),
            _leaf_weights(document, left == LEAF),
            _sets(document),
        )

    def goes_left(self, node: int, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which rows go left at a split, by their bins of its feature, -1 where missing."""
        if node in self.categories:
            left = ~np.isin(codes, self.categories[node])
        else:
            left = codes <= self.bin[node]
        return np.where(codes < 0, self.default_left[node], left)

    def in_words(self, node: int, codes: NDArray[np.int32]) -> str:
        """``codes``: the bins of the node's rows, of its feature; -1 where missing."""
        if self.left[node] == LEAF:
            return "leaf " + " ".join(f"{number:.9g}" for number in self.weight[node])
        side = "left" if self.default_left[node] else "right"
        missing = f", missing {side}" if (codes < 0).any() else ""
        split = f"bin {self.bin[node]}"
        if node in self.categories:
            held = np.intersect1d(self.categories[node], codes).tolist()
            split = f"categories {' '.join(map(str, held))}"
        return f"feature {self.feature[node]} {split}{missing}"


def _leaf_weights(document: dict[str, Any], leaf: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The addition of leaves to each margin: (nodes, outputs), 0 elsewhere."""
    if "leaf_weights" not in document:
        return np.array(document["split_conditions"], np.float32).reshape(-1, 1)
    vectors = np.array(document["leaf_weights"], np.float32).reshape(np.count_nonzero(leaf), -1)
    weights = np.zeros((len(leaf), vectors.shape[1]), np.float32)
    weights[leaf] = vectors[np.array(document["right_children"])[leaf]]
    return weights


def _sets(document: dict[str, Any]) -> dict[int, NDArray[np.integer]]:
    """By node, the codes of categories that go right."""
    codes = np.array(document["categories"], np.int32)
    return {
        node: codes[start : start + size]
        for node, start, size in zip(
            document["categories_nodes"],
            document["categories_segments"],
            document["categories_sizes"],
            strict=True,
        )
    }


def _compare_trees(
    ours: _BinnedTree, theirs: _BinnedTree, present: NDArray[np.int32]
) -> tuple[int, str | None]:
    """Identical nodes and first difference; ``present`` (rows, features): bins, -1 missing."""
    identical = 0
    first_difference: str | None = None
    pairs = [(0, 0, np.arange(len(present)))]
    while pairs:
        our, their, rows = pairs.pop()
        codes = present[rows, ours.feature[our]]
        difference = _difference(ours, our, theirs, their, codes)
        if difference:
            first_difference = first_difference or f"node {our}: {difference}"
            continue
        identical += 1
        if ours.left[our] != LEAF:
            left = ours.goes_left(our, codes)
            pairs.append((ours.right[our], theirs.right[their], rows[~left]))
            pairs.append((ours.left[our], theirs.left[their], rows[left]))
    return identical, first_difference


def _difference(
    ours: _BinnedTree, our: int, theirs: _BinnedTree, their: int, codes: NDArray[np.int32]
) -> str | None:
    both_leaves = ours.left[our] == LEAF and theirs.left[their] == LEAF
    if both_leaves:
        our_weight, their_weight = ours.weight[our], theirs.weight[their]
        largest = _LEAF_TOLERANCE * np.maximum(np.float32(1), np.abs(their_weight))
        if (np.abs(our_weight - their_weight) <= largest).all():
            return None
    our_words = ours.in_words(our, codes)
    their_words = theirs.in_words(their, codes)
    return None if our_words == their_words else f"{our_words}, XGBoost {their_words}"
