"""With what does a passive party go into a training, and how does it take up an earlier model?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.model.continued import continued_passive
from fedmq.boosting.model.share import PassiveShare
from fedmq.computation import Computation
from fedmq.errors import ProtocolError, Refused
from fedmq.messages.array import Bitmap
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import Engine, PassiveHalf
from fedmq.privacy.plan import Plan, Values, single
from fedmq.protocol.hops import AnswerHop
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.records import Commitment, SumBudget
from fedmq.protocol.training.candidates import DisclosureRules
from fedmq.protocol.training.columns import KeptConstraints
from fedmq.protocol.training.continuation import check_earlier
from fedmq.protocol.training.states import EARLIER_DIRECTIONS
from fedmq.protocol.training.sums_counter import SumsCounter
from fedmq.protocol.training.tables import PassiveTable

__all__ = ["EarlierDirections", "FindShare", "PassiveTerms", "PreparedTraining"]

FindShare = Callable[[str], Computation]
"""Finds this party's share of a model by its name; None where there is none."""


@dataclass(frozen=True, slots=True)
class PassiveTerms:
    """What holds for a whole session: the terms that the ``active`` party has ``asked`` for, and
    what the owner of this ``party`` sets.

    Nodes in which fewer than ``smallest_node`` rows carry a gradient are declined.
    """

    party: str
    active: str
    asked: TrainingOpen
    smallest_node: int


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """What stands from the setup to the end of a training.

    ``constraints`` are those of the party's columns, ``agreed`` is to be recorded.
    """

    spec: Engine
    engine: PassiveHalf
    table: PassiveTable
    bins: BinMatrix
    candidates: int
    constraints: KeptConstraints
    setup: Sequence[Values]
    rules: DisclosureRules
    counter: SumsCounter
    agreed: Sequence[SumBudget]
    commitment: Commitment | None


class EarlierDirections(Part):
    """Answers where rows go in the trees of an earlier model, before new trees grow."""

    def __init__(self, machine: Machine, find_share: FindShare | None) -> None:
        super().__init__(machine)
        self._find_share = find_share
        self._earlier: tuple[PassiveShare, PassiveTable] | None = None
        self._ended = False

    def find(self, party: str, table: PassiveTable, terms: TrainingOpen) -> Plan[None]:
        """Find the share of ``party`` in the model that the terms name; Refused without it."""
        model = terms.earlier_model
        if not model:
            return
        if self._find_share is None:
            raise Refused(f"{party} continues no models")
        share: PassiveShare | None = yield from single(self._find_share(model))
        if share is None:
            raise Refused(f"{party} has no share of model {model!r}")
        check_earlier(party, share, table, terms)
        self._earlier = share, table

    @on_message(InferenceHop)
    def _on_hop(self, peer: str, hop: InferenceHop) -> None:
        if self._earlier is None or self._ended:
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

    def end(self) -> None:
        """The first tree of this attempt begins: no directions are asked for any more."""
        self._ended = True

    def continued(self, share: PassiveShare, trees: int) -> PassiveShare:
        """``share`` of the new trees, with the records of the ``trees`` that they continue."""
        if self._earlier is not None:
            return continued_passive(self._earlier[0], share, trees)
        later = tuple((tree + trees, node) for tree, node in share.places)
        return share.model_copy(update={"places": later})
