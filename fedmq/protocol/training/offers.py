"""What is each party's best split of a node worth?

`NodeRows` holds the active party's rows by node, and makes the tree. The active party scores its
own candidates (`OwnCandidates`) and the sums of others (`AnswerScorer`), which it checks first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, histogram_parts, histograms
from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.model.tree import ACTIVE_PARTY, Tree, TreeArrays
from fedmq.boosting.node_rows import marked, parted
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import (
    ROOT,
    UNBOUNDED,
    UNMARKED,
    CandidateTable,
    CategorySet,
    ColumnMark,
    ColumnsInPath,
    InteractionNode,
    InteractionPath,
    MonotoneNode,
    NodeConstraints,
    SetScan,
    SummedLevel,
    WeightBounds,
    best,
    children,
    first_named,
    first_order_gains,
    leaf_weights,
    node_weights,
    parent,
    plan_level,
    split_gains,
    vector_leaf_weights,
)
from fedmq.computation import Parts, computation
from fedmq.errors import MessageError
from fedmq.privacy.engine import Engine, HiddenSums, Question, SplitOffer, Sums
from fedmq.privacy.plan import Compute, Plan, single
from fedmq.protocol.training.candidates import OwnColumns
from fedmq.protocol.training.claims import CandidateMarks, ConsistencyCheck, HiddenCandidates
from fedmq.protocol.training.model import Residuals

__all__ = [
    "AnswerScorer",
    "NodeRows",
    "OwnCandidates",
    "ScoreAnswer",
    "ScoreCandidates",
    "first_of_ties",
    "score_answers",
    "score_own_candidates",
]


@dataclass(frozen=True, slots=True)
class _Split:
    owner: int
    record: int
    gain: float
    cover: float


class NodeRows:
    """The instance space of each node (rows, int32, ascending), and the resulting tree.

    Nodes have heap numbers, as in messages. ``constrained``: some column of some party is under a
    monotone constraint. ``interacting``: there are interaction constraints. ``gain_before``: what
    the root of the tree before gained, 0 without one.
    """

    def __init__(
        self,
        gradients: Gradients,
        params: TrainParams,
        residuals: Residuals | None = None,
        *,
        constrained: bool = False,
        interacting: bool = False,
        gain_before: float = 0.0,
    ) -> None:
        self.gradients = gradients
        self.level: tuple[int, ...] = (ROOT,)
        """The nodes of the current level that may still be split."""
        self._params = params
        self._residuals = residuals
        self._gain_before = gain_before
        self.rows = {ROOT: np.arange(len(gradients.pairs), dtype=np.int32)}
        """All rows by node: training, left out by subsampling, and evaluation rows."""
        self.bounds = {ROOT: gradients.bounds(self.rows[ROOT])}
        """The bounds of sums over some of a node's rows, by node: see `Gradients.bounds`."""
        self._halves: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
        """The rows of both children, of nodes whose directions are known."""
        self._constrained = constrained
        self._weight_bounds = {ROOT: UNBOUNDED}
        self._paths = {ROOT: InteractionPath()} if interacting else {}
        self._splits: dict[int, _Split] = {}
        self._next: list[int] = []

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows in ``node`` that carry a gradient."""
        return marked(self.rows[node], self.gradients.carried)

    def totals(self, node: int) -> NDArray[np.int64]:
        """The sums G and H of ``node``, in fixed point: int64 (2 * outputs,)."""
        total: NDArray[np.int64] = self.bounds[node].sum(axis=0)
        return total

    def left_totals(self, node: int, left: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The sums of the rows of ``node`` that go left; ``left`` is over ``rows[node]``."""
        below = children(node)
        # Sums are integers: those of the smaller child give the other's by subtraction.
        counted = 0 if 2 * np.count_nonzero(left) <= len(left) else 1
        self._halves[node] = parted(self.rows[node], left)
        bounds = self.gradients.bounds(self._halves[node][counted])
        self.bounds[below[counted]] = bounds
        self.bounds[below[1 - counted]] = self.bounds[node] - bounds
        return self.totals(below[0])

    def gain(self, node: int, left: NDArray[np.bool_], sign: int = 0) -> float:
        """The gain of a split that sends the rows of ``left``, over ``rows[node]``, left.

        ``sign``: the monotone constraint on its column. -inf if it does not keep that.
        """
        total = self.totals(node)
        of_left = self.left_totals(node, left)
        sums = self.gradients.scale.to_float(np.stack([of_left, total - of_left, total]))
        monotone = self.monotone(node, np.array([sign], np.int8))
        return float(split_gains(sums[:1], sums[1:2], sums[2], self._params, monotone)[0])

    def foreseen(self, node: int) -> float:
        """A gain that ``node``'s may be near: that of the split above it, or of the root before."""
        return self._gain_before if node == ROOT else self._splits[parent(node)].gain

    def monotone(self, node: int, signs: NDArray[np.int8]) -> MonotoneNode | None:
        """The monotone bounds of ``node`` for candidates of ``signs``; None without constraints."""
        if not self._constrained:
            return None
        return MonotoneNode(signs, self._weight_bounds[node], self._above(node))

    def interactions(
        self, node: int, owner: int, constraints: NDArray[np.uint64]
    ) -> InteractionNode | None:
        """The interaction bounds of ``node`` for an ``owner``'s candidates; None without any.

        ``constraints`` (candidates,): the constraints of the candidates' columns.
        """
        path = self._paths.get(node)
        return None if path is None else InteractionNode(path, owner, constraints)

    def allows(self, node: int, owner: int, column: ColumnMark) -> bool:
        """Whether a column of ``owner`` may split ``node`` by interaction constraints."""
        path = self._paths.get(node)
        return path is None or bool(path.allows(owner, np.array([column.constraints]))[0])

    def constraints(self, nodes: Sequence[int], owner: int) -> NodeConstraints:
        """What constraints say of ``nodes`` to the candidates of ``owner``."""
        within = above = paths = None
        if self._constrained:
            bounds = [(self._weight_bounds[node], self._above(node)) for node in nodes]
            within, above = (
                np.array([(bound.lower, bound.upper) for bound in of_nodes], np.float32)
                for of_nodes in zip(*bounds, strict=True)
            )
        if self._paths:
            held = [self._paths[node].shared_with(owner) for node in nodes]
            paths = np.array(held, np.uint64)
        return NodeConstraints(within, above, paths)

    def split(
        self,
        node: int,
        owner: int,
        record: int,
        gain: float,
        left: NDArray[np.bool_],
        column: ColumnMark = UNMARKED,
        *,
        expands: bool = True,
    ) -> None:
        """Split ``node`` by a column of an ``owner``; ``left`` is over ``rows[node]``.

        ``expands``: whether the children may be split as well.
        """
        below = children(node)
        self._splits[node] = _Split(owner, record, gain, cover=_cover(self._sums(node)))
        if below[0] not in self.bounds:
            self.left_totals(node, left)
        del self.rows[node]
        self.rows |= zip(below, self._halves.pop(node), strict=True)
        bounds = self._weight_bounds[node]
        if column.sign:
            weights = (node_weights(self._sums(child), self._params, bounds) for child in below)
            self._weight_bounds |= zip(below, bounds.below(column.sign, *weights), strict=True)
        else:
            self._weight_bounds |= dict.fromkeys(below, bounds)
        if node in self._paths:
            path = self._paths[node].below(owner, column.constraints)
            self._paths |= dict.fromkeys(below, path)
        if expands:
            self._next.extend(below)

    def next_level(self) -> bool:
        """Go down one level; False if no node is left to ask about."""
        self.level, self._next = tuple(sorted(self._next)), []
        return bool(self.level)

    def finish(self) -> tuple[Tree, NDArray[np.float32]]:
        """The tree, and its increment of the margin of each row: float32 (rows,).

        If leaves are vectors: float32 (rows, outputs).
        """
        outputs = self.gradients.pairs.shape[1] // 2
        tree, place = TreeArrays(outputs), {ROOT: 0}
        # Level by level from left to right, whichever owner's split came in first.
        for node, split in sorted(self._splits.items()):
            places = tree.split(
                place[node], split.owner, split.record, gain=split.gain, cover=split.cover
            )
            place |= zip(children(node), places, strict=True)
        shape = (len(self.gradients.pairs), *((outputs,) if outputs > 1 else ()))
        increments = np.zeros(shape, dtype=np.float32)
        for node, rows in self.rows.items():
            sums = self._sums(node)
            weight = self._leaf_weight(node, sums)
            tree.leaf(place[node], weight, cover=_cover(sums))
            increments[rows] = weight
        return tree.finished(), increments

    def _leaf_weight(
        self, node: int, sums: NDArray[np.float64]
    ) -> np.float32 | NDArray[np.float32]:
        if self._residuals is not None and len(carrying := self.carrying(node)):
            return self._residuals.leaf_weight(carrying, self._params.leaf_eta)
        if len(sums) > 2:
            return vector_leaf_weights(sums, self._params, root=node == ROOT)
        return np.float32(leaf_weights(sums, self._params, self._above(node)))

    def check(self) -> None:
        """Raise AssertionError unless leaves and open nodes partition the rows."""
        together = np.sort(np.concatenate(list(self.rows.values())))
        assert np.array_equal(together, np.arange(len(self.gradients.pairs)))

    def _above(self, node: int) -> WeightBounds:
        """The bounds of a node's parent, within which its own weight lies."""
        return UNBOUNDED if node == ROOT else self._weight_bounds[parent(node)]

    def _sums(self, node: int) -> NDArray[np.float64]:
        """G and H of ``node`` for its cover and weight: exact, not rounded."""
        totals, exact = self.totals(node), self.gradients.unrounded_totals(self.rows[node])
        return self.gradients.scale.to_float(totals) if exact is None else exact


def _cover(sums: NDArray[np.float64]) -> float:
    """The sum of a node's hessians over all outputs."""
    return float(sums[1::2].sum())


_MOST_KEPT_BYTES = 2**26  # of histograms; more take longer to move than rows to sum


class OwnCandidates:
    """The candidates of ``columns`` while the tree of ``builder`` grows.

    ``signs`` int8 and ``constraints`` uint64 (columns,): the monotone constraint of each column,
    and the interaction constraints that hold it.
    ``first_order``: whether g alone scores them, as it scores the others'. ``folds``: the number of
    models that grow a tree each, with the same columns drawn.
    """

    def __init__(
        self,
        columns: OwnColumns,
        signs: NDArray[np.int8],
        constraints: NDArray[np.uint64],
        params: TrainParams,
        builder: NodeRows,
        first_order: bool,
        folds: int = 1,
    ) -> None:
        self._bins = columns.bins
        self._signs = signs
        self._columns = ColumnsInPath(constraints)
        self._params = params
        self._builder = builder
        self._first_order = first_order
        self._histograms: dict[int, NDArray[np.int64]] = {}
        """Those of nodes whose children may be asked about."""
        self._candidates = columns.of_tree(builder.gradients.tree // folds)

    def of_node(self, node: int) -> CandidateTable:
        """The candidates of a node."""
        return self._candidates.of_node(node)

    def split(self, node: int, best: SplitOffer) -> tuple[CandidateTable, int | CategorySet]:
        """Split ``node`` by its ``best``: the node's candidates, and the chosen one of a tie."""
        candidates = self.of_node(node)
        split = first_named(candidates, best.candidates, best.sets)
        first = split if isinstance(split, int) else int(split.right[0])
        self._columns.split(node, int(candidates.columns[first]))
        return candidates, split

    def scored(self, nodes: Sequence[int]) -> Plan[Sequence[SplitOffer]]:
        """Find the best candidates in each of ``nodes``."""
        builder = self._builder
        candidates = [self.of_node(node) for node in nodes]
        columns = [offered.columns for offered in candidates]
        constraints = map(self._columns.of, nodes, columns)
        bounded = [
            builder.interactions(node, ACTIVE_PARTY, held)
            for node, held in zip(nodes, constraints, strict=True)
        ]
        above = {
            number: sums
            for number in map(parent, nodes)
            if (sums := self._histograms.get(number)) is not None
        }
        scoring = score_own_candidates.bind(
            self._bins,
            candidates,
            builder.gradients,
            {node: builder.carrying(node) for node in nodes},
            [builder.totals(node) for node in nodes],
            self._params,
            [
                builder.monotone(node, self._signs[held])
                for node, held in zip(nodes, columns, strict=True)
            ],
            bounded,
            above,
            self._first_order,
        )
        offers, sums = yield from single(scoring)
        self._keep(nodes, sums)
        scored: Sequence[SplitOffer] = offers
        return scored

    def _keep(self, nodes: Sequence[int], sums: NDArray[np.int64]) -> None:
        """Keep the histograms of ``nodes`` for their children, in place of their parents'."""
        for node in nodes:
            self._histograms.pop(parent(node), None)
        held = sum(histogram.nbytes for histogram in self._histograms.values())
        if held + sums.nbytes <= _MOST_KEPT_BYTES:
            self._histograms |= zip(nodes, sums, strict=True)


def _own_in_parts(
    parts: int,
    bins: BinMatrix,
    candidates: Sequence[CandidateTable],
    gradients: Gradients,
    nodes: Mapping[int, NDArray[np.int32]],
    totals: Sequence[NDArray[np.int64]],
    params: TrainParams,
    monotone: Sequence[MonotoneNode | None],
    interactions: Sequence[InteractionNode | None],
    above: Mapping[int, NDArray[np.int64]],
    first_order: bool = False,
) -> Parts | None:
    """`score_own_candidates` in parts of the rows."""
    level = _level(nodes, above)
    summed = [nodes[node] for node in level.summed]
    made = histogram_parts(parts, bins, gradients.pairs, summed)
    scoring = (gradients.scale, totals, params, monotone, interactions, first_order)
    return made and Parts(
        made.computations,
        lambda sums: _scored(_of_nodes(nodes, level, made.join(sums), above), candidates, *scoring),
    )


@computation("ScoreOwnCandidates", parted=_own_in_parts)
def score_own_candidates(
    bins: BinMatrix,
    candidates: Sequence[CandidateTable],
    gradients: Gradients,
    nodes: Mapping[int, NDArray[np.int32]],
    totals: Sequence[NDArray[np.int64]],
    params: TrainParams,
    monotone: Sequence[MonotoneNode | None],
    interactions: Sequence[InteractionNode | None],
    above: Mapping[int, NDArray[np.int64]],
    first_order: bool = False,
) -> tuple[list[SplitOffer], NDArray[np.int64]]:
    """The active party's own best of the ``candidates`` of ``nodes``, given by their rows.

    Beside them the histograms, int64 (nodes, cells, columns). ``above``: those of known parents,
    by which the larger of two siblings is a difference.
    """
    level = _level(nodes, above)
    summed = histograms(bins, gradients.pairs, [nodes[node] for node in level.summed])
    scoring = (gradients.scale, totals, params, monotone, interactions, first_order)
    return _scored(_of_nodes(nodes, level, summed, above), candidates, *scoring)


def _level(
    nodes: Mapping[int, NDArray[np.int32]], above: Mapping[int, NDArray[np.int64]]
) -> SummedLevel:
    return plan_level({node: len(rows) for node, rows in nodes.items()}, above)


def _of_nodes(
    nodes: Mapping[int, NDArray[np.int32]],
    level: SummedLevel,
    summed: NDArray[np.int64],
    above: Mapping[int, NDArray[np.int64]],
) -> NDArray[np.int64]:
    """The histograms of all ``nodes``, by the ``summed`` ones of the smaller siblings."""
    of_node = dict(zip(level.summed, summed, strict=True))
    for node, smaller in level.subtracted:
        of_node[node] = above[parent(node)] - of_node[smaller]
    return np.stack([of_node[node] for node in nodes])


def _scored(
    sums: NDArray[np.int64],
    candidates: Sequence[CandidateTable],
    scale: FixedPoint,
    totals: Sequence[NDArray[np.int64]],
    params: TrainParams,
    monotone: Sequence[MonotoneNode | None],
    interactions: Sequence[InteractionNode | None],
    first_order: bool,
) -> tuple[list[SplitOffer], NDArray[np.int64]]:
    """The best of the ``candidates`` of nodes by their histograms ``sums``, and these."""
    offers = [
        ScoreCandidates(
            held.left_sums(histogram),
            total,
            scale,
            params,
            first_order,
            of_monotone,
            of_interactions,
            held.categories,
        ).run()
        for held, total, histogram, of_monotone, of_interactions in zip(
            candidates, totals, sums, monotone, interactions, strict=True
        )
    ]
    return offers, sums


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """Scores answers while the tree of ``builder`` grows."""

    builder: NodeRows
    params: TrainParams
    engine: Engine
    owners: Mapping[str, int]
    """The number of each peer among the owners."""
    marks: CandidateMarks
    first_order: bool

    def check_declined(self, peer: str, node: int, smallest_node: int) -> None:
        """Raise Inconsistent unless ``peer`` may decline ``node`` by its announced minimum.

        A peer from which rows are hidden may decline no node.
        """
        smallest = 0 if self.engine.traits.hides_rows else smallest_node
        claim = ConsistencyCheck(peer, self.builder.gradients.tree, node)
        claim.check_declined(len(self.builder.carrying(node)), smallest)

    def counted(
        self, question: Question, peer: str, most_candidates: int
    ) -> Plan[Sequence[HiddenCandidates]]:
        """Ask ``peer`` about the nodes of ``question``, whose sums stay hidden.

        Returns the answered candidates by node. Raises `Inconsistent` as `scored`.
        """
        claim = ConsistencyCheck(peer, self.builder.gradients.tree, question.nodes[0].node)
        try:
            answers = yield from question.ask(peer)
        except MessageError as error:
            raise claim.unreadable(str(error)) from error
        counts = [answer.candidates for answer in answers if isinstance(answer, HiddenSums)]
        for count in counts:
            claim.check_count(count, most_candidates)
        shown_in, of_sets = question.nodes[0].node, self.marks.categories
        return [
            HiddenCandidates(count, of_sets.in_order(peer, shown_in, count)) for count in counts
        ]

    def scored(
        self, question: Question, peer: str, most_candidates: int
    ) -> Plan[Sequence[SplitOffer]]:
        """Ask ``peer`` about the nodes of ``question``; returns its best candidates in each.

        Raises:
            Inconsistent: an answer is unreadable, or cannot be true.
        """
        tree = self.builder.gradients.tree
        try:
            answers = yield from question.ask(peer)
        except MessageError as error:
            first = question.nodes[0].node
            raise ConsistencyCheck(peer, tree, first).unreadable(str(error)) from error
        # Nodes derive sums from one another only for candidates in the same order.
        shown_in = question.nodes[0].node
        claims = [ConsistencyCheck(peer, tree, asked.node) for asked in question.nodes]
        scores = [
            self._score(claim, answer, most_candidates, shown_in)
            for claim, answer in zip(claims, answers, strict=True)
            if isinstance(answer, Sums)
        ]
        [scored] = (yield Compute([score_answers.bind(scores)])) if scores else [[]]
        bests = iter(scored)
        offers: list[SplitOffer] = []
        for claim, answer in zip(claims, answers, strict=True):
            assert not isinstance(answer, HiddenSums)
            if isinstance(answer, SplitOffer):
                named = answer.candidates
                claim.check_count(int(named.max()) + 1 if len(named) else 0, most_candidates)
                offers.append(answer)
            elif isinstance(best := next(bests), SplitOffer):
                offers.append(best)
            else:
                raise claim.out_of_bounds(best, len(answer.left))
        return offers

    def _score(
        self, claim: ConsistencyCheck, sums: Sums, most_candidates: int, shown_in: int
    ) -> ScoreAnswer:
        shown = len(sums.left)
        claim.check_count(shown, most_candidates)
        signs = self.marks.signs.of(claim.peer, shown_in, shown)
        constraints = self.marks.constraints.of(claim.peer, shown_in, shown)
        categories = self.marks.categories.of(claim.peer, shown_in, shown)
        builder, node = self.builder, claim.node
        total, scale = builder.totals(node), builder.gradients.scale
        monotone = builder.monotone(node, signs)
        interactions = builder.interactions(node, self.owners[claim.peer], constraints)
        score = ScoreCandidates(
            sums.left,
            total,
            scale,
            self.params,
            self.first_order,
            monotone,
            interactions,
            categories,
        )
        bounds = builder.bounds[claim.node] if self.engine.traits.exact else None
        return ScoreAnswer(score, bounds)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreAnswer:
    """The best of a party's candidates, or the number of candidates outside of each bound.

    ``bounds`` int64 (2, columns) as in `Gradients.bounds`; None if sums are not exact. A tie is
    then named once: see :func:`first_of_ties`.
    """

    score: ScoreCandidates
    bounds: NDArray[np.int64] | None

    def best(self) -> SplitOffer | dict[str, int]:
        left = self.score.left
        if self.bounds is None:
            return self.score.run()
        least, most = self.bounds
        sums = np.concatenate((left, *(scan.left for scan in self.score.scans())))
        if (sums < least).any() or (sums > most).any():
            counts = np.stack((sums < least, sums > most)).sum(axis=1)
            names = (("g below", "h below"), ("g above", "h above"))
            return {
                names[side][column]: int(counts[side, column::2].sum())
                for side, column in np.argwhere(counts.reshape(2, -1, 2).sum(axis=1)).tolist()
            }
        best = self.score.run()
        named = first_of_ties(best.candidates, left, self.score.total)
        of_sets = [self.score.left_of(split)[np.newaxis] for split in best.sets]
        known = np.concatenate((left[named], *of_sets))
        return self.score.offer(best.gain, named, best.sets, known)


@computation("ScoreAnswer", brief=True)
def score_answers(answers: Sequence[ScoreAnswer]) -> list[SplitOffer | dict[str, int]]:
    """The score of each of ``answers``, together: handing them over singly would take longer."""
    return [answer.best() for answer in answers]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCandidates:
    """The best of a party's candidates by XGBoost's gain, from their left sums (candidates, 2).

    ``first_order``: score by g alone, which brings every party's candidates to the same scale.
    ``monotone`` and ``interactions``: the bounds of the node by these constraints; None without
    any. ``categories``: the candidates of each column that is split by sets; they are no splits by
    themselves.
    """

    label: ClassVar[str] = "ScoreCandidates"
    left: NDArray[np.int64]
    total: NDArray[np.int64]
    scale: FixedPoint
    params: TrainParams
    first_order: bool = False
    monotone: MonotoneNode | None = None
    interactions: InteractionNode | None = None
    categories: Sequence[NDArray[np.int64]] = ()

    def run(self) -> SplitOffer:
        scans = self.scans()
        gain, tied = best(self._gains(scans))
        sets: list[CategorySet] = []
        start = len(self.left)
        for scan in scans:
            of_scan = tied[(tied >= start) & (tied < start + len(scan))]
            sets += [scan.split(int(place) - start) for place in of_scan[:1]]
            start += len(scan)
        return self.offer(float(gain), tied[tied < len(self.left)].astype(np.uint32), sets)

    def scans(self) -> Sequence[SetScan]:
        """The sets of each column that is split by sets."""
        return [
            SetScan.of(candidates, self.left, self.total, self.scale, self.params)
            for candidates in self.categories
        ]

    def offer(
        self,
        gain: float,
        named: NDArray[np.uint32],
        sets: Sequence[CategorySet] = (),
        left: NDArray[np.int64] | None = None,
    ) -> SplitOffer:
        """The offer of the candidates ``named`` and of ``sets``, with their marks."""
        columns = np.append(named, np.array([split.right[0] for split in sets], np.uint32))
        signs = None if self.monotone is None else self.monotone.signs[columns]
        interactions = self.interactions
        constraints = None if interactions is None else interactions.constraints[columns]
        return SplitOffer(gain, named, left, signs, constraints, tuple(sets))

    def left_of(self, split: CategorySet) -> NDArray[np.int64]:
        """The left sums of a set: int64 (columns,)."""
        column = next(held for held in self.categories if split.right[0] in held)
        if split.default_left:
            return np.asarray(self.total - self._alone(split.right))
        return self._alone(np.setdiff1d(column, split.right))

    def _alone(self, candidates: NDArray[np.integer]) -> NDArray[np.int64]:
        """The total sums of these categories."""
        return np.asarray((self.total - self.left[candidates]).sum(axis=0))

    def _gains(self, scans: Sequence[SetScan]) -> NDArray[np.float32]:
        """The gains of all candidates, then of each column's sets; -inf for no split."""
        monotone, interactions = self.monotone, self.interactions
        sums = np.concatenate((self.left, *(scan.left for scan in scans)))
        left, right = self.scale.to_float(sums), self.scale.to_float(self.total - sums)
        columns = np.arange(len(sums))  # a candidate of the same column
        columns[len(self.left) :] = np.repeat(
            [scan.candidates[0] for scan in scans], [len(scan) for scan in scans]
        )
        if self.first_order:
            gains = first_order_gains(left, right, self.params)
        else:
            total = self.scale.to_float(self.total)
            if monotone is not None:
                monotone = replace(monotone, signs=monotone.signs[columns])
            gains = split_gains(left, right, total, self.params, monotone)
        if interactions is not None:
            gains = np.where(interactions.allows()[columns], gains, np.float32(-np.inf))
        for candidates in self.categories:
            gains[candidates] = -np.inf
        return gains


def first_of_ties(
    tied: NDArray[np.uint32], left: NDArray[np.int64], total: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The lowest number of each group of ``tied`` candidates that part the rows alike.

    Alike: the left sums of both are equal, or the left sums of one are the right sums of the other.
    ``left`` int64 (candidates, columns), ``total`` (columns,); the result is ascending.
    """
    if len(tied) < 2:
        return tied
    sides = np.stack((left[tied], total - left[tied]), axis=1)
    # The side that is less in the first differing column comes first.
    differ = np.argmax(sides[:, 0] != sides[:, 1], axis=1)[:, None, None]
    deciding = np.take_along_axis(sides, differ, axis=2)[..., 0]
    swapped = deciding[:, 0] > deciding[:, 1]
    sides[swapped] = sides[swapped, ::-1]
    _, first = np.unique(sides.reshape(len(tied), -1), axis=0, return_index=True)
    return np.sort(tied[first])
