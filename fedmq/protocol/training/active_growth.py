"""How does the active party let a tree grow (SecureBoost, Algorithm 2)?

`ActiveGrowth` broadcasts the gradients. Every party sums the nodes of a level, and the active party
scores them. The owner of the winning candidate splits the node; the others learn which rows go
left. `LevelRequests` holds the requests about a level; `Winners` chooses among the best offers of
all parties. With decoys (`DecoyGrowth`) counting messages does not disclose whose columns split.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.tree import ACTIVE_PARTY
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import ColumnMark, Driver
from fedmq.errors import ConfigError, ProtocolError
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload, payload_bytes, unpack_payload
from fedmq.privacy.engine import (
    ActiveHalf,
    AskedNode,
    BroadcastPiece,
    Engine,
    HidesSums,
    Question,
    SizeLimit,
    SplitOffer,
)
from fedmq.privacy.plan import Exchange, Plan, Reply, Values
from fedmq.protocol.machine import Machine, Part, PlanState, on_message
from fedmq.protocol.session_records import ActiveTree
from fedmq.protocol.training.candidates import OwnColumns, went_left
from fedmq.protocol.training.claims import (
    CandidateCategories,
    CandidateConstraints,
    CandidateMarks,
    CandidateSigns,
    ConsistencyCheck,
    RecordNumbers,
)
from fedmq.protocol.training.comparisons import Comparisons
from fedmq.protocol.training.folds import FoldModels
from fedmq.protocol.training.model import ModelBuilder
from fedmq.protocol.training.offers import AnswerScorer, NodeRows, OwnCandidates
from fedmq.protocol.training.states import (
    BROADCAST,
    DIRECTIONS,
    LEVEL_SCORED,
    NEXT_LEVEL,
    NEXT_TREE,
    OFFER,
    OWN_OFFERS,
    QUESTION,
)
from fedmq.protocol.training.terms import Acceptances, TrainingTerms

__all__ = ["ActiveGrowth", "DecoyGrowth", "LevelRequests", "Winners", "check_decoys", "decision"]


class ActiveGrowth(Part):
    """The next tree of ``model``, from its ``gradients`` to its last split.

    ``engine``: the active half of the engine. ``ended`` takes the finished tree and the peers that
    hold a part of it.
    """

    def __init__(
        self,
        machine: Machine,
        terms: TrainingTerms,
        engine: ActiveHalf,
        acceptances: Acceptances,
        model: ModelBuilder | FoldModels,
        columns: OwnColumns,
        gradients: Gradients,
        ended: Callable[[ActiveTree, Sequence[str]], None],
    ) -> None:
        super().__init__(machine)
        params, constraints = terms.params, terms.constraints
        interactions, signed = len(params.interaction_constraints), acceptances.signed
        constrained = constraints.hold(signed)
        self._terms = terms
        self._engine = engine
        self._accepted = acceptances.of
        self._model = model
        self._ended = ended
        self.tree = model.next_tree
        self._asked = terms.peers if self.tree >= terms.trees_alone else ()
        """The peers that take part in this tree."""
        following, residuals = model.next_records(terms.parties), model.residuals()
        self._builder = NodeRows(
            gradients,
            params,
            residuals,
            constrained=constrained,
            interacting=interactions > 0,
            gain_before=model.gain_before(),
        )
        self._records = RecordNumbers(following)
        self._signed = signed
        shown = () if terms.hides_sums else signed
        self._marks = CandidateMarks(
            CandidateSigns(shown),
            CandidateConstraints(0 if terms.hides_sums else interactions),
            CandidateCategories(acceptances.by_sets if terms.category_sets else ()),
        )
        self._answers = AnswerScorer(
            self._builder,
            params,
            terms.engine,
            terms.owners,
            self._marks,
            terms.first_order,
        )
        self._bins = columns.bins
        self._candidates = OwnCandidates(
            columns,
            constraints.signs,
            constraints.interactions,
            params,
            self._builder,
            terms.first_order,
            terms.folds,
        )
        self._columns: dict[int, ColumnMark] = {}
        """The columns of splits as their owners told them; unmarked where sums are shown."""
        self._choice = Winners(params, by_levels=terms.hides_sums)
        self._to_broadcast = 0
        self._level = LevelRequests(self.tree, (), 0)
        self.comparisons: Comparisons | None = None
        """Finds the winners among hidden sums; None if sums are shown."""
        if isinstance(engine, HidesSums):
            self.comparisons = Comparisons(machine, engine, terms.owners, self._with_offers)

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
        rows, narrow = piece.rows, self._terms.engine.traits.narrow
        in_sequence = narrow and len(rows) > 0 and int(rows[-1]) - int(rows[0]) == len(rows) - 1
        body = training.GradientBroadcast(
            tree=self.tree,
            piece=number,
            rows=Array.of(rows[[0, -1]] if in_sequence else rows),
            payload=pack_payload(piece.values),
            in_sequence=in_sequence,
        )
        for peer in self._asked:
            self._send(peer, body)

    # A level: every party's candidates are summed and scored.

    def _ask_level(self) -> None:
        nodes = self._builder.level
        self._level = LevelRequests(self.tree, nodes, 1 + len(self._asked))
        if self.comparisons is not None:
            self.comparisons.begin(nodes, self._asked, self._builder, self._terms.params)
        if self._asked:
            level = [AskedNode(self.tree, node, self._builder.carrying(node)) for node in nodes]
            for question in self._engine.ask_level(level):
                self._ask(question)
        # After the questions, whose answers take longer.
        own = self._candidates.scored(nodes)
        self._run(OWN_OFFERS, own, partial(self._with_offers, nodes, ACTIVE_PARTY))

    def _ask(self, question: Question) -> None:
        nodes = [asked.node for asked in question.nodes]
        rows = {asked.node: len(asked.rows) for asked in question.nodes}
        for owner, peer in enumerate(self._asked, start=1):
            limit = self._accepted[peer].candidates
            about = ConsistencyCheck(peer, self.tree, nodes[0])
            plan: Plan[object] = self._answers.scored(question, peer, limit)
            then = partial(self._with_offers, nodes, owner)
            if self.comparisons is not None:
                plan = self._answers.counted(question, peer, limit)
                then = partial(self.comparisons.answered, peer, nodes)
            self._run(OFFER, plan, then, partial(self._on_exchange, peer, rows), about)
        for node, parts in question.parts().items():
            for number, part in enumerate(parts):
                self._run(QUESTION, part, partial(self._with_part, node, number))

    def _on_exchange(
        self, peer: str, rows: Mapping[int, int], step: Exchange | Reply, run: PlanState
    ) -> None:
        """``rows``: the number of rows with a gradient, by node of the question."""
        assert isinstance(step, Exchange)
        limit, largest_reply = self._accepted[peer].candidates, self._engine.largest_reply
        nodes = step.later or (next(iter(rows)),)
        limits = {node: largest_reply(limit, rows[node]) for node in nodes}
        self._level.ask(peer, limits, step, run)
        self._at_end(self._send_requests)

    def _with_part(self, node: int, number: int, pieces: Sequence[Values]) -> None:
        self._level.add_part(node, number, pieces)
        self._at_end(self._send_requests)

    def _send_requests(self) -> None:
        """Send the collected exchanges, as one request per peer and round."""
        for peer, body in self._level.requests():
            self._send(peer, body)

    @on_message(training.HistogramReply)
    def _on_reply(self, peer: str, body: training.HistogramReply) -> None:
        self._check_broadcast(body.node)
        self._marks.take(peer, body, self._accepted[peer].candidates)
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
            raise ProtocolError(f"an answer about node {node} before the last gradient left")

    def _with_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[SplitOffer]) -> None:
        self._level.add_offers(nodes, owner, offers)
        if owner == ACTIVE_PARTY and self.comparisons is not None:
            self.comparisons.offered(nodes, offers)
        self._split_when_scored()

    # Splits: ask the owner of a node's best offer which rows go left.

    def _split_when_scored(self) -> None:
        if self._level.is_scored:
            self._move(LEVEL_SCORED)
            self._choice.add(self._level.offers)
            self._split_next()

    def _split_next(self) -> None:
        """Split the next nodes, until a peer must be asked."""
        while offers := self._choice.pop():
            for node, owner, best in offers:
                if owner == ACTIVE_PARTY:
                    self._split_own(node, best)
                else:
                    self._ask_split(node, self._terms.parties[owner], best)
            if not self._level.is_split or self._goes_down():
                return
        self._end()

    def _ask_split(self, node: int, peer: str, best: SplitOffer) -> None:
        self._level.await_split(node, peer, best)
        reading = self._engine.read_directions(peer, self.tree, node, self._builder.rows[node])
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
        rows = self._builder.rows[node]
        left = went_left(self._model.records, record, self._terms.table.values, self._bins, rows)
        self._split(node, ACTIVE_PARTY, record, left, best.mark_of(split), best.gain)

    @on_message(training.SplitOutcome)
    def _on_outcome(self, peer: str, body: training.SplitOutcome) -> None:
        self._level.check_split(peer, body)
        rows = len(self._builder.rows[body.node])
        self._level.check_directions(
            body, self._terms.table.people if self._terms.hides_rows else rows
        )
        self._records.check(ConsistencyCheck(peer, self.tree, body.node), body.record)
        told = self.comparisons is not None or bool(self._choice.best(body.node).sets)
        self._columns[body.node] = told_column(
            body,
            signed=told and peer in self._signed,
            interacting=told and bool(self._terms.params.interaction_constraints),
        )
        self._resume(self._level.take_outcome(body), body.left.numpy())

    def _with_directions(self, node: int, left: NDArray[np.bool_]) -> None:
        if self._terms.hides_rows:
            left = left[self._terms.table.people_of(self._builder.rows[node])]
        best = self._choice.best(node)
        peer, record = self._level.end_split(node)
        column, gain = self._columns.pop(node), best.gain
        if best.left is not None:
            sums = self._builder.left_totals(node, left)
            column = ConsistencyCheck(peer, self.tree, node).mark(sums, best, column)
        if self.comparisons is not None:
            gain = self.comparisons.gain(peer, node, left, column)
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
            return  # at the last level only the owner learns the partition
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
        """Ask about the children of the split nodes; False if none may be split."""
        if not self._builder.next_level():
            return False
        self._move(NEXT_LEVEL)
        self._ask_level()
        return True

    def _end(self) -> None:
        self._ended(self._model.add(*self._builder.finish()), self._asked)


@dataclass(slots=True)
class _Asking:
    """A plan that waits for the ``replies`` about ``nodes`` nodes of one request."""

    running: PlanState
    exchange: Exchange
    nodes: int
    replies: dict[int, Sequence[Values]] = field(default_factory=dict)


@dataclass(slots=True)
class _Conversation:
    """The exchanges with one peer about one node; ``open`` until a reply is complete.

    ``sent``: the number of query pieces on their way. ``later``: the number of pieces that follow.
    """

    asking: _Asking
    round: int
    limit: SizeLimit
    sent: int
    later: int
    open: bool = True
    pieces: list[Values] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _AwaitedSplit:
    """A split asked of ``peer``; ``pieces`` are the query about its directions.

    ``running`` waits for the directions, once the pieces exist.
    """

    peer: str
    best: SplitOffer
    pieces: Sequence[Values] = ()
    running: PlanState | None = None
    sent: bool = False
    record: int | None = None


class LevelRequests:
    """The requests about the ``nodes`` of a level of ``tree`` to ``owners`` parties.

    Each owner offers its best candidate of a node. Then the active party asks the owners of winning
    candidates for their splits.
    """

    def __init__(self, tree: int, nodes: Sequence[int], owners: int) -> None:
        self.tree = tree
        self.nodes = tuple(nodes)
        self.offers: dict[int, dict[int, SplitOffer]] = {node: {} for node in nodes}
        """The offers for each node, by owner."""
        self._missing = len(nodes) * owners
        self._conversations: dict[tuple[str, int], _Conversation] = {}
        self._queries: dict[tuple[str, int, int], list[training.NodeQuery]] = defaultdict(list)
        self._pieces: dict[tuple[str, int, int], list[training.QueryPiece]] = defaultdict(list)
        self._parts: dict[int, dict[int, Sequence[Values]]] = defaultdict(dict)
        """Parts of questions that were made before the parts that precede them."""
        self._sent_parts: Counter[int] = Counter()
        self._following: list[tuple[str, training.QueryPiece]] = []
        self._splitting: dict[int, _AwaitedSplit] = {}

    # Offers

    @property
    def is_scored(self) -> bool:
        """Whether every owner has made its offers."""
        return self._missing == 0

    def add_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[SplitOffer]) -> None:
        """Add the offers of ``owner`` for ``nodes``."""
        for node, best in zip(nodes, offers, strict=True):
            self.offers[node][owner] = best
            self._missing -= 1

    # Exchanges with a peer about a node

    def ask(
        self, peer: str, limits: Mapping[int, SizeLimit], exchange: Exchange, running: PlanState
    ) -> None:
        """Add queries to ``peer`` to the next requests; ``running`` waits for the replies.

        ``limits``: the longest reply, by node asked about. Nodes whose pieces are still in the
        making get a request of their own, answered as soon as all its pieces have arrived.
        """
        asking = _Asking(running, exchange, len(limits))
        first = next(iter(limits))
        for node, limit in limits.items():
            before = self._conversations.get((peer, node))
            number = 0 if before is None else before.round + 1
            count, later = len(exchange.pieces), exchange.later.get(node, 0)
            self._conversations[peer, node] = _Conversation(asking, number, limit, count, later)
            request = (peer, number, first if exchange.later else 0)
            self._queries[request].append(training.NodeQuery(node=node, pieces=count + later))
            self._pieces[request] += self._packed(node, number, 0, exchange.pieces)

    def add_part(self, node: int, number: int, pieces: Sequence[Values]) -> None:
        """Add part ``number`` of the question about ``node``, to be sent after earlier parts."""
        parts = self._parts[node]
        parts[number] = pieces
        asked = {
            peer: conversation
            for (peer, about), conversation in self._conversations.items()
            if about == node
        }
        sent = self._sent_parts[node]
        while (ready := parts.pop(sent, None)) is not None:
            sent = self._sent_parts[node] = sent + 1
            for peer, conversation in asked.items():
                packed = self._packed(node, conversation.round, conversation.sent, ready)
                self._following += ((peer, piece) for piece in packed)
                conversation.sent += len(ready)
                conversation.later -= len(ready)

    def _packed(
        self, node: int, number: int, first: int, pieces: Sequence[Values]
    ) -> list[training.QueryPiece]:
        """Pack ``pieces`` of round ``number`` about ``node``, after the ``first`` sent ones."""
        return [
            training.QueryPiece(
                tree=self.tree,
                node=node,
                round=number,
                piece=index,
                payload=pack_payload(piece),
            )
            for index, piece in enumerate(pieces, start=first)
        ]

    def requests(self) -> Sequence[tuple[str, training.HistogramRequest | training.QueryPiece]]:
        """Recipient and body of the pending requests, one per peer and round, and their pieces."""
        bodies: list[tuple[str, training.HistogramRequest | training.QueryPiece]] = []
        for request, nodes in self._queries.items():
            peer, number, _ = request
            body = training.HistogramRequest(tree=self.tree, round=number, nodes=tuple(nodes))
            bodies += [(peer, body), *((peer, piece) for piece in self._pieces[request])]
        bodies += self._following
        self._queries.clear()
        self._pieces.clear()
        self._following.clear()
        return bodies

    def reply(
        self, peer: str, body: training.HistogramReply
    ) -> tuple[PlanState, Sequence[Values] | Mapping[int, Sequence[Values]]] | None:
        """Take a piece of a reply; after the last one, return the waiting plan and its replies.

        Raises:
            ProtocolError: the reply was not asked for.
            Inconsistent: the reply is longer than all candidates of ``peer`` take.
        """
        conversation = self._conversations.get((peer, body.node))
        if (
            conversation is None
            or not conversation.open
            or conversation.later
            or (body.tree, body.round) != (self.tree, conversation.round)
            or body.piece != len(conversation.pieces)
        ):
            raise ProtocolError(f"an unrequested reply about node {body.node}")
        conversation.bytes += payload_bytes(body.payload)
        sent = SizeLimit(body.pieces, conversation.bytes)
        ConsistencyCheck(peer, self.tree, body.node).check_size(sent, conversation.limit)
        conversation.pieces.append(unpack_payload(body.payload))
        if len(conversation.pieces) < body.pieces:
            return None
        conversation.open = False
        asking = conversation.asking
        asking.replies[body.node] = conversation.pieces
        if len(asking.replies) < asking.nodes:
            return None
        return asking.running, asking.replies if asking.exchange.later else conversation.pieces

    def decline(self, peer: str, owner: int, body: training.NodeDeclined) -> None:
        """Note that ``peer``, number ``owner``, declines a node; ProtocolError if not asked."""
        conversation = self._conversations.get((peer, body.node))
        if (
            conversation is None
            or not conversation.open
            or conversation.later
            or conversation.pieces
            or body.tree != self.tree
        ):
            raise ProtocolError(f"the party declines node {body.node} without a question")
        conversation.open = False
        self.add_offers((body.node,), owner, (SplitOffer(-np.inf, np.empty(0, dtype=np.uint32)),))

    # Splits

    @property
    def is_split(self) -> bool:
        """Whether all splits of other parties have arrived."""
        return not self._splitting

    def await_split(self, node: int, peer: str, best: SplitOffer) -> None:
        """Wait for the ``best`` split of ``node`` by ``peer``, of this or an earlier level."""
        self._splitting[node] = _AwaitedSplit(peer, best)

    def ask_directions(self, node: int, pieces: Sequence[Values], running: PlanState) -> None:
        """Add the query about the directions of ``node`` to the pending decisions."""
        self._splitting[node].pieces = pieces
        self._splitting[node].running = running

    def decisions(self) -> Iterator[tuple[str, training.DirectionsQuery | training.SplitDecision]]:
        """Recipient and body of the decisions that can leave.

        They leave in the order of nodes: an owner numbers its records as decisions come.
        """
        for node, split in sorted(self._splitting.items()):
            if split.running is None:
                return
            if split.sent:
                continue
            split.sent = True
            for index, piece in enumerate(split.pieces):
                payload = pack_payload(piece)
                query = training.DirectionsQuery(
                    tree=self.tree, node=node, piece=index, payload=payload
                )
                yield split.peer, query
            yield split.peer, decision(self.tree, node, split.best)

    def check_split(self, peer: str, body: training.SplitOutcome) -> None:
        """Raise ProtocolError unless ``peer`` was asked for this split."""
        split = self._splitting.get(body.node)
        if (
            body.tree != self.tree
            or split is None
            or split.peer != peer
            or not split.sent
            or split.record is not None
        ):
            raise ProtocolError(f"an unrequested split of node {body.node}")

    def check_directions(self, body: training.SplitOutcome, rows: int) -> None:
        """Raise ProtocolError unless ``body`` has a direction for each of the node's ``rows``."""
        if body.left.count != rows:
            raise ProtocolError(
                f"directions for {body.left.count} rows of node {body.node}, which has {rows}"
            )

    def take_outcome(self, body: training.SplitOutcome) -> PlanState:
        """Note the record of a checked split; returns the plan that waits for its directions."""
        split = self._splitting[body.node]
        assert split.running is not None
        split.record = body.record
        return split.running

    def end_split(self, node: int) -> tuple[str, int]:
        """Complete the split of ``node``; returns its owner and record."""
        split = self._splitting.pop(node)
        assert split.record is not None
        return split.peer, split.record


def decision(tree: int, node: int, best: SplitOffer) -> training.SplitDecision:
    """The message that tells the owner of the ``best`` offer to split ``node``."""
    return training.SplitDecision(
        tree=tree,
        node=node,
        candidates=Array.of(best.candidates.astype(np.uint32)),
        sets=tuple(
            training.CategorySplit(right=Array.of(split.right), default_left=split.default_left)
            for split in best.sets
        ),
    )


def told_column(body: training.SplitOutcome, *, signed: bool, interacting: bool) -> ColumnMark:
    """What the owner of a split told of its column. Raises `ProtocolError` if it was not asked."""
    if (body.sign and not signed) or (body.held_by and not interacting):
        raise ProtocolError(f"constraints on the column of node {body.node}, out of place")
    return ColumnMark(body.sign, np.uint64(body.held_by))


class Winners:
    """The best offer for each scored node of a tree, and its owner.

    ``by_levels``: whether gains are not known, so that no order of nodes follows from them.
    """

    def __init__(self, params: TrainParams, *, by_levels: bool = False) -> None:
        self._driver = Driver(params, by_levels=by_levels)
        self._winners: dict[int, tuple[int, SplitOffer]] = {}

    def add(self, offers: Mapping[int, Mapping[int, SplitOffer]]) -> None:
        """Choose among the ``offers`` for each node of a scored level, by owner."""
        for node, of_node in offers.items():
            self._winners[node] = _winner(of_node)
            self._driver.push(node, self._winners[node][1].gain)

    def pop(self) -> Sequence[tuple[int, int, SplitOffer]]:
        """Node, owner and offer of the next splits; empty when the tree is complete."""
        return [(node, *self._winners[node]) for node in self._driver.pop()]

    def best(self, node: int) -> SplitOffer:
        """The offer for ``node``."""
        return self._winners[node][1]

    def expands_below(self, node: int) -> bool:
        """Whether the children of the popped ``node`` may be split."""
        return self._driver.expands_below(node)


def _winner(offers: Mapping[int, SplitOffer]) -> tuple[int, SplitOffer]:
    """The owner of the best offer, and the offer; the first owner wins ties."""
    owner = max(offers, key=lambda owner: (offers[owner].gain, -owner))
    return owner, offers[owner]


# Decoys hide splits from observers that count messages. Messages are sealed, but the broker's
# operator counts them: each decision to a party is a split that its columns won. With decoys all
# parties get a decision of the same length about a node, and answer it. When all have answered, all
# get the assignment, including the split's owner.


def check_decoys(engine: Engine) -> None:
    """Raise ConfigError for an engine whose messages no decoy imitates."""
    if engine.traits.hides_rows:
        raise ConfigError(
            f"decoys: engine {engine.name!r} asks for directions by extra questions, which "
            "decoys do not imitate; leave decoys out, or choose another engine"
        )
    if engine.hides_sums:
        raise ConfigError(
            f"decoys: engine {engine.name!r} hides sums, so that a party takes no decision about a "
            'node that it has not won; leave decoys out, or set sums = "shown"'
        )


def _nothing(best: SplitOffer) -> SplitOffer:
    """An offer that names no candidate, as often as ``best`` names some."""
    candidates = np.full_like(best.candidates, training.NO_CANDIDATE)
    sets = tuple(
        split._replace(right=np.full_like(split.right, training.NO_CANDIDATE))
        for split in best.sets
    )
    return SplitOffer(-np.inf, candidates, sets=sets)


_NOTHING = SplitOffer(-np.inf, np.array([training.NO_CANDIDATE], dtype=np.uint32))


class DecoyGrowth(ActiveGrowth):
    """Sends every party a decision about each node; all but the owner's are decoys.

    If trees grow by levels, unsplit nodes get decoys as well: so no party learns which nodes of the
    last level are split.
    """

    def __init__(self, *growth: Any) -> None:
        super().__init__(*growth)
        self._undecided: Set[int] = frozenset()
        """Nodes of the level without decisions yet."""
        self._decoys: dict[tuple[str, int], int] = {}
        """The number of rows of an answer, by party and node."""
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
        """Send all parties a decision about ``node``, which ``owner`` splits; empty: no split."""
        nothing = _nothing(best) if owner in self._asked else _NOTHING
        for peer in self._asked:
            if peer == owner:
                self._ask_split(node, peer, best)
            else:
                self._send_decoy(peer, node, nothing)
        if owner == self._terms.party:
            self._split_own(node, best)

    def _send_decoy(self, peer: str, node: int, nothing: SplitOffer) -> None:
        self._decoys[peer, node] = len(self._builder.rows[node])
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
        # In node order: the order of answers would disclose the active party's own splits.
        for assignment in sorted(self._assignments, key=lambda assignment: assignment.node):
            for peer in self._asked:
                self._send(peer, assignment)
        self._assignments = []
        super()._go_on_when_split()
