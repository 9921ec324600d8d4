"""A tree that grows, as the active party asks for it (SecureBoost, Algorithm 2).

Gradients are broadcast; per level, its nodes are summed by every party and scored; the winner of
each node is split by its owner; the others learn who goes left. Where sums are hidden, winners are
found by contests. With decoys nobody who counts messages learns whose columns split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import UNMARKED, ColumnMark
from fedmq.errors import ConfigError, ProtocolError
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload
from fedmq.privacy.engine import (
    ActiveHalf,
    AskedNode,
    BroadcastPiece,
    Contest,
    Engine,
    Question,
    SplitOffer,
)
from fedmq.privacy.plan import Exchange, Handed, HandOn, Plan, Reply, Values, single
from fedmq.protocol.machine import Machine, Part, PlanState, on_message
from fedmq.protocol.records import ActiveTree
from fedmq.protocol.training.circuits import Circuits, HandedOn
from fedmq.protocol.training.columns import (
    CandidateCategories,
    CandidateConstraints,
    CandidateSigns,
)
from fedmq.protocol.training.computations import went_left
from fedmq.protocol.training.consistency import ConsistencyCheck, RecordNumbers
from fedmq.protocol.training.folds import FoldModels
from fedmq.protocol.training.level import LevelContests, LevelRequests, decision
from fedmq.protocol.training.model import ModelBuilder
from fedmq.protocol.training.node_rows import NodeRows
from fedmq.protocol.training.offers import AnswerScorer, OwnCandidates, Winners
from fedmq.protocol.training.states import (
    BROADCAST,
    DIRECTIONS,
    LEVEL_SCORED,
    NEXT_LEVEL,
    NEXT_TREE,
    OFFER,
    OWN_OFFERS,
    QUESTION,
    WINNERS,
)
from fedmq.protocol.training.terms import Acceptances, TrainingTerms

__all__ = ["ActiveGrowth", "Contests", "DecoyGrowth", "check_decoys"]


class ActiveGrowth(Part):
    """The next tree of ``model``, from its ``gradients`` to its last split.

    ``engine`` is the active half of the engine. ``ended`` takes the finished tree, and the peers
    that have a part of it.
    """

    def __init__(
        self,
        machine: Machine,
        terms: TrainingTerms,
        engine: ActiveHalf,
        acceptances: Acceptances,
        model: ModelBuilder | FoldModels,
        bins: BinMatrix,
        gradients: Gradients,
        ended: Callable[[ActiveTree, Sequence[str]], None],
    ) -> None:
        super().__init__(machine)
        params, constraints = terms.params, terms.constraints
        signed, interactions = acceptances.signed, len(params.interaction_constraints)
        self._terms = terms
        self._engine = engine
        self._accepted = acceptances.of
        self._model = model
        self._ended = ended
        self.tree = model.next_tree
        self._asked = terms.peers if self.tree >= terms.trees_alone else ()
        """The peers that take part in this tree."""
        self._records = RecordNumbers(model.next_records(terms.parties))
        self._builder = NodeRows(
            gradients,
            params,
            model.residuals(),
            constrained=constraints.hold(signed),
            interacting=interactions > 0,
        )
        self._answers = AnswerScorer(
            self._builder,
            params,
            terms.engine,
            terms.owners,
            CandidateSigns(signed),
            CandidateConstraints(interactions),
            CandidateCategories(acceptances.by_sets if terms.category_sets else ()),
        )
        self._candidates = OwnCandidates(
            bins,
            constraints.signs,
            constraints.interactions,
            params,
            self._builder,
            terms.engine.first_order,
            terms.table.turns,
        )
        self._choice = Winners(params)
        self._to_broadcast = 0
        self._level = LevelRequests(self.tree, (), 0)
        self.contests: Contests | None = None
        """Where sums are hidden: what finds the winners."""
        if terms.hides_sums:
            self.contests = Contests(machine, engine, terms.owners, self._with_offers)

    def begin(self) -> None:
        """Broadcast the gradients, and ask about the root."""
        plans = self._engine.broadcast(self._builder.gradients) if self._asked else ()
        self._to_broadcast = len(plans)
        for peer in self._asked:
            self._send(peer, training.TreeStarted(tree=self.tree, pieces=len(plans)))
        for number, plan in enumerate(plans):
            self._run(BROADCAST, plan, partial(self._broadcast, number))
        if plans and self.tree + 1 < self._terms.trees:
            for preparation in self._engine.prepare():
                self._run(NEXT_TREE, preparation, lambda _: None)
        self._ask_level()

    def check(self) -> None:
        """Raise AssertionError unless leaves and open nodes partition the rows."""
        self._builder.check()

    def _broadcast(self, number: int, piece: BroadcastPiece) -> None:
        self._to_broadcast -= 1
        body = training.GradientBroadcast(
            tree=self.tree,
            piece=number,
            rows=Array.of(piece.rows),
            payload=pack_payload(piece.values),
        )
        for peer in self._asked:
            self._send(peer, body)

    # A level: every party's candidates are summed and scored.

    def _ask_level(self) -> None:
        nodes = self._builder.level
        self._level = LevelRequests(self.tree, nodes, 1 + len(self._asked))
        if self.contests is not None:
            self.contests.begin(self._level, self._asked, self._builder, self._terms.params)
        if self._asked:
            level = [AskedNode(self.tree, node, self._builder.carrying(node)) for node in nodes]
            for question in self._engine.ask_level(level):
                self._ask(question)
        # Behind the questions, whose answers take longer.
        computation = self._candidates.scored(nodes)
        self._run(OWN_OFFERS, single(computation), partial(self._with_offers, nodes, LABEL_HOLDER))

    def _ask(self, question: Question) -> None:
        nodes = [asked.node for asked in question.nodes]
        for owner, peer in enumerate(self._asked, start=1):
            limit = self._accepted[peer].candidates
            about = ConsistencyCheck(peer, self.tree, nodes[0])
            plan: Plan[object] = self._answers.scored(question, peer, limit)
            then = partial(self._with_offers, nodes, owner)
            if self.contests is not None:
                plan = self._answers.counted(question, peer, limit)
                then = partial(self.contests.answered, peer, nodes)
            self._run(OFFER, plan, then, partial(self._on_exchange, peer, nodes[0]), about)
        for node, parts in question.parts().items():
            for number, part in enumerate(parts):
                self._run(QUESTION, part, partial(self._with_part, node, number))

    def _on_exchange(self, peer: str, node: int, step: Exchange | Reply, run: PlanState) -> None:
        assert isinstance(step, Exchange)
        limit = self._accepted[peer].candidates
        rows = {asked: len(self._builder.carrying(asked)) for asked in step.later or (node,)}
        largest = {asked: self._engine.largest_reply(limit, held) for asked, held in rows.items()}
        self._level.ask(peer, largest, step, run)
        self._at_end(self._send_requests)

    def _with_part(self, node: int, number: int, pieces: Sequence[Values]) -> None:
        self._level.add_part(node, number, pieces)
        self._at_end(self._send_requests)

    def _send_requests(self) -> None:
        """The exchanges that came up together travel as one request per peer and round."""
        for peer, body in self._level.requests():
            self._send(peer, body)

    @on_message(training.HistogramReply)
    def _on_reply(self, peer: str, body: training.HistogramReply) -> None:
        self._check_broadcast(body.node)
        self._answers.take_marks(peer, body, self._accepted[peer].candidates)
        if (complete := self._level.reply(peer, body)) is not None:
            self._resume(*complete)

    @on_message(training.NodeDeclined)
    def _on_declined(self, peer: str, body: training.NodeDeclined) -> None:
        self._check_broadcast(body.node)
        self._level.decline(peer, self._terms.owners[peer], body)
        self._answers.check_declined(peer, body.node, self._accepted[peer].smallest_node)
        self._split_when_scored()

    def _check_broadcast(self, node: int) -> None:
        if self._to_broadcast:
            raise ProtocolError(f"an answer about node {node} before all gradients were sent")

    def _with_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[SplitOffer]) -> None:
        self._level.add_offers(nodes, owner, offers)
        if owner == LABEL_HOLDER and self.contests is not None:
            self.contests.contest()
        self._split_when_scored()

    # Splits: the owner of the best offer for a node is asked who goes left.

    def _split_when_scored(self) -> None:
        if self._level.is_scored:
            self._move(LEVEL_SCORED)
            self._choice.add(self._level)
            self._split_next()

    def _split_next(self) -> None:
        """Split what the driver has next, until somebody has to be asked."""
        while offers := self._choice.pop():
            for node, owner, best in offers:
                if owner == LABEL_HOLDER:
                    self._split_own(node, best)
                else:
                    self._ask_split(node, self._terms.parties[owner], best)
            if not self._level.is_split or self._goes_down():
                return
        self._end()

    def _ask_split(self, node: int, peer: str, best: SplitOffer) -> None:
        self._level.await_split(node, peer, best)
        reading = self._engine.read_directions(peer, self.tree, node, self._builder.rows(node))
        then, ask = partial(self._with_directions, node), partial(self._ask_directions, node)
        self._run(DIRECTIONS, reading, then, ask)

    def _ask_directions(self, node: int, step: Exchange | Reply, run: PlanState) -> None:
        assert isinstance(step, Exchange)
        self._level.ask_directions(node, step.pieces, run)
        for peer, body in self._level.decisions():
            if isinstance(body, training.SplitDecision):
                self._records.expect(peer, body.node)
            self._send(peer, body)

    def _split_own(self, node: int, best: SplitOffer) -> None:
        candidates, split = self._candidates.split(node, best)
        record = self._model.record(candidates, split)
        rows = self._builder.rows(node)
        left = went_left(self._model.records, record, self._terms.table.values, rows)
        self._split(node, LABEL_HOLDER, record, left, best.mark_of(split), best.gain)

    @on_message(training.SplitOutcome)
    def _on_outcome(self, peer: str, body: training.SplitOutcome) -> None:
        self._level.check_split(peer, body)
        rows = self._terms.table.label if self._terms.hides_rows else self._builder.rows(body.node)
        self._level.check_directions(body, len(rows))
        self._records.check(ConsistencyCheck(peer, self.tree, body.node), body.record)
        self._resume(self._level.take_outcome(body), body.left.numpy())

    def _with_directions(self, node: int, left: NDArray[np.bool_]) -> None:
        if self._terms.hides_rows:
            left = left[self._builder.rows(node)]
        best = self._choice.best(node)
        peer, record = self._level.end_split(node)
        column, gain = UNMARKED, best.gain
        if best.left is not None:
            sums = self._builder.left_totals(node, left)
            column = ConsistencyCheck(peer, self.tree, node).mark(sums, best)
        if self.contests is not None:
            gain = self.contests.gain(peer, node, left)
        self._split(node, self._terms.owners[peer], record, left, column, gain)
        self._go_on_when_split()

    def _split(
        self,
        node: int,
        owner: int,
        record: int,
        left: NDArray[np.bool_],
        column: ColumnMark,
        gain: float,
    ) -> None:
        expands = self._choice.expands_below(node)
        self._builder.split(node, owner, record, gain, left, column, expands=expands)
        if not expands or self._terms.hides_rows:
            return  # at the last level nobody but the owner learns the partition
        assignment = training.NodeAssignment(tree=self.tree, node=node, left=Bitmap.of(left))
        self._assign(owner, assignment)

    def _assign(self, owner: int, assignment: training.NodeAssignment) -> None:
        for peer in self._asked:
            if peer != self._terms.parties[owner]:
                self._send(peer, assignment)

    def _go_on_when_split(self) -> None:
        if self._level.is_split and not self._goes_down():
            self._split_next()

    def _goes_down(self) -> bool:
        """Ask about the children of what was split; false where none may be split."""
        if not self._builder.next_level():
            return False
        self._move(NEXT_LEVEL)
        self._ask_level()
        return True

    def _end(self) -> None:
        self._ended(self._model.add(*self._builder.finish()), self._asked)


class Contests(Part):
    """Where sums are hidden: the nodes of a level are contested with each peer.

    ``add_offers`` takes what is known of an owner's best candidates in some nodes.
    """

    def __init__(
        self,
        machine: Machine,
        engine: ActiveHalf,
        owners: Mapping[str, int],
        add_offers: Callable[[Sequence[int], int, Sequence[SplitOffer]], None],
    ) -> None:
        super().__init__(machine)
        self._engine = engine
        self._owners = owners
        self._add_offers = add_offers
        self._level: LevelContests
        self._circuits = Circuits(self._send, self._resume, opens=True)
        self._handed = HandedOn(self._resume)

    def begin(
        self, level: LevelRequests, peers: Sequence[str], builder: NodeRows, params: TrainParams
    ) -> None:
        """Nothing is known of the nodes of ``level`` yet."""
        self._level = LevelContests(level, peers, builder, params)

    def answered(self, peer: str, nodes: Sequence[int], candidates: Sequence[int]) -> None:
        """``peer`` has answered for so many candidates in each of ``nodes``."""
        self._level.answered(peer, nodes, candidates)
        self.contest()

    def contest(self) -> None:
        """Find the winners of all nodes about which everything is known that can be."""
        for nodes, contests in self._level.next():
            for peer in self._level.peers - set(contests):
                self._with_winners(peer, nodes, np.zeros(len(nodes), np.bool_))
            chain = tuple(contests)
            for peer, (candidates, contest) in contests.items():
                self._begin_contest(peer, chain, candidates, contest)

    def _begin_contest(
        self, peer: str, chain: tuple[str, ...], candidates: int, contest: Contest
    ) -> None:
        nodes, tree = contest.nodes, self._level.tree
        limit = self._engine.contest_bytes(len(nodes), candidates, contest.place)
        self._circuits.begin(peer, tree, nodes, limit, chain if len(chain) > 1 else ())
        self._run(
            WINNERS,
            self._engine.find_winners(peer, contest),
            partial(self._circuits_end, peer, nodes),
            partial(self._follow_circuits, peer, chain[contest.place.number - 2], nodes[0]),
            ConsistencyCheck(peer, tree, nodes[0]),
        )

    def _follow_circuits(
        self, peer: str, before: str, node: int, step: Exchange | Reply, run: PlanState
    ) -> None:
        """``before`` the first of a chain is the last one, which knows who won."""
        if isinstance(step, HandOn):
            self._handed.take(peer, node, step.pieces)
        elif isinstance(step, Handed):
            self._handed.wait(before, node, run)
        else:
            self._circuits.follow(peer, node, step, run)

    @on_message(training.CircuitPiece)
    def _on_circuit_piece(self, peer: str, body: training.CircuitPiece) -> None:
        self._circuits.hear(peer, body)

    def _circuits_end(self, peer: str, nodes: Sequence[int], won: NDArray[np.bool_]) -> None:
        self._circuits.end(peer, nodes[0])
        self._with_winners(peer, nodes, won)

    def _with_winners(self, peer: str, nodes: Sequence[int], won: NDArray[np.bool_]) -> None:
        """A peer's best candidate gains more than the active party's, or it does not."""
        gains = np.where(won, np.inf, -np.inf).tolist()
        offers = [SplitOffer(gain, np.empty(0, np.uint32)) for gain in gains]
        self._add_offers(nodes, self._owners[peer], offers)

    def gain(self, peer: str, node: int, left: NDArray[np.bool_]) -> float:
        """What ``node`` gained by a split of ``peer``, by which rows went left.

        Raises:
            Inconsistent: so little that it cannot have won.
        """
        return self._level.gain(peer, node, left)


# Decoys hide splits from those who count messages. Messages are sealed, but the broker's operator
# counts them: each decision to a party is a split that its columns won. With decoys all parties get
# a decision about a node, of the same length, and answer it. When all have answered, all get the
# assignment, the split's owner among them.


def check_decoys(engine: Engine) -> None:
    """Raise ConfigError where directions are learned by questions, which no decoy imitates."""
    if engine.traits.hides_rows:
        raise ConfigError(
            f"decoys: engine {engine.name!r} learns who goes left by questions of its own, which "
            "decoys do not imitate; leave decoys out, or choose another engine"
        )


def _nothing(best: SplitOffer) -> SplitOffer:
    """What names no candidate as often as ``best`` names some."""
    candidates = np.full_like(best.candidates, training.NO_CANDIDATE)
    sets = tuple(
        split._replace(right=np.full_like(split.right, training.NO_CANDIDATE))
        for split in best.sets
    )
    return SplitOffer(-np.inf, candidates, sets=sets)


_NOTHING = SplitOffer(-np.inf, np.array([training.NO_CANDIDATE], dtype=np.uint32))


class DecoyGrowth(ActiveGrowth):
    """Decides towards every party about each node; all decisions but the owner's are decoys.

    Where trees grow by levels, nodes that are not split get decoys as well: so no party learns
    from them which nodes of the last level are split.
    """

    def __init__(self, *growth: Any) -> None:
        super().__init__(*growth)
        self._undecided: Set[int] = frozenset()
        """Nodes of the level about which nobody was asked yet."""
        self._decoys: dict[tuple[str, int], int] = {}
        """How many rows an answer is about, by party and node."""
        self._assignments: list[training.NodeAssignment] = []

    def _ask_level(self) -> None:
        super()._ask_level()
        by_levels = self._terms.params.grow_policy == "depthwise"
        self._undecided = frozenset(self._level.nodes if by_levels else ())

    def _split_next(self) -> None:
        if not self._asked:
            super()._split_next()
            return
        splits = {node: owner for node, owner, _ in self._choice.pop()}
        nodes, self._undecided = sorted(splits.keys() | self._undecided), frozenset()
        for node in nodes:
            owner = self._terms.parties[splits[node]] if node in splits else ""
            self._ask_all(node, owner, self._choice.best(node))
        if not nodes:
            self._end()

    def _ask_all(self, node: int, owner: str, best: SplitOffer) -> None:
        """Decide about ``node``, which ``owner`` splits; nobody does if it is empty."""
        nothing = _nothing(best) if owner in self._asked else _NOTHING
        for peer in self._asked:
            if peer == owner:
                self._ask_split(node, peer, best)
            else:
                self._send_decoy(peer, node, nothing)
        if owner == self._terms.party:
            self._split_own(node, best)

    def _send_decoy(self, peer: str, node: int, nothing: SplitOffer) -> None:
        self._decoys[peer, node] = len(self._builder.rows(node))
        self._send(peer, decision(self.tree, node, nothing))

    def _on_outcome(self, peer: str, body: training.SplitOutcome) -> None:
        rows = self._decoys.get((peer, body.node))
        if rows is None:
            super()._on_outcome(peer, body)
            return
        if body.tree != self.tree:
            raise ProtocolError(f"an answer about tree {body.tree}, in tree {self.tree}")
        self._level.check_directions(body, rows)
        del self._decoys[peer, body.node]
        self._go_on_when_split()

    def _assign(self, owner: int, assignment: training.NodeAssignment) -> None:
        if self._asked:
            self._assignments.append(assignment)

    def _go_on_when_split(self) -> None:
        if self._decoys or not self._level.is_split:
            return
        # In the order of nodes: that of answers would tell which of them the active party split.
        for assignment in sorted(self._assignments, key=lambda assignment: assignment.node):
            for peer in self._asked:
                self._send(peer, assignment)
        self._assignments = []
        super()._go_on_when_split()
