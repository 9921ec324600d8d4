"""Do the nodes that a passive party is asked about, and splits, belong to one tree?

Where rows are hidden it cannot see who stands in a node: then each question may be about other
rows, and each split shows where everybody goes. It knows how nodes are numbered, and the terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedmq.boosting.splits import ROOT, depth, parent, sibling
from fedmq.errors import ProtocolError
from fedmq.messages.training import TrainingOpen
from fedmq.protocol.records import most_nodes

__all__ = ["AskedNodes"]


class AskedNodes:
    """The nodes of a tree under ``terms``; each is asked about in ``rounds`` rounds at most.

    A question tells of ``nodes_per_query`` nodes at most and of their siblings, of one depth: so
    many of a depth may be split by this party.
    A node that is asked about, or split, stands below splits, whoever made them.
    """

    def __init__(self, terms: TrainingOpen, rounds: int, nodes_per_query: int = 1) -> None:
        self._most_depth = terms.max_depth
        self._most_rounds = rounds
        self._most_nodes = most_nodes(terms.max_depth, terms.rows, terms.max_leaves)
        splits = most_nodes(terms.max_depth, terms.rows)
        self._most_splits = min(splits, terms.max_leaves - 1) if terms.max_leaves else splits
        self._rounds: dict[int, int] = {}
        """Rounds of questions by node."""
        self._splits: set[int] = set()
        self._decoys: set[int] = set()
        self._contested: set[int] = set()
        self._nodes_per_question = 2 * nodes_per_query
        self._may_split: Counter[int] = Counter()
        """So many nodes by depth, of those that were asked about."""

    def ask(self, node: int, number: int) -> None:
        """Round ``number`` of the questions about ``node``.

        Raises:
            ProtocolError: it is not the next one, or no tree of these terms has the node as well.
        """
        self._check_stands(node)
        first = node not in self._rounds
        if number != self._rounds.get(node, 0) or number >= self._most_rounds:
            raise ProtocolError(f"round {number} of questions about node {node} is not next")
        self._rounds[node] = number + 1
        if len(self._rounds) > self._most_nodes:
            raise ProtocolError(f"sums of more than {self._most_nodes:,} nodes of a tree")
        self._add_splits(parent(node))
        self._may_split[depth(node)] += self._nodes_per_question if first else 0

    def contest(self, nodes: Sequence[int]) -> None:
        """The winners of ``nodes`` are to be found, where sums are hidden.

        Raises:
            ProtocolError: there are none, or one of them was not asked about, or contested before.
        """
        for node in nodes:
            asked = node in self._rounds or (node > ROOT and sibling(node) in self._rounds)
            if not asked or node in self._contested:
                raise ProtocolError(f"a contest of node {node}, which is not next")
            self._contested.add(node)
        if not nodes:
            raise ProtocolError("a contest of no nodes")

    def split(self, node: int) -> None:
        """``node`` is split by this party.

        Raises:
            ProtocolError: it was split before, or no tree of these terms has the node as well.
        """
        self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a split of node {node} after a decoy about it")
        if not self._may_split[depth(node)]:
            raise ProtocolError(f"a split of node {node}, but no question about its level")
        self._add_splits(node)
        self._may_split[depth(node)] -= 1

    def decoy(self, node: int) -> None:
        """A decision about ``node`` is a decoy: this party does not split it.

        Raises:
            ProtocolError: it was decided about before, or no tree of these terms has the node.
        """
        self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a second decoy about node {node}")
        self._decoys.add(node)

    def _check_stands(self, node: int) -> None:
        if depth(node) >= self._most_depth:
            raise ProtocolError(f"node {node} lies below max_depth = {self._most_depth}")
        if node in self._splits:
            raise ProtocolError(f"node {node} has been split before")

    def _add_splits(self, node: int) -> None:
        """``node`` and all above it are splits."""
        while node and node not in self._splits:
            self._splits.add(node)
            node = parent(node)
        if len(self._splits) > self._most_splits:
            raise ProtocolError(f"more than {self._most_splits:,} splits of a tree")
