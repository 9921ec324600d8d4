"""Scores of rows by all shares of a model, through the daemons' machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import first_margins
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.computation import Given
from fedmq.errors import DataError
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.telemetry.metrics import Traffic
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.simulation.active_table import ACTIVE
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines

__all__ = ["scored"]


def scored(
    share: ActiveShare,
    passive_shares: Mapping[str, PassiveShare],
    values: Mapping[str, NDArray[np.float32]],
    base_margin: Any = None,
) -> Scores:
    """Margins and predictions of rows; ``values`` float32 (rows, trained features) by party.

    ``base_margin``, (rows,) or (rows, classes): where each row starts, not at the base score.

    Raises:
        DataError: a party has another number of rows, or ``base_margin`` has.
    """
    rows = len(values[ACTIVE])
    first = None
    if base_margin is not None:
        first = first_margins(base_margin, rows, share.params.outputs, ACTIVE)
    machine = ActiveInference(share, values[ACTIVE], base_margin=first)
    machines: dict[str, Machine] = {ACTIVE: machine}
    for party, held in passive_shares.items():
        if len(values[party]) != rows:
            raise DataError(f"{party} has {len(values[party])} rows, {ACTIVE} has {rows}")
        if party in machine.peers:
            asked = Given(PassiveRows(held, values[party], None))
            machines[party] = PassiveInference(ACTIVE, asked)
    if not rows:
        several = share.params.outputs > 1
        nothing = np.empty((0, share.params.outputs) if several else 0, np.float32)
        named = several and share.params.objective == "multi:softmax"
        return Scores(nothing, nothing[:, 0] if named else nothing)

    async def score() -> list[Any]:
        return await run_machines(machines, ThreadPool(), MEMORY, "inference", Traffic())

    scores: Scores = in_own_loop(score())[0]
    return scores
