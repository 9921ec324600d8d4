"""What does a feature holder answer about the trees of an earlier model, before new ones grow?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.continued import continued_passive
from fedmq.boosting.model.share import PassiveShare
from fedmq.computation import Computation
from fedmq.errors import ProtocolError, Refused
from fedmq.messages.array import Bitmap
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.hops import AnswerHop
from fedmq.protocol.machine import Machine, on_message
from fedmq.protocol.records import PassiveTree
from fedmq.protocol.training.continuation import check_earlier
from fedmq.protocol.training.states import EARLIER_DIRECTIONS
from fedmq.protocol.training.tables import PassiveTable

__all__ = ["FindShare", "PassiveContinuing"]

FindShare = Callable[[str], Computation]
"""Finds this party's share of a model by its name; None where there is none."""


class PassiveContinuing(Machine):
    """Says where rows go in the earlier trees; no tree has begun in this attempt."""

    _find_share: FindShare | None
    _earlier: tuple[PassiveShare, PassiveTable] | None = None
    _terms: TrainingOpen
    _saved: tuple[PassiveTree, ...] | None
    """The trees of earlier attempts, until the first tree of this one has begun."""

    def _finding(self, party: str, table: PassiveTable) -> Plan[None]:
        """Find this party's share of the model that the terms name; Refused without it."""
        model = self._terms.earlier_model
        if not model:
            return
        if self._find_share is None:
            raise Refused(f"{party} continues no models")
        share: PassiveShare | None = yield from single(self._find_share(model))
        if share is None:
            raise Refused(f"{party} has no share of model {model!r}")
        check_earlier(party, share, table, self._terms)
        self._earlier = share, table

    @on_message(InferenceHop)
    def _on_hop(self, peer: str, hop: InferenceHop) -> None:
        if self._earlier is None or self._saved is None:
            raise ProtocolError("directions in trees of an earlier model, out of place")
        share, table = self._earlier
        rows, records = hop.rows.numpy(), hop.records.numpy()
        if (len(rows) and int(rows.max()) >= len(table.values)) or (
            len(records) and int(records.max()) >= len(share.lookup_table)
        ):
            raise ProtocolError(f"hop {hop.hop} asks for rows or records that do not exist")
        here = rows.astype(np.int64)
        counts = hop.counts.numpy()
        computation = AnswerHop(share.lookup_table, table.values, records, counts, here)
        answer = partial(self._answer_hop, peer, hop.hop)
        self._run(EARLIER_DIRECTIONS, single(computation), answer)

    def _answer_hop(self, peer: str, hop: int, left: NDArray[np.bool_]) -> None:
        self._send(peer, HopReply(hop=hop, left=Bitmap.of(left)))

    def _with_earlier(self, share: PassiveShare) -> PassiveShare:
        """``share`` of the new trees, with the records of those that they continue."""
        trees = self._terms.earlier_trees
        if self._earlier is not None:
            return continued_passive(self._earlier[0], share, trees)
        later = tuple((tree + trees, node) for tree, node in share.places)
        return share.model_copy(update={"places": later})
