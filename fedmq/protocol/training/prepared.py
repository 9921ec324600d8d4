"""What stands at a feature holder from the setup to the end of a training?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.privacy.engine import Engine, PassiveHalf
from fedmq.privacy.plan import Values
from fedmq.protocol.events import Effect
from fedmq.protocol.training.shown_candidates import Showing
from fedmq.protocol.training.sums_counter import SumsCounter
from fedmq.protocol.training.tables import PassiveTable
from fedmq.protocol.transcript import Commitment

__all__ = ["PreparedTraining"]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """``signs`` int8 (columns,) are those of monotone constraints, ``agreed`` is to be recorded."""

    spec: Engine
    engine: PassiveHalf
    table: PassiveTable
    bins: BinMatrix
    candidates: int
    signs: NDArray[np.int8]
    """Of the columns, under monotone constraints; 0 where there is none."""
    setup: Sequence[Values]
    showing: Showing
    counter: SumsCounter
    agreed: Sequence[Effect]
    commitment: Commitment | None
