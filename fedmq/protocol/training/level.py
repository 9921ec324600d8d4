"""What is asked about a level of nodes, and what is still missing?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import Array, pack_payload, payload_bytes, unpack_payload
from fedmq.privacy.engine import Contest, Place, SizeLimit, SplitOffer
from fedmq.privacy.plan import Exchange, Values
from fedmq.protocol.machine import PlanState
from fedmq.protocol.training.consistency import ConsistencyCheck
from fedmq.protocol.training.node_rows import NodeRows

__all__ = ["LevelContests", "LevelRequests", "decision"]


@dataclass(slots=True)
class _Asking:
    """Who waits for the replies about ``nodes``, which are asked about at once, and those here."""

    running: PlanState
    exchange: Exchange
    nodes: int
    replies: dict[int, Sequence[Values]] = field(default_factory=dict)


@dataclass(slots=True)
class _Conversation:
    """The exchanges with one peer about one node; ``open`` until a reply is complete.

    ``sent`` pieces of a query are on their way, so many more follow ``later``.
    """

    asking: _Asking
    round: int
    largest: SizeLimit
    sent: int
    later: int
    open: bool = True
    pieces: list[Values] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _AwaitedSplit:
    """A split that ``peer`` is asked for, by the ``pieces`` of a query about its directions.

    ``running`` waits for the directions, once the pieces are here.
    """

    peer: str
    best: SplitOffer
    pieces: Sequence[Values] = ()
    running: PlanState | None = None
    sent: bool = False
    record: int | None = None


class LevelRequests:
    """The ``nodes`` of a level of tree ``tree``, as ``owners`` parties make offers for them.

    An offer is the best of an owner's candidates in a node. Then the owners of winning candidates
    are asked for their splits.
    """

    def __init__(self, tree: int, nodes: Sequence[int], owners: int) -> None:
        self.tree = tree
        self.nodes = tuple(nodes)
        self._offers: dict[int, dict[int, SplitOffer]] = {node: {} for node in nodes}
        self._missing = len(nodes) * owners
        self._conversations: dict[tuple[str, int], _Conversation] = {}
        self._queries: dict[tuple[str, int, int], list[training.NodeQuery]] = defaultdict(list)
        self._pieces: dict[tuple[str, int, int], list[training.QueryPiece]] = defaultdict(list)
        self._parts: dict[int, dict[int, Sequence[Values]]] = defaultdict(dict)
        """Parts of the questions about nodes that were made before those that come first."""
        self._sent_parts: Counter[int] = Counter()
        self._following: list[tuple[str, training.QueryPiece]] = []
        self._splitting: dict[int, _AwaitedSplit] = {}

    # Offers

    @property
    def is_scored(self) -> bool:
        """Whether every owner has made its offers."""
        return self._missing == 0

    def add_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[SplitOffer]) -> None:
        """The offers of ``owner`` for ``nodes``."""
        for node, best in zip(nodes, offers, strict=True):
            self._offers[node][owner] = best
            self._missing -= 1

    def offers(self, node: int) -> Mapping[int, SplitOffer]:
        """The offers for ``node`` by their owners."""
        return self._offers[node]

    # Exchanges with a peer about a node

    def ask(
        self, peer: str, largest: Mapping[int, SizeLimit], exchange: Exchange, running: PlanState
    ) -> None:
        """Put queries to ``peer`` among the next requests; ``running`` waits for the replies.

        They are about the nodes of ``largest``, which has the longest reply about each. Those whose
        pieces are still made are a request of their own: it is answered as soon as all of them have
        arrived.
        """
        asking = _Asking(running, exchange, len(largest))
        first = next(iter(largest))
        for node, most in largest.items():
            before = self._conversations.get((peer, node))
            number = 0 if before is None else before.round + 1
            count, later = len(exchange.pieces), exchange.later.get(node, 0)
            self._conversations[peer, node] = _Conversation(asking, number, most, count, later)
            request = (peer, number, first if exchange.later else 0)
            self._queries[request].append(training.NodeQuery(node=node, pieces=count + later))
            self._pieces[request] += self._packed(node, number, 0, exchange.pieces)

    def add_part(self, node: int, number: int, pieces: Sequence[Values]) -> None:
        """Part ``number`` of the question about ``node`` is made: it follows on those before it."""
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
        """``pieces`` of round ``number`` about ``node``, of which ``first`` have left."""
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
        """Recipient and body of what is to be asked: a request per peer and round, its pieces."""
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
        """Take a piece of a reply; after the last one, who waits for it, and what it waits for.

        Raises:
            ProtocolError: it was not asked for.
            Inconsistent: it is longer than all candidates of ``peer`` take.
        """
        conversation = self._conversations.get((peer, body.node))
        if (
            conversation is None
            or not conversation.open
            or conversation.later
            or (body.tree, body.round) != (self.tree, conversation.round)
            or body.piece != len(conversation.pieces)
        ):
            raise ProtocolError(f"a reply about node {body.node} that was not asked for")
        conversation.bytes += payload_bytes(body.payload)
        sent = SizeLimit(body.pieces, conversation.bytes)
        ConsistencyCheck(peer, self.tree, body.node).check_extent(sent, conversation.largest)
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
        """``peer``, which is ``owner``, makes no offer for a node; ProtocolError if not asked."""
        conversation = self._conversations.get((peer, body.node))
        if (
            conversation is None
            or not conversation.open
            or conversation.later
            or conversation.pieces
            or body.tree != self.tree
        ):
            raise ProtocolError(f"node {body.node} was declined, but not asked about")
        conversation.open = False
        self.add_offers((body.node,), owner, (SplitOffer(-np.inf, np.empty(0, dtype=np.uint32)),))

    # Splits

    @property
    def is_split(self) -> bool:
        """Whether no split of another party is missing."""
        return not self._splitting

    def await_split(self, node: int, peer: str, best: SplitOffer) -> None:
        """``peer`` is asked for its ``best`` split of ``node``, of this level or an earlier one."""
        self._splitting[node] = _AwaitedSplit(peer, best)

    def ask_directions(self, node: int, pieces: Sequence[Values], running: PlanState) -> None:
        """Put the query about the directions of ``node`` among the decisions that are to go out."""
        self._splitting[node].pieces = pieces
        self._splitting[node].running = running

    def decisions(self) -> Iterator[tuple[str, training.DirectionsQuery | training.SplitDecision]]:
        """Recipient and body of the decisions that can be sent.

        They go out in the order of nodes, for an owner numbers its records as decisions come.
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
            raise ProtocolError(f"a split of node {body.node} that was not asked for")

    def check_directions(self, body: training.SplitOutcome, rows: int) -> None:
        """Raise ProtocolError unless ``body`` has a direction for each of the node's ``rows``."""
        if body.left.count != rows:
            raise ProtocolError(
                f"directions for {body.left.count} rows, node {body.node} has {rows}"
            )

    def take_outcome(self, body: training.SplitOutcome) -> PlanState:
        """Note the record of a split that was checked; who waits for its directions."""
        split = self._splitting[body.node]
        assert split.running is not None
        split.record = body.record
        return split.running

    def end_split(self, node: int) -> tuple[str, int]:
        """The directions of ``node`` are here; owner and record of its split."""
        split = self._splitting.pop(node)
        assert split.record is not None
        return split.peer, split.record


def decision(tree: int, node: int, best: SplitOffer) -> training.SplitDecision:
    """What tells the owner of the ``best`` of ``node`` to split it."""
    return training.SplitDecision(
        tree=tree,
        node=node,
        candidates=Array.of(best.candidates.astype(np.uint32)),
        sets=tuple(
            training.CategorySplit(right=Array.of(split.right), default_left=split.default_left)
            for split in best.sets
        ),
    )


class LevelContests:
    """Where sums are hidden: which nodes of ``level`` are contested with ``peers``, and when.

    Once all were asked about. A contest takes nodes with as many candidates each: all of a level,
    or each alone where nodes draw their columns. It takes the active party's own best of each, too.
    """

    def __init__(
        self, level: LevelRequests, peers: Sequence[str], builder: NodeRows, params: TrainParams
    ) -> None:
        self._level = level
        self._builder = builder
        self._least_gain = max(float(np.nextafter(SMALLEST_GAIN, np.float32(1))), params.gamma)
        self._together = params.colsample_bylevel == params.colsample_bynode == 1
        self._candidates: dict[str, dict[int, int]] = {peer: {} for peer in peers}
        """How many were answered for, by node."""
        self._begun = False

    @property
    def tree(self) -> int:
        """The tree of the level."""
        return self._level.tree

    @property
    def peers(self) -> set[str]:
        """All who were asked."""
        return set(self._candidates)

    def answered(self, peer: str, nodes: Sequence[int], candidates: Sequence[int]) -> None:
        """``peer`` has answered for so many candidates in each of ``nodes``."""
        self._candidates[peer] |= zip(nodes, candidates, strict=True)

    def next(self) -> Iterator[tuple[tuple[int, ...], Mapping[str, tuple[int, Contest]]]]:
        """Groups of nodes, once all is known of the level: candidates of a node, and contest.

        By peer, in the order of the chain, in which nobody stands without a candidate.
        """
        nodes, counts = self._level.nodes, self._candidates
        own = all(LABEL_HOLDER in self._level.offers(node) for node in nodes)
        if self._begun or not own or any(len(count) < len(nodes) for count in counts.values()):
            return
        self._begun = True
        for group in [nodes] if self._together else [(node,) for node in nodes]:
            counted = {peer: self._count(peer, group) for peer in counts}
            chain = [peer for peer, count in counted.items() if count]
            yield (
                group,
                {
                    peer: (counted[peer], self._contest(group, Place(number, len(chain))))
                    for number, peer in enumerate(chain, start=1)
                },
            )

    def _count(self, peer: str, nodes: Sequence[int]) -> int:
        """Candidates of ``peer`` in each of ``nodes``."""
        counts = [self._candidates[peer][node] for node in nodes]
        claim = ConsistencyCheck(peer, self._level.tree, nodes[0])
        claim.check_count(max(counts), min(counts))
        return counts[0]

    def _contest(self, nodes: tuple[int, ...], place: Place) -> Contest:
        best = [self._level.offers(node)[LABEL_HOLDER].gain for node in nodes]
        totals = np.stack([self._builder.totals(node) for node in nodes])
        return Contest(nodes, totals, np.array(best, np.float32), place)

    def gain(self, peer: str, node: int, left: NDArray[np.bool_]) -> float:
        """What ``node`` gained by a split of ``peer``, by which rows went left.

        Raises:
            Inconsistent: so little that it cannot have won.
        """
        gain, best = self._builder.gain(node, left), self._level.offers(node)[LABEL_HOLDER].gain
        ConsistencyCheck(peer, self._level.tree, node).check_gain(gain, best, self._least_gain)
        return gain
