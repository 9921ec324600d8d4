"""How does the label holder find the winners of a level, where sums are hidden?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.messages import training
from fedmq.privacy.engine import Best, Contest
from fedmq.privacy.plan import Exchange, Handed, HandOn, Reply
from fedmq.protocol.machine import RunningPlan, on_message
from fedmq.protocol.training.active_continuing import ActiveContinuing
from fedmq.protocol.training.circuits import Circuits, HandedOn
from fedmq.protocol.training.consistency import NodeAnswer
from fedmq.protocol.training.contests import Contests, offer_of
from fedmq.protocol.training.level import Level
from fedmq.protocol.training.states import WINNERS
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["ActiveContests"]


class ActiveContests(ActiveContinuing):
    """Contests the nodes of a level with each peer, once these were asked about.

    Raises:
        ConfigError: as `ActiveContinuing`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._contests: Contests
        self._circuits = Circuits(self._send, self._resume, opens=True)
        self._handed = HandedOn(self._resume)

    @abstractmethod
    def _with_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[Best]) -> None:
        """An owner has made its offers for some nodes."""

    def _await_contests(self, level: Level, builder: TreeBuilder, peers: Sequence[str]) -> None:
        """Nothing is known of the nodes of ``level`` yet."""
        self._contests = Contests(level, peers, builder, self._params)

    def _with_counts(self, peer: str, nodes: Sequence[int], candidates: Sequence[int]) -> None:
        self._contests.answered(peer, nodes, candidates)
        self._contest()

    def _contest(self) -> None:
        """Find the winners of all nodes about which everything is known that can be."""
        for nodes, contests in self._contests.next():
            for peer in self._contests.peers - set(contests):
                self._with_winners(peer, nodes, np.zeros(len(nodes), np.bool_))
            chain = tuple(contests)
            for peer, (candidates, contest) in contests.items():
                self._begin_contest(peer, chain, candidates, contest)

    def _begin_contest(
        self, peer: str, chain: tuple[str, ...], candidates: int, contest: Contest
    ) -> None:
        nodes, tree = contest.nodes, self._contests.tree
        most = self._engine.contest_bytes(len(nodes), candidates, contest.place)
        self._circuits.begin(peer, tree, nodes, most, chain if len(chain) > 1 else ())
        self._run(
            WINNERS,
            self._engine.find_winners(peer, contest),
            partial(self._circuits_end, peer, nodes),
            partial(self._follow_circuits, peer, chain[contest.place.number - 2], nodes[0]),
            NodeAnswer(peer, tree, nodes[0]),
        )

    def _follow_circuits(
        self, peer: str, before: str, node: int, step: Exchange | Reply, run: RunningPlan
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
        offers = [offer_of(won=node_won) for node_won in won.tolist()]
        self._with_offers(nodes, self._parties.index(peer), offers)
