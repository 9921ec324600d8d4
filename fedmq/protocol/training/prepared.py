"""What stands at a feature holder from the setup to the end of a training?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmq.boosting.binning import BinMatrix
from fedmq.privacy.engine import Engine, PassiveHalf
from fedmq.privacy.plan import Values
from fedmq.protocol.events import Effect
from fedmq.protocol.records import Commitment
from fedmq.protocol.training.column_constraints import KeptConstraints
from fedmq.protocol.training.shown_candidates import Showing
from fedmq.protocol.training.sums_counter import SumsCounter
from fedmq.protocol.training.tables import PassiveTable

__all__ = ["PreparedTraining"]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """``constraints`` are those of its columns, ``agreed`` is to be recorded."""

    spec: Engine
    engine: PassiveHalf
    table: PassiveTable
    bins: BinMatrix
    candidates: int
    constraints: KeptConstraints
    setup: Sequence[Values]
    showing: Showing
    counter: SumsCounter
    agreed: Sequence[Effect]
    commitment: Commitment | None
