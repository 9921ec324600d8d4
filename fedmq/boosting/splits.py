"""Which split does a node get, and what do its leaves weigh?

Bit for bit as in XGBoost's ``hist``, of 3.2 or 3.4 as ``xgboost_arithmetic`` says: sums are
float64, parameters float32, and each gain is a float32. In the order of the file: the numbers of
nodes, which of two siblings is summed, the candidates of a node, the constraints that forbid some
of them, what a candidate gains by the rules of `fedmq.boosting.gain`, the best one, the weights of
leaves, the sets of categories that a column may send right, and which of the scored nodes is split
next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts
from fedmq.boosting.gain import (
    IN_THE_CLEAR,
    Conditions,
    Floats,
    Gain,
    GainParameters,
    GainRule,
)
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import MOST_CONSTRAINTS, TrainParams

__all__ = [
    "ALONE",
    "ANY_PATH",
    "ROOT",
    "SMALLEST_GAIN",
    "UNBOUNDED",
    "UNCONSTRAINED",
    "UNMARKED",
    "CandidateTable",
    "CategorySet",
    "ColumnMark",
    "ColumnsInPath",
    "Driver",
    "InteractionNode",
    "InteractionPath",
    "MonotoneNode",
    "NodeConstraints",
    "SetScan",
    "SummedLevel",
    "WeightBounds",
    "best",
    "children",
    "depth",
    "first_named",
    "first_order_gains",
    "gain_in_the_clear",
    "is_worthwhile",
    "leaf_weights",
    "node_gains",
    "node_weights",
    "parent",
    "plan_level",
    "sibling",
    "split_gains",
    "vector_leaf_weights",
]

ROOT = 1
"""Nodes are numbered as in a heap: the root is 1, the children of n are 2n and 2n + 1."""


def children(node: int) -> tuple[int, int]:
    """The heap numbers of the left and the right child."""
    return 2 * node, 2 * node + 1


def parent(node: int) -> int:
    """The heap number of the parent; 0 for the root."""
    return node // 2


def sibling(node: int) -> int:
    """The heap number of the parent's other child."""
    return node ^ 1


def depth(node: int) -> int:
    """How many splits stand above ``node``."""
    return node.bit_length() - 1


# Only the smaller of two siblings is summed; the larger is the parent less the smaller.


@dataclass(frozen=True, slots=True)
class SummedLevel:
    """The plan for the histograms of a level; nodes by their heap numbers.

    ``summed`` nodes read their rows; ``subtracted`` ones, in pairs (node, its summed sibling), are
    the parent less the sibling.
    """

    summed: tuple[int, ...]
    subtracted: tuple[tuple[int, int], ...]


def plan_level(
    sizes: Mapping[int, int], known: Collection[int], subtract: bool = True
) -> SummedLevel:
    """Plan the nodes of ``sizes`` (rows per node), given the nodes whose histograms are kept.

    All nodes read their rows unless ``subtract``.
    """
    summed, subtracted = [], []
    for node, size in sizes.items():
        other = sibling(node)
        larger = other in sizes and (size, node) > (sizes[other], other)
        if subtract and larger and parent(node) in known:
            subtracted.append((node, other))
        else:
            summed.append(node)
    return SummedLevel(tuple(summed), tuple(subtracted))


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """Candidates in canonical order, which decides ties; all vectors have their number C as length.

    Feature by feature, ascending, as ``EnumerateSplit`` of ``evaluate_splits.h`` scans them:

    1. forward, bins b ascending: bins up to b go left, missing values go right. The last bin is a
       candidate only if the feature has missing values ("all that is present goes left");
    2. if the feature has missing values, backward, bins b descending to -1: bins up to b *and*
       missing values go left. At -1 only missing values do.

    A category of a column that is split by sets has one candidate, with only that category on the
    right: an element of sets, not a split by itself (see `SetScan`).

    Left of candidate c are the histogram cells ``first_cell[c]`` up to, not including,
    ``stop_cell[c]``, and ``missing_cell[c]`` where ``default_left[c]``. ``categories``: the
    candidates of each column that is split by sets, ascending.
    """

    feature: NDArray[np.int32]
    bin: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    threshold: NDArray[np.float32]
    first_cell: NDArray[np.int64]
    stop_cell: NDArray[np.int64]
    missing_cell: NDArray[np.int64]
    categories: tuple[NDArray[np.int64], ...] = ()

    @classmethod
    def of(cls, cuts: Cuts, features: Iterable[int] | None = None) -> CandidateTable:
        """Candidates of ``features`` (default: all), after column sampling.

        ``threshold`` is the cut right of the bin, +inf for the last bin and -inf for bin -1.
        """
        chosen = range(cuts.n_features) if features is None else sorted(features)
        of_sets = {feature for column in cuts.category_columns for feature in column}
        features_of, bins_of, default_left, threshold = [], [], [], []
        for feature in chosen:
            last = int(cuts.n_bins[feature]) - 1
            if feature in of_sets:
                alone = np.zeros(min(last, 1), np.int64)  # none where no row has the category
                features_of.append(np.full(len(alone), feature))
                bins_of.append(alone)
                default_left.append(np.full(len(alone), cuts.has_missing[feature]))
                threshold.append(cuts.thresholds[feature][alone])
                continue
            forward = np.arange(last + 1 if cuts.has_missing[feature] else last)
            backward = np.arange(last - 1, -2, -1) if cuts.has_missing[feature] else forward[:0]
            bins = np.concatenate((forward, backward))
            bounds = np.concatenate(([-np.inf], cuts.thresholds[feature], [np.inf]))
            features_of.append(np.full(len(bins), feature))
            bins_of.append(bins)
            default_left.append(np.arange(len(bins)) >= len(forward))
            threshold.append(bounds[bins + 1])
        f = np.concatenate([np.empty(0, np.int32), *features_of]).astype(np.int32)
        b = np.concatenate([np.empty(0, np.int32), *bins_of]).astype(np.int32)
        first_cell = cuts.first_cell[f]
        return cls(
            feature=f,
            bin=b,
            default_left=np.concatenate([np.empty(0, np.bool_), *default_left]),
            threshold=np.concatenate([np.empty(0), *threshold]).astype(np.float32),
            first_cell=first_cell,
            stop_cell=first_cell + b + 1,
            missing_cell=cuts.first_cell[f + 1] - 1,
            categories=tuple(
                held
                for column in cuts.category_columns
                if len(held := np.flatnonzero(np.isin(f, column)))
            ),
        )

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def columns(self) -> NDArray[np.int32]:
        """The first feature of each candidate's column; int32 (C,)."""
        columns = self.feature.copy()
        for held in self.categories:
            columns[held] = self.feature[held[0]]
        return columns

    @property
    def is_category(self) -> NDArray[np.bool_]:
        """Which candidates are categories of columns that are split by sets; bool (C,)."""
        return np.isin(np.arange(len(self)), np.concatenate([np.empty(0), *self.categories]))

    def has_set(self, candidates: NDArray[np.integer]) -> bool:
        """Whether ``candidates`` are some, but not all, of the categories of one column."""
        chosen = set(candidates.tolist())
        distinct = len(chosen) == len(candidates) > 0
        return distinct and any(chosen < set(held.tolist()) for held in self.categories)

    def left_sums(self, histograms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums that go left, per candidate: int64 (..., cells, k) to int64 (..., C, k)."""
        # Running sums over all features may wrap around; their differences are exact regardless.
        *nodes, cells, columns = histograms.shape
        running = np.zeros((*nodes, cells + 1, columns), np.int64)
        np.cumsum(histograms, axis=-2, out=running[..., 1:, :])
        left = running[..., self.stop_cell, :] - running[..., self.first_cell, :]
        backward = self.default_left
        left[..., backward, :] += histograms[..., self.missing_cell[backward], :]
        return left


class ColumnMark(NamedTuple):
    """The constraints on the column of a split.

    Its monotone ``sign``, and the bits of the interaction ``constraints`` that contain it.
    """

    sign: int = 0
    constraints: np.uint64 = np.uint64(0)


UNMARKED = ColumnMark()


_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class WeightBounds:
    """Lower and upper bound of weights below a node, before eta.

    A column of sign 1 may only raise the prediction, one of sign -1 only lower it. As in
    ``TreeEvaluator`` of ``split_evaluator.h``, the weights on both sides of a split of such a
    column are in order, and no leaf below a side passes the middle between them.
    """

    lower: np.float32
    upper: np.float32

    def below(
        self, sign: int, left: NDArray[np.float32], right: NDArray[np.float32]
    ) -> tuple[WeightBounds, WeightBounds]:
        """The bounds of both children of a split with these weights, by a column of ``sign``."""
        middle = np.float32((left + right) / np.float32(2))
        lower, upper = WeightBounds(self.lower, middle), WeightBounds(middle, self.upper)
        return (lower, upper) if sign > 0 else (upper, lower)


UNBOUNDED = WeightBounds(-_LARGEST, _LARGEST)


@dataclass(frozen=True, slots=True, eq=False)
class MonotoneNode:
    """A node under monotone constraints; ``signs`` int8 (C,) are those of the candidates' columns.

    ``bounds`` hold below it, ``above`` below its parent.
    """

    signs: NDArray[np.int8]
    bounds: WeightBounds
    above: WeightBounds


ALONE = np.uint64(1 << MOST_CONSTRAINTS)
"""The bit of an unconstrained column that has split the root: only that column may follow."""

ANY_PATH = np.uint64(ALONE - 1)
"""All constraints: any column may follow."""


@dataclass(frozen=True, slots=True)
class InteractionPath:
    """The constraints that contain all columns above a node; any column may split the root.

    Each constraint is a set of columns that may stand together on a path. As in
    ``FeatureInteractionConstraintHost`` of ``constraints.cc``, a column may follow below a split if
    it was used above, or if a constraint contains it and all columns used above. A column in no
    constraint acts as if alone in one: below it only itself may follow.

    A column's constraints are the bits of a uint64: bit k is set if constraint k contains it.
    ``owner``: the owner of the root's column, if that is in no constraint; no other owner may split
    below.
    """

    constraints: np.uint64 = ANY_PATH
    owner: int | None = None

    def allows(self, owner: int, constraints: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of the ``owner``'s candidates may split the node, by their columns: bool (C,)."""
        if self.constraints == ANY_PATH:
            return np.ones(len(constraints), np.bool_)
        if self.owner not in (None, owner):
            return np.zeros(len(constraints), np.bool_)
        shared: NDArray[np.uint64] = constraints & self.constraints
        return shared > 0

    def shared_with(self, owner: int) -> np.uint64:
        """The constraints of which a candidate of ``owner`` needs one; none if `ANY_PATH`."""
        return self.constraints if self.owner in (None, owner) else np.uint64(0)

    def below(self, owner: int, constraints: np.uint64) -> InteractionPath:
        """The path of both children of a split by a column of ``owner``."""
        shared = constraints & self.constraints
        return InteractionPath(shared, self.owner) if shared else InteractionPath(ALONE, owner)


@dataclass(frozen=True, slots=True, eq=False)
class InteractionNode:
    """A node on ``path`` with candidates of ``owner``; ``constraints`` uint64 (C,) of each."""

    path: InteractionPath
    owner: int
    constraints: NDArray[np.uint64]

    def allows(self) -> NDArray[np.bool_]:
        """Which candidates may split the node: bool (C,)."""
        return self.path.allows(self.owner, self.constraints)


@dataclass(frozen=True, slots=True, eq=False)
class NodeConstraints:
    """What constraints say of nodes to the candidates of one party.

    ``within`` float32 (nodes, 2): the bounds of weights below each node, and ``above`` (nodes, 2)
    those below its parent; None without monotone constraints. ``paths`` uint64 (nodes,): the
    interaction constraints that contain all columns above; None if there are none.
    """

    within: NDArray[np.float32] | None = None
    above: NDArray[np.float32] | None = None
    paths: NDArray[np.uint64] | None = None


UNCONSTRAINED = NodeConstraints()


class ColumnsInPath:
    """A party's columns while a tree grows; ``constraints`` uint64 (columns,)."""

    def __init__(self, constraints: NDArray[np.uint64]) -> None:
        self._constraints = constraints
        self._alone: int | None = None

    def split(self, node: int, column: int) -> None:
        """Record that ``column`` splits ``node``."""
        if node == ROOT and not self._constraints[column]:
            self._alone = column

    def of(self, node: int, columns: NDArray[np.int32]) -> NDArray[np.uint64]:
        """The constraints of candidates of ``node``, given by their ``columns`` (C,): uint64."""
        if node == ROOT or self._alone is None:
            return self._constraints[columns]
        return np.where(columns == self._alone, ALONE, self._constraints[columns])


SMALLEST_GAIN = np.float32(1e-6)
"""A split must gain more: XGBoost's kRtEps."""


def split_gains(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
    monotone: MonotoneNode | None = None,
) -> NDArray[np.float32]:
    """Loss reduction per candidate, -inf where a side is empty or lighter than min_child_weight.

    With ``monotone`` the gains are those of bounded weights, -inf where weights are out of order.

    ``left`` and ``right`` (..., C, 2) are sums of g and h, ``total`` (..., 2) those of the node;
    the result is float32 (..., C). With vector leaves sums are (..., 2 * outputs), see
    ``_vector_gains``. Equation 7 of XGBoost (arXiv 1603.02754) without the
    factor 1/2 and without gamma, which is a bound of its own (``is_worthwhile``).
    """
    if left.shape[-1] > 2:
        return _vector_gains(left, right, total, params)
    of_left, of_right, node = ((sums[..., 0], sums[..., 1]) for sums in (left, right, total))
    with np.errstate(over="ignore", invalid="ignore"):
        if monotone is None:
            gain = gain_in_the_clear(params)
            gains = gain.of_split(of_left, of_right, gain.of_side(*node)[..., None])
        else:
            gain = gain_in_the_clear(params, monotone.bounds)
            unsplit = gain_in_the_clear(params, monotone.above).of_side(*node)[..., None]
            rises, falls = monotone.signs > 0, monotone.signs < 0
            gains, ordered = gain.of_ordered_split(rises, falls, of_left, of_right, unsplit)
            gains = np.where(ordered, gains, np.float32(-np.inf))
    lightest = np.minimum(left[..., 1], right[..., 1])
    valid = (lightest > 0) & (lightest >= np.float32(params.min_child_weight))
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def first_order_gains(
    left: NDArray[np.float64], right: NDArray[np.float64], params: TrainParams
) -> NDArray[np.float32]:
    """Loss reduction per candidate from g alone: float32 (..., C); h counts for nothing.

    Equation 7 of XGBoost with H = 0, ``-2 G_L G_R / lambda``: twice the score of FedXGBoost
    (arXiv 2106.10662, Appendix A), as ``split_gains`` is twice XGBoost's equation.
    """
    gains = -2 * left[..., 0] * right[..., 0] / params.reg_lambda
    return np.asarray(gains, dtype=np.float32)


def best(gains: NDArray[np.float32]) -> tuple[np.float32, NDArray[np.int64]]:
    """The largest of ``gains`` (C,) and all candidates that reach it, the winner first.

    Without a valid candidate the gain is -inf and there are no indices.
    """
    largest = np.max(gains, initial=np.float32(-np.inf))
    if np.isneginf(largest):
        return np.float32(-np.inf), np.empty(0, np.int64)
    return np.float32(largest), np.flatnonzero(gains == largest)


def is_worthwhile(gain: np.float32 | float, params: TrainParams) -> bool:
    """Whether a node is split for this ``gain``: more than 1e-6, and no less than gamma."""
    return bool(gain > SMALLEST_GAIN and gain >= np.float32(params.gamma))


def node_gains(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float32]:
    """The value of unsplit nodes, the baseline of `split_gains`: float32 (...) of (..., 2)."""
    return gain_in_the_clear(params).of_side(sums[..., 0], sums[..., 1])


def leaf_weights(
    total: NDArray[np.float64], params: TrainParams, bounds: WeightBounds = UNBOUNDED
) -> NDArray[np.float32]:
    """A leaf's addition to the margin, eta included: float32 (...) of sums (..., 2).

    Equation 5 of XGBoost (arXiv 1603.02754); in 3.2 zero for nodes lighter than min_child_weight.
    ``bounds``: those of the leaf's parent.
    """
    weights = gain_in_the_clear(params, bounds).leaf(total[..., 0], total[..., 1])
    return weights * params.leaf_eta


def node_weights(
    sums: NDArray[np.float64], params: TrainParams, bounds: WeightBounds
) -> NDArray[np.float32]:
    """The weight of a node within ``bounds``, without eta: float32 (...) of sums (..., 2)."""
    return gain_in_the_clear(params, bounds).leaf(sums[..., 0], sums[..., 1])


def vector_leaf_weights(
    total: NDArray[np.float64], params: TrainParams, *, root: bool
) -> NDArray[np.float32]:
    """A vector leaf's addition to each margin, eta included: float32 (outputs,) of (2 * outputs,).

    XGBoost 3.4 rounds before and after eta; 3.2 only after eta, but twice for a ``root`` without
    splits.
    """
    weights = gain_in_the_clear(params).weight(*_by_output(total))
    if root or params.xgboost_arithmetic != "3.2":
        return weights.astype(np.float32) * params.leaf_eta
    return (weights * np.float64(params.leaf_eta)).astype(np.float32)


def _vector_gains(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
) -> NDArray[np.float32]:
    """Loss reduction per candidate over all outputs of vector leaves: ``HistMultiEvaluator``.

    float32 (..., C), rounded once; -inf where a side has no hessian at all. In 3.4 also where a
    side's mean over the outputs is lighter than min_child_weight; in 3.2 a lighter mean is allowed,
    and a lighter output has weight 0.
    """
    if params.xgboost_arithmetic != "3.2":
        return _vector_gains_of_means(left, right, total, params)
    with np.errstate(over="ignore", invalid="ignore"):
        sides = _vector_gain(left, params) + _vector_gain(right, params)
        gains = (sides - _vector_gain(total, params)[..., None]).astype(np.float32)
    valid = (left[..., 1::2] > 0).any(axis=-1) & (right[..., 1::2] > 0).any(axis=-1)
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def _vector_gains_of_means(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    total: NDArray[np.float64],
    params: TrainParams,
) -> NDArray[np.float32]:
    """``CalcSplitGain`` of XGBoost 3.4: the sides of an output one after the other, in float64.

    The node's value uses its weights as float32; the sides' values use no weights.
    """
    gain, (G, H) = gain_in_the_clear(params), _by_output(total)
    with np.errstate(over="ignore", invalid="ignore"):
        sides = [_output_gains(*_by_output(side), params) for side in (left, right)]
        before = gain.of_weight(G, H, gain.weight(G, H).astype(np.float32))
        gains = _summed(np.stack(sides, axis=-1).reshape(left.shape))
        gains = (gains - _summed(before)[..., None]).astype(np.float32)
    h_left, h_right = (_summed(side[..., 1::2]) / H.shape[-1] for side in (left, right))
    lightest = np.minimum(h_left, h_right)
    valid = (lightest > 0) & (lightest >= np.float32(params.min_child_weight))
    return np.where(valid & np.isfinite(gains), gains, np.float32(-np.inf))


def _output_gains(
    G: NDArray[np.float64], H: NDArray[np.float64], params: TrainParams
) -> NDArray[np.float64]:
    """The value of each output of a side: ``CalcGain``."""
    gain = gain_in_the_clear(params)
    if params.max_delta_step:
        return gain.kind.when(H > 0, gain.of_weight(G, H, gain.weight(G, H)))
    return gain.kind.quotient(np.square(gain.shrunk(G)), H + gain.parameters.reg_lambda, H > 0)


def _vector_gain(sums: NDArray[np.float64], params: TrainParams) -> NDArray[np.float64]:
    """The value of a side: the sum of -w L1(G) over outputs, w in float32."""
    gain, (G, H) = gain_in_the_clear(params), _by_output(sums)
    worth: NDArray[Any] = -gain.weight(G, H).astype(np.float32) * gain.shrunk(G)
    return _summed(worth)


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums along the last axis, one after the other as XGBoost adds them."""
    summed: NDArray[np.float64] = np.add.accumulate(values, axis=-1)[..., -1]
    return summed


def _by_output(sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """G and H (..., outputs) of sums (..., 2 * outputs)."""
    return sums[..., ::2], sums[..., 1::2]


def gain_in_the_clear(
    params: TrainParams, bounds: WeightBounds | None = None
) -> Gain[Floats, Conditions]:
    """The rule of ``params``, over arrays; ``bounds`` are those of monotone constraints."""
    within = bounds or UNBOUNDED
    parameters: GainParameters[Any] = GainParameters(
        float(np.float32(params.reg_lambda)),
        np.float64(np.float32(params.reg_alpha)),
        float(np.float32(params.max_delta_step)),
        float(np.float32(params.min_child_weight)),
        within.lower,
        within.upper,
    )
    return Gain(IN_THE_CLEAR, GainRule.of(params, bounds=bounds is not None), parameters)


class CategorySet(NamedTuple):
    """A split: the categories of the candidates ``right`` go right, all others of the column left.

    Missing values go left where ``default_left`` says.
    """

    right: NDArray[np.uint32]
    default_left: bool


@dataclass(frozen=True, slots=True, eq=False)
class SetScan:
    """The sets of a column in the order in which XGBoost scans them, ``len(self)`` of them.

    As in ``EnumeratePart`` of ``evaluate_splits.h``, categories are sorted by the weight of a leaf
    with that category alone. Sets are the prefixes of that order, first with missing values on the
    left, then on the right.

    ``candidates`` (n,) are those of its categories, in the order that decides ties; ``order`` sorts
    them by weight. ``left`` int64 (sets, columns): the sums on the left of each set.
    """

    candidates: NDArray[np.int64]
    order: NDArray[np.intp]
    left: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        candidates: NDArray[np.int64],
        left: NDArray[np.int64],
        total: NDArray[np.int64],
        scale: FixedPoint,
        params: TrainParams,
    ) -> SetScan:
        """Scan a node with the sums ``total`` (2,); ``left`` (C, 2) are its candidates' left sums.

        A category's candidate has that category alone on the right.
        """
        alone = total - left[candidates]
        weights = node_weights(scale.to_float(alone), params, UNBOUNDED)
        order = np.argsort(weights, kind="stable")
        steps = min(params.max_cat_threshold, len(candidates)) - 1
        summed = np.cumsum(alone[order], axis=0)
        backward = summed[-1] - summed[::-1][1 : steps + 1]
        return cls(candidates, order, np.concatenate((total - summed[:steps], backward)))

    def __len__(self) -> int:
        return len(self.left)

    def split(self, place: int) -> CategorySet:
        """The set at this place of the scan."""
        steps = len(self) // 2
        forward = place < steps
        count = place + 1 if forward else len(self.candidates) - 1 - (place - steps)
        right = np.sort(self.candidates[self.order[:count]]).astype(np.uint32)
        return CategorySet(right, default_left=forward)


def first_named(
    table: CandidateTable, named: NDArray[np.integer], sets: Sequence[CategorySet]
) -> int | CategorySet:
    """XGBoost's choice among tied candidates ``named`` and ``sets``: that of the first column."""
    columns = table.columns
    first: dict[int, int | CategorySet] = {
        int(columns[candidate]): int(candidate) for candidate in np.sort(named)[::-1]
    }
    first |= {int(columns[split.right[0]]): split for split in sets}
    return first[min(first)]


_BATCH = 256
"""The most nodes of a level that XGBoost takes at once."""


class _Entry(NamedTuple):
    """A scored node; ``number`` counts nodes in order of creation."""

    node: int
    number: int
    gain: float


class Driver:
    """The nodes of one tree that wait for a split, and the number of leaves.

    XGBoost's ``Driver`` (``driver.h``). ``by_levels``: a whole level is split at once, also where
    the largest gain would come first: it is the same tree unless ``max_leaves`` ends it.
    """

    def __init__(self, params: TrainParams, *, by_levels: bool = False) -> None:
        self._params = params
        self._by_gain = params.grow_policy == "lossguide" and not by_levels
        self._waiting: list[_Entry] = []
        self._leaves = 1
        self._numbers = {ROOT: 0}
        self._ended = False

    def push(self, node: int, gain: float) -> None:
        """Queue ``node`` with the gain of its split; drop a node that gains nothing."""
        if gain > np.float32(1e-6):
            self._waiting.append(_Entry(node, self._numbers[node], gain))

    def pop(self) -> list[int]:
        """The nodes to split now: a level, or the one of largest gain; none in a complete tree."""
        if self._ended or not self._waiting:
            return []
        popped = self._most_gain() if self._by_gain else self._level()
        for node in popped:
            for child in children(node):
                self._numbers[child] = len(self._numbers)
        return popped

    def expands_below(self, node: int) -> bool:
        """Whether the children of the popped ``node`` may be split."""
        deep = depth(node) + 1 >= self._params.depth_limit
        return not (deep or self._is_full or self._ended)

    @property
    def _is_full(self) -> bool:
        return 0 < self._params.max_leaves <= self._leaves

    def _most_gain(self) -> list[int]:
        entry = min(self._waiting, key=lambda entry: (-entry.gain, entry.number))
        self._waiting.remove(entry)
        if self._is_full or not is_worthwhile(entry.gain, self._params):
            return []
        self._leaves += 1
        return [entry.node]

    def _level(self) -> list[int]:
        nodes, behind = [], 0
        for entry in sorted(self._waiting):
            if self._is_full or not is_worthwhile(entry.gain, self._params):
                behind += 1
                continue
            self._leaves += 1
            nodes.append(entry.node)
            behind = 0
        self._waiting = []
        # If a batch is full and no other node of its level is worth a split, XGBoost pops nothing
        # next and ends the tree.
        in_batches = self._params.grow_policy == "depthwise"
        self._ended = in_batches and bool(nodes) and len(nodes) % _BATCH == 0 and behind > 0
        return nodes
