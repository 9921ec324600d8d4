"""What does the label holder ask about the trees of an earlier model, before new ones grow?

All rows walk down them, as in an inference: the margins where they arrive are those with which the
first new round begins (XGBoost's ``xgb_model``).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.continued import continued_active, places_digest, places_of
from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Forest
from fedmq.errors import ProtocolError
from fedmq.messages.inference import HopReply
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.plan import single
from fedmq.protocol.hops import Hop, Walked, WalkOn
from fedmq.protocol.machine import on_message
from fedmq.protocol.training.active_opening import ActiveOpening
from fedmq.protocol.training.model_builder import ModelBuilder
from fedmq.protocol.training.states import ALL_READY, CONTINUES, EARLIER_MARGINS, WALK

__all__ = ["ActiveContinuing"]


@dataclass(frozen=True, slots=True, eq=False)
class AddLeaves:
    """The ``margins`` of rows after trees in whose ``leaves`` (rows, trees) they arrived."""

    label: ClassVar[str] = "AddLeaves"
    forest: Forest
    leaves: NDArray[np.int32]
    margins: NDArray[np.float32]

    def run(self) -> NDArray[np.float32]:
        return self.forest.added(self.leaves, self.margins)


class ActiveContinuing(ActiveOpening):
    """Walks all rows down the trees of an earlier model, where there is one.

    In every attempt: a checkpoint may be of any tree, or of none.
    """

    @abstractmethod
    def _begin(self) -> None:
        """Margins are those before the first new tree."""

    def _opened(self) -> None:
        if self._earlier is None:
            self._move(ALL_READY)
            self._begin()
            return
        self._move(CONTINUES)
        share = self._earlier
        self._forest = Forest.of(share.trees, share.params)
        rows = len(self._table.label)
        self._nodes = np.tile(self._forest.roots, rows)
        self._hops: dict[tuple[str, int], Hop] = {}
        self._hops_sent = self._walking = 0
        self._walk(np.arange(rows * len(self._forest.roots)), None)

    def _opening_for(self, peer: str, opening: TrainingOpen) -> TrainingOpen:
        opening = super()._opening_for(peer, opening)
        if self._earlier is None:
            return opening
        share = self._earlier
        known = places_of(share, peer) if peer in share.parties else ()
        named = share.model_id if peer in share.parties else ""
        return opening.model_copy(
            update={
                "earlier_model": named,
                "earlier_trees": len(share.trees),
                "earlier_places": places_digest(known),
            }
        )

    def _walk(self, pairs: NDArray[np.int64], left: NDArray[np.bool_] | None) -> None:
        assert self._earlier is not None
        self._walking += 1
        table, values = self._earlier.lookup_table, self._table.values
        computation = WalkOn(self._forest, table, values, pairs, self._nodes[pairs], left)
        self._run(WALK, single(computation), self._with_walked)

    def _with_walked(self, walked: Walked) -> None:
        assert self._earlier is not None
        self._walking -= 1
        self._nodes[walked.pairs] = walked.nodes
        for hop in walked.hops:
            peer = self._earlier.parties[hop.owner]
            self._hops_sent += 1
            self._hops[peer, self._hops_sent] = hop
            self._send(peer, hop.body(self._hops_sent))
        if not self._walking and not self._hops:
            leaves = self._nodes.reshape(len(self._table.label), -1)
            assert isinstance(self._model, ModelBuilder)  # nobody continues by folds
            adding = AddLeaves(self._forest, leaves, self._model.first_margin)
            self._run(EARLIER_MARGINS, single(adding), self._with_margins)

    @on_message(HopReply)
    def _on_hop_reply(self, peer: str, body: HopReply) -> None:
        hop = self._hops.get((peer, body.hop))
        if hop is None or body.left.count != len(hop.pairs):
            raise ProtocolError(f"directions for hop {body.hop} that were not asked for")
        del self._hops[peer, body.hop]
        self._walk(hop.pairs, body.left.numpy())

    def _with_margins(self, margins: NDArray[np.float32]) -> None:
        del self._forest, self._nodes
        assert isinstance(self._model, ModelBuilder)
        self._model.first_margin = margins
        self._begin()

    def _finished(self, made: ActiveShare | CrossValidated) -> ActiveShare | CrossValidated:
        """The share ``made`` of the new trees, with those that they continue."""
        if self._earlier is None or isinstance(made, CrossValidated):
            return made
        return continued_active(self._earlier, made)
