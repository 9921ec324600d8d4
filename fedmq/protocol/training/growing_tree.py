"""What does a passive party know of the tree that grows?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.node_numbers import ROOT
from fedmq.errors import ProtocolError
from fedmq.messages.training import SplitDecision
from fedmq.privacy.plan import Values
from fedmq.protocol.training.histogram_requests import HistogramRequests
from fedmq.protocol.training.node_candidates import NodeCandidates
from fedmq.protocol.training.node_rows import NodeRows
from fedmq.protocol.training.shown_candidates import ShownCandidates

__all__ = ["GrowingTree"]


class GrowingTree:
    """What stands while tree ``number`` grows; ``pieces`` of its broadcast are to come.

    ``keeps_numbers``: a candidate has one number in all nodes, unless nodes draw their columns.
    """

    def __init__(
        self,
        number: int,
        pieces: int,
        candidates: NodeCandidates,
        shown: ShownCandidates,
        rows: NodeRows,
        records_before: int,
        *,
        keeps_numbers: bool,
    ) -> None:
        self.number = number
        self.candidates = candidates
        self.rows = rows
        self.records_before = records_before
        self.requests = HistogramRequests(number)
        self.shown = shown
        self.directions_asked: dict[int, list[Values]] = defaultdict(list)
        """What came before the decision about a node."""
        self.to_arrive = pieces
        self.to_take = pieces
        """Pieces that the engine has not taken in yet."""
        self._one_order = keeps_numbers and not candidates.narrows

    def order(self, node: int) -> NDArray[np.int64] | None:
        """The order in which the candidates of a node were shown; None if they never were."""
        return self.shown.order(ROOT if self._one_order else node)

    def winner(self, body: SplitDecision) -> int:
        """The candidate by which its node is split.

        Candidates that tie come together: the first in this party's own order is XGBoost's.

        Raises:
            ProtocolError: the node was not shown, or shows no such candidate.
        """
        order, chosen = self.order(body.node), body.candidates.numpy()
        if order is None or not len(chosen) or int(chosen.max()) >= len(order):
            raise ProtocolError(f"a split of node {body.node} by a candidate it does not have")
        return int(order[chosen].min())
