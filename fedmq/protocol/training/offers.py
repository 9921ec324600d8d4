"""What is each party's best split of a node worth, and who wins?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, CategorySet, ColumnsInPath, Driver, first_named
from fedmq.errors import MessageError
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import Engine, HiddenSums, Question, SplitOffer, Sums
from fedmq.privacy.plan import Compute, Plan
from fedmq.protocol.training.candidates import NodeCandidates
from fedmq.protocol.training.columns import (
    CandidateCategories,
    CandidateConstraints,
    CandidateSigns,
)
from fedmq.protocol.training.computations import ScoreCandidates, ScoreOwnCandidates
from fedmq.protocol.training.consistency import ConsistencyCheck, ScoreAnswer, ScoreAnswers
from fedmq.protocol.training.level import LevelRequests
from fedmq.protocol.training.node_rows import NodeRows

__all__ = ["AnswerScorer", "OwnCandidates", "Winners"]


class OwnCandidates:
    """The candidates over ``bins`` while the tree of ``builder`` grows.

    ``signs`` int8 and ``constraints`` uint64 (columns,): the monotone constraint of each column,
    and the interaction constraints that hold it.
    ``first_order``: whether they are scored by g alone, as the others' are. ``turns``: so many
    models grow a tree each, and draw the same columns for it.
    """

    def __init__(
        self,
        bins: BinMatrix,
        signs: NDArray[np.int8],
        constraints: NDArray[np.uint64],
        params: TrainParams,
        builder: NodeRows,
        first_order: bool,
        turns: int = 1,
    ) -> None:
        self._bins = bins
        self._signs = signs
        self._columns = ColumnsInPath(constraints)
        self._params = params
        self._builder = builder
        self._first_order = first_order
        self._candidates = NodeCandidates(bins, params, builder.gradients.tree // turns)

    def of_node(self, node: int) -> CandidateTable:
        """Those of a node."""
        return self._candidates.of_node(node)

    def split(self, node: int, best: SplitOffer) -> tuple[CandidateTable, int | CategorySet]:
        """``node`` is split by its ``best``; all of the node's, and which of those that tie."""
        candidates = self.of_node(node)
        split = first_named(candidates, best.candidates, best.sets)
        first = split if isinstance(split, int) else int(split.right[0])
        self._columns.split(node, int(candidates.columns[first]))
        return candidates, split

    def scored(self, nodes: Sequence[int]) -> ScoreOwnCandidates:
        """The computation of the best of them in each of ``nodes``."""
        builder = self._builder
        candidates = [self.of_node(node) for node in nodes]
        return ScoreOwnCandidates(
            self._bins,
            candidates,
            builder.gradients,
            [builder.carrying(node) for node in nodes],
            [builder.totals(node) for node in nodes],
            self._params,
            [
                builder.monotone(node, self._signs[offered.columns])
                for node, offered in zip(nodes, candidates, strict=True)
            ],
            [
                builder.interactions(node, LABEL_HOLDER, self._columns.of(node, offered.columns))
                for node, offered in zip(nodes, candidates, strict=True)
            ],
            self._first_order,
        )


@dataclass(frozen=True, slots=True)
class AnswerScorer:
    """How answers are scored while the tree of ``builder`` grows."""

    builder: NodeRows
    params: TrainParams
    engine: Engine
    owners: Mapping[str, int]
    """The number of each peer among the owners."""
    signs: CandidateSigns
    constraints: CandidateConstraints
    categories: CandidateCategories

    def take_marks(self, peer: str, body: HistogramReply, most_candidates: int) -> None:
        """Note what a reply of ``peer`` says of the columns of its candidates.

        Raises:
            ProtocolError: it says what was not to be said, or does not say what was.
            Inconsistent: it says more than there are candidates.
        """
        self.signs.take(peer, body, most_candidates)
        self.constraints.take(peer, body, most_candidates)
        self.categories.take(peer, body, most_candidates)

    def check_declined(self, peer: str, node: int, smallest_node: int) -> None:
        """Raise Inconsistent unless ``peer`` may decline ``node``, by what it announced.

        Who does not see the rows of a node declines none.
        """
        smallest = 0 if self.engine.traits.hides_rows else smallest_node
        claim = ConsistencyCheck(peer, self.builder.gradients.tree, node)
        claim.check_declined(len(self.builder.carrying(node)), smallest)

    def counted(self, question: Question, peer: str, most_candidates: int) -> Plan[Sequence[int]]:
        """Ask ``peer`` about the nodes of ``question``, of which no sum is shown.

        So many candidates it has answered for in each of them. Raises `Inconsistent` as `scored`.
        """
        claim = ConsistencyCheck(peer, self.builder.gradients.tree, question.nodes[0].node)
        try:
            answers = yield from question.ask(peer)
        except MessageError as error:
            raise claim.unreadable(str(error)) from error
        counts = [answer.candidates for answer in answers if isinstance(answer, HiddenSums)]
        for count in counts:
            claim.check_count(count, most_candidates)
        return counts

    def scored(
        self, question: Question, peer: str, most_candidates: int
    ) -> Plan[Sequence[SplitOffer]]:
        """Ask ``peer`` about the nodes of ``question``; its best candidates in each of them.

        Raises:
            Inconsistent: an answer is unreadable, or cannot be true.
        """
        tree = self.builder.gradients.tree
        try:
            answers = yield from question.ask(peer)
        except MessageError as error:
            first = question.nodes[0].node
            raise ConsistencyCheck(peer, tree, first).unreadable(str(error)) from error
        # What one node tells of another is of candidates in the same order.
        shown_in = question.nodes[0].node
        claims = [ConsistencyCheck(peer, tree, asked.node) for asked in question.nodes]
        scores = [
            self._score(claim, answer, most_candidates, shown_in)
            for claim, answer in zip(claims, answers, strict=True)
            if isinstance(answer, Sums)
        ]
        [scored] = (yield Compute([ScoreAnswers(scores)])) if scores else [[]]
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
        claim.check_count(len(sums.left), most_candidates)
        builder, scale = self.builder, self.builder.gradients.scale
        total, first_order = builder.totals(claim.node), self.engine.first_order
        signs = self.signs.of(claim.peer, shown_in, len(sums.left))
        monotone = builder.monotone(claim.node, signs)
        constraints = self.constraints.of(claim.peer, shown_in, len(sums.left))
        interactions = builder.interactions(claim.node, self.owners[claim.peer], constraints)
        categories = self.categories.of(claim.peer, shown_in, len(sums.left))
        score = ScoreCandidates(
            sums.left, total, scale, self.params, first_order, monotone, interactions, categories
        )
        bounds = builder.bounds[claim.node] if self.engine.traits.exact else None
        return ScoreAnswer(score, bounds)


class Winners:
    """The best offer for each scored node of a tree, and its owner."""

    def __init__(self, params: TrainParams) -> None:
        self._driver = Driver(params)
        self._winners: dict[int, tuple[int, SplitOffer]] = {}

    def add(self, level: LevelRequests) -> None:
        """Choose among the offers for each node of a level that is scored."""
        for node in level.nodes:
            self._winners[node] = _winner(level.offers(node))
            self._driver.push(node, self._winners[node][1].gain)

    def pop(self) -> Sequence[tuple[int, int, SplitOffer]]:
        """Node, owner and offer of what is split next; nothing when the tree has grown."""
        return [(node, *self._winners[node]) for node in self._driver.pop()]

    def best(self, node: int) -> SplitOffer:
        """The offer for ``node``."""
        return self._winners[node][1]

    def expands_below(self, node: int) -> bool:
        """Whether the children of ``node``, which was popped, may be split."""
        return self._driver.expands_below(node)


def _winner(offers: Mapping[int, SplitOffer]) -> tuple[int, SplitOffer]:
    """The owner of the best offer, and the offer; the first owner wins ties."""
    owner = max(offers, key=lambda owner: (offers[owner].gain, -owner))
    return owner, offers[owner]
