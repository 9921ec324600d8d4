"""How are winners found where sums are hidden?

The active party compares the best candidates of a level's nodes with those of each peer
(`Comparisons`), once it knows all about the nodes (`LevelComparisons`). The two halves of the
engine compare by circuits: parcels, one after the other, each in pieces that are messages
(`Circuits`, of both parties). A half sends and waits as its plan says. The pieces of a parcel stay
in memory until the half reads it. If several parties compete, each hands the best so far on to the
next in the chain (`HandedOn`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN, ColumnMark
from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages import training
from fedmq.messages.array import pack_payload, payload_bytes, unpack_payload
from fedmq.privacy.engine import Comparison, HidesSums, Place, SplitOffer
from fedmq.privacy.plan import PARCELS_AHEAD, Exchange, Handed, HandOn, Reply, Values
from fedmq.protocol.machine import Machine, Part, PlanState, on_message
from fedmq.protocol.training.claims import ConsistencyCheck, HiddenCandidates
from fedmq.protocol.training.offers import NodeRows
from fedmq.protocol.training.states import WINNERS

__all__ = ["Circuits", "Comparisons", "HandedOn", "LevelComparisons"]


class Comparisons(Part):
    """Compares the best candidates of a level's nodes with those of each peer, if sums are hidden.

    ``add_offers`` takes the offers of an owner for some nodes.
    """

    def __init__(
        self,
        machine: Machine,
        engine: HidesSums,
        owners: Mapping[str, int],
        add_offers: Callable[[Sequence[int], int, Sequence[SplitOffer]], None],
    ) -> None:
        super().__init__(machine)
        self._engine = engine
        self._owners = owners
        self._add_offers = add_offers
        self._level: LevelComparisons
        self._circuits = Circuits(self._send, self._resume, opens=True)
        self._handed = HandedOn(self._resume)

    def begin(
        self, nodes: Sequence[int], peers: Sequence[str], builder: NodeRows, params: TrainParams
    ) -> None:
        """Begin a level: the ``nodes`` of the tree of ``builder``."""
        self._level = LevelComparisons(nodes, peers, builder, params, self._owners)

    def offered(self, nodes: Sequence[int], offers: Sequence[SplitOffer]) -> None:
        """Take the active party's own best offers for ``nodes``, which peers must beat."""
        self._level.own_gains |= zip(nodes, (offer.gain for offer in offers), strict=True)
        self._compare()

    def answered(
        self, peer: str, nodes: Sequence[int], candidates: Sequence[HiddenCandidates]
    ) -> None:
        """``peer`` has answered for these candidates in each of ``nodes``."""
        self._level.answered(peer, nodes, candidates)
        self._compare()

    def _compare(self) -> None:
        """Find the winners of all nodes that are ready to be compared."""
        for nodes, comparisons in self._level.next():
            for peer in self._level.peers - set(comparisons):
                self._with_winners(peer, nodes, np.zeros(len(nodes), np.bool_))
            chain = tuple(comparisons)
            for peer, (candidates, comparison) in comparisons.items():
                self._begin(peer, chain, candidates, comparison)

    def _begin(
        self, peer: str, chain: tuple[str, ...], candidates: int, comparison: Comparison
    ) -> None:
        nodes, tree = comparison.nodes, self._level.tree
        limit = self._engine.comparison_bytes(comparison, candidates)
        self._circuits.begin(peer, tree, nodes, limit, chain if len(chain) > 1 else ())
        self._run(
            WINNERS,
            self._engine.compare(peer, comparison),
            partial(self._circuits_end, peer, nodes),
            partial(self._follow_circuits, peer, chain[comparison.place.number - 2], nodes[0]),
            ConsistencyCheck(peer, tree, nodes[0]),
        )

    def _follow_circuits(
        self, peer: str, before: str, node: int, step: Exchange | Reply, run: PlanState
    ) -> None:
        """Follow a peer's circuits; the chain's last, ``before`` its first, knows the winner."""
        if isinstance(step, HandOn):
            self._handed.take(peer, node, step.pieces)
        elif isinstance(step, Handed):
            self._handed.wait(before, node, run)
        else:
            self._circuits.follow(peer, node, step, run)

    @on_message(training.CircuitPiece)
    def _on_circuit_piece(self, peer: str, body: training.CircuitPiece) -> None:
        self._circuits.hear(peer, body)

    def _circuits_end(self, peer: str, nodes: tuple[int, ...], won: NDArray[np.bool_]) -> None:
        self._circuits.end(peer, nodes[0])
        self._level.ended(peer, nodes)
        self._compare()  # before the winners: the next level may follow from them
        self._with_winners(peer, nodes, won)

    def _with_winners(self, peer: str, nodes: Sequence[int], won: NDArray[np.bool_]) -> None:
        """Take whether the peer's best candidate gains more than the active party's."""
        gains = np.where(won, np.inf, -np.inf).tolist()
        offers = [SplitOffer(gain, np.empty(0, np.uint32)) for gain in gains]
        self._add_offers(nodes, self._owners[peer], offers)

    def gain(self, peer: str, node: int, left: NDArray[np.bool_], column: ColumnMark) -> float:
        """What ``node`` gained by a split of ``peer``, by which rows went left.

        Raises:
            Inconsistent: so little that it cannot have won, or its column may not follow.
        """
        return self._level.gain(peer, node, left, column)


_MOST_INSTANCES = 1 << 13  # candidates of all nodes that are compared together

_WORTH_HALVING = 1 << 9  # candidates: of fewer, a half takes as long as both together


class LevelComparisons:
    """Decides which ``nodes`` are compared with ``peers``, and when, if sums are hidden.

    Comparisons begin once all nodes were asked about. A comparison takes nodes in which each peer
    shows the same candidates: a whole level, or single nodes if nodes draw their columns, or those
    in which cells were not merged otherwise. It also takes
    the active party's own best of each node. A level of many candidates is halved: each party
    computes on one half while the other party has the other one. Of wide tables a comparison takes
    a few nodes, and the next ones wait until others have ended: both parties hold some kilobytes of
    each candidate.
    """

    def __init__(
        self,
        nodes: Sequence[int],
        peers: Sequence[str],
        builder: NodeRows,
        params: TrainParams,
        owners: Mapping[str, int],
    ) -> None:
        self.tree = builder.gradients.tree
        self.own_gains: dict[int, float] = {}
        """The gain of the active party's own best candidate, by node."""
        self._nodes = tuple(nodes)
        self._builder = builder
        self._owners = owners
        self._least_gain = max(float(np.nextafter(SMALLEST_GAIN, np.float32(1))), params.gamma)
        self._together = params.colsample_bylevel == params.colsample_bynode == 1
        self._candidates: dict[str, dict[int, HiddenCandidates]] = {peer: {} for peer in peers}
        """The answered candidates, by node."""
        self._most_categories = params.max_cat_threshold
        self._waiting: deque[tuple[int, ...]] | None = None
        """The groups of nodes that have not begun; None before the level is known."""
        self._under_way: dict[tuple[int, ...], set[str]] = {}
        """The peers whose comparisons are under way, by group."""

    @property
    def peers(self) -> set[str]:
        """All asked peers."""
        return set(self._candidates)

    def answered(
        self, peer: str, nodes: Sequence[int], candidates: Sequence[HiddenCandidates]
    ) -> None:
        """``peer`` has answered for these candidates in each of ``nodes``."""
        self._candidates[peer] |= zip(nodes, candidates, strict=True)

    def next(self) -> Iterator[tuple[tuple[int, ...], Mapping[str, tuple[int, Comparison]]]]:
        """Groups of nodes to begin, once the level is known: by peer, candidates and comparison.

        Candidates per node. Peers come in the order of the chain; peers without a candidate are
        left out.
        """
        nodes, counts = self._nodes, self._candidates
        if self._waiting is None:
            own = all(node in self.own_gains for node in nodes)
            if not own or any(len(count) < len(nodes) for count in counts.values()):
                return
            self._waiting = deque(self._groups())
        while self._waiting and self._has_room():
            group = self._waiting.popleft()
            shown = {peer: self._shown(peer, group) for peer in counts}
            most = self._most_categories
            chain = [peer for peer, held in shown.items() if held.scanned(most)]
            if chain:
                self._under_way[group] = set(chain)
            yield (
                group,
                {
                    peer: (
                        shown[peer].count,
                        self._comparison(
                            peer, group, Place(number, len(chain)), shown[peer].categories
                        ),
                    )
                    for number, peer in enumerate(chain, start=1)
                },
            )

    def ended(self, peer: str, nodes: tuple[int, ...]) -> None:
        """The comparison of ``nodes`` with ``peer`` has ended."""
        peers = self._under_way[nodes]
        peers.remove(peer)
        if not peers:
            del self._under_way[nodes]

    def _groups(self) -> Iterator[tuple[int, ...]]:
        counts = self._candidates.values()
        most = max((max(map(_instances, held.values())) for held in counts), default=0)
        every = len(self._nodes)
        halved = -(-every // 2) if every * most >= _WORTH_HALVING else every
        size = max(1, min(halved, _MOST_INSTANCES // max(1, most))) if self._together else 1
        for nodes in self._alike():
            for start in range(0, len(nodes), size):
                yield nodes[start : start + size]

    def _alike(self) -> Iterator[tuple[int, ...]]:
        """The nodes in which each peer shows the same candidates: it may merge small cells."""
        of_shown: dict[tuple[HiddenCandidates, ...], list[int]] = {}
        for node in self._nodes:
            shown = tuple(held[node] for held in self._candidates.values())
            of_shown.setdefault(shown, []).append(node)
        yield from map(tuple, of_shown.values())

    def _has_room(self) -> bool:
        """Whether the next group may begin: one computes while another one's tables travel."""
        if not self._under_way:
            return True
        assert self._waiting is not None
        nodes = [node for group in (*self._under_way, self._waiting[0]) for node in group]
        counts = self._candidates.values()
        return all(
            sum(_instances(count[node]) for node in nodes) <= 2 * _MOST_INSTANCES
            for count in counts
        )

    def _shown(self, peer: str, nodes: Sequence[int]) -> HiddenCandidates:
        """The candidates of ``peer``, which are the same in all of ``nodes``."""
        return self._candidates[peer][nodes[0]]

    def _comparison(
        self,
        peer: str,
        nodes: tuple[int, ...],
        place: Place,
        categories: tuple[tuple[int, ...], ...],
    ) -> Comparison:
        best = [self.own_gains[node] for node in nodes]
        totals = np.stack([self._builder.totals(node) for node in nodes])
        rows = tuple(self._builder.carrying(node) for node in nodes)
        constraints = self._builder.constraints(nodes, self._owners[peer])
        gains = np.array(best, np.float32)
        foreseen = np.array([self._builder.foreseen(node) for node in nodes], np.float32)
        return Comparison(nodes, totals, gains, foreseen, rows, place, constraints, categories)

    def gain(self, peer: str, node: int, left: NDArray[np.bool_], column: ColumnMark) -> float:
        """What ``node`` gained by a split of ``peer``, by which rows went left.

        Raises:
            Inconsistent: so little that it cannot have won, or its column may not follow.
        """
        check = ConsistencyCheck(peer, self.tree, node)
        check.check_column(self._builder.allows(node, self._owners[peer], column))
        gain, best = self._builder.gain(node, left, column.sign), self.own_gains[node]
        check.check_gain(gain, best, self._least_gain)
        return gain


_SORTED_AS = 8  # candidates: a category that circuits sort takes about as much memory


def _instances(shown: HiddenCandidates) -> int:
    """How many candidates take as much memory."""
    return shown.count + _SORTED_AS * sum(map(len, shown.categories))


_MOST_UNREAD = 2**10  # comparisons; one begins at a time unless nodes draw their columns


@dataclass(slots=True)
class _Talk:
    """The talk with a peer about ``nodes`` of a tree, with a limit on the bytes of its parcels."""

    tree: int
    nodes: Sequence[int]
    most_bytes: int
    chain: tuple[str, ...]
    sent: int = 0
    heard: int = 0
    bytes: int = 0
    pieces: list[Values] = field(default_factory=list)
    unread: deque[list[Values]] = field(default_factory=deque)
    waiting: PlanState | None = None


class Circuits:
    """The talks by peer and first node; the active party ``opens`` them.

    ``send`` takes a recipient and a body, ``resume`` a plan and its awaited value.
    """

    def __init__(
        self,
        send: Callable[[str, training.CircuitPiece], None],
        resume: Callable[[PlanState, Any], None],
        *,
        opens: bool,
    ) -> None:
        self._send = send
        self._resume = resume
        self._opens = opens
        self._talks: dict[tuple[str, int], _Talk] = {}

    def begin(
        self,
        peer: str,
        tree: int,
        nodes: Sequence[int],
        most_bytes: int,
        chain: tuple[str, ...] = (),
    ) -> None:
        """Begin a talk about ``nodes`` with ``peer``, which sends a limited number of bytes.

        ``chain``: all peers with a talk, if they are several.
        """
        talk = _Talk(tree, nodes, most_bytes, chain)
        talk.heard = 0 if self._opens else 1  # the opening piece was heard
        self._talks[peer, nodes[0]] = talk

    def end(self, peer: str, node: int) -> None:
        """End a talk: the winners are known. Raises ProtocolError if ``peer`` has sent more."""
        talk = self._talks.pop((peer, node))
        if talk.unread or talk.pieces:
            raise ProtocolError(f"circuits of node {node} continue after their end")

    def follow(self, peer: str, node: int, step: Exchange | Reply, run: PlanState) -> None:
        """Send a parcel of the plan ``run`` of this party's half, or wait for one."""
        talk = self._talks[peer, node]
        if step.pieces:
            self._say(peer, node, talk, step.pieces)
        if isinstance(step, Exchange):
            if talk.unread:
                self._resume(run, talk.unread.popleft())
            else:
                talk.waiting = run

    def _say(self, peer: str, node: int, talk: _Talk, pieces: Sequence[Values]) -> None:
        opening = self._opens and not talk.sent
        for index, values in enumerate(pieces):
            piece = training.CircuitPiece(
                tree=talk.tree,
                node=node,
                parcel=talk.sent,
                piece=index,
                pieces=len(pieces),
                payload=pack_payload(values),
                level=tuple(talk.nodes) if opening else (),
                chain=talk.chain if opening else (),
            )
            self._send(peer, piece)
        talk.sent += 1

    def hear(self, peer: str, body: training.CircuitPiece) -> None:
        """Take a piece of a parcel of ``peer``; after the last one resume the waiting plan.

        Raises:
            ProtocolError: the piece is out of place, or all parcels together are too long.
        """
        talk = self._talks.get((peer, body.node))
        if (
            talk is None
            or body.tree != talk.tree
            or body.level
            or (body.parcel, body.piece) != (talk.heard, len(talk.pieces))
            or len(talk.unread) >= PARCELS_AHEAD
        ):
            raise ProtocolError(f"a piece of circuits of node {body.node}, out of place")
        talk.bytes += payload_bytes(body.payload)
        if talk.bytes > talk.most_bytes or body.pieces > talk.most_bytes + 1:
            raise ProtocolError(
                f"circuits of {talk.bytes:,} bytes or more about node {body.node}; they take "
                f"{talk.most_bytes:,}"
            )
        talk.pieces.append(unpack_payload(body.payload))
        if len(talk.pieces) < body.pieces:
            return
        parcel, talk.pieces = talk.pieces, []
        talk.heard += 1
        if talk.waiting is None:
            talk.unread.append(parcel)
        else:
            run, talk.waiting = talk.waiting, None
            self._resume(run, parcel)


Key = tuple[str, int]
"""The party that hands on, and the first node of a comparison."""


def check_handed_on(tree: int, saved: Mapping[str, training.TreeSaved]) -> None:
    """Check that whatever a party says it was handed in ``tree``, another says it has given.

    Both sign what they say, so that an auditor of either finds who lies.

    Raises:
        Inconsistent: two passive parties differ; it names both.
    """
    given = {(*entry, peer) for peer, body in saved.items() for entry in body.given}
    taken = {(*entry, peer) for peer, body in saved.items() for entry in body.taken}
    unmatched = {entry[:2] for entry in given} ^ {entry[:2] for entry in taken}
    if unmatched:
        node = min(unmatched)[0]
        parties = {peer for number, _, peer in given | taken if number == node}
        raise Inconsistent(
            " or ".join(sorted(parties)),
            f"tree {tree}, node {node}: one says that it handed on what the other was not handed",
            {"tree": tree, "node": node},
        )


class HandedOn:
    """The bests handed on in one tree; ``resume`` takes a waiting plan and its value."""

    def __init__(self, resume: Callable[[PlanState, Any], None]) -> None:
        self._resume = resume
        self._unread: dict[Key, Sequence[Values]] = {}
        self._waiting: dict[Key, PlanState] = {}

    def wait(self, sender: str, node: int, run: PlanState) -> None:
        """Resume the plan ``run`` with the best that ``sender`` hands on, once it has arrived."""
        key = (sender, node)
        if key in self._unread:
            self._resume(run, self._unread.pop(key))
        else:
            self._waiting[key] = run

    def take(self, sender: str, node: int, pieces: Sequence[Values]) -> None:
        """Take the ``pieces`` that ``sender`` hands on. Raises ProtocolError for a repetition."""
        key = (sender, node)
        if key in self._waiting:
            self._resume(self._waiting.pop(key), pieces)
        elif key in self._unread or len(self._unread) >= _MOST_UNREAD:
            raise ProtocolError(f"unexpected shares of node {node}")
        else:
            self._unread[key] = pieces
