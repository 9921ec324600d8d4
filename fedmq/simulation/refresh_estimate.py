"""An estimate of what a refresh costs: some rows walk down the trees here, and count for all.

The passive parties are stand-ins, whose splits send as many rows left as those of the training did.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.refreshed import check_refreshable, refreshed
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.share import ActiveShare
from fedmq.computation import Given
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.operations.broker import BrokerLatency
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Timeline
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.score_estimate import shares_standing_in

__all__ = ["RefreshEstimate", "RefreshingParty", "estimate_refresh"]

_MOST_ROWS = 5_000
_STAGES = 5  # of a message: sent, kept, fetched, settled, confirmed
_FREE = BrokerLatency(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class RefreshingParty:
    """The cost for one party: core seconds, and bytes each way."""

    core_seconds: float
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True, slots=True)
class RefreshEstimate:
    """The cost of a refresh: ``seconds`` on the clock, of all parties together on one machine.

    ``rounds``: questions after one another, of all rows together.
    """

    trees: int
    rounds: int
    seconds: float
    parties: Mapping[str, RefreshingParty]


def estimate_refresh(
    share: ActiveShare,
    active: NDArray[np.float32],
    label: NDArray[np.float32],
    broker: BrokerLatency = _FREE,
    seed: int = 0,
) -> RefreshEstimate:
    """Estimate a refresh of ``share`` on ``active`` (rows, features) with ``label`` of these rows.

    Raises:
        ConfigError: the model is of a kind that is not refreshed.
        DataError: the active party has other columns.
    """
    check_refreshable(share)
    random = np.random.default_rng(seed)
    rows = min(len(active), _MOST_ROWS)
    taken = np.sort(random.choice(len(active), rows, replace=False))
    trace, traffic = Timeline(), Traffic()
    begun = time.perf_counter()
    _walk(share, active[taken], random, trace, traffic)
    leaves = [
        random.choice(np.flatnonzero(tree.is_leaf), rows).astype(np.int32)
        for tree in share.grown_trees
    ]
    weighing = time.perf_counter()
    refreshed(share, leaves, label[taken])
    ended = time.perf_counter()
    times = len(active) / rows
    sent, received, messages = _volumes(traffic)
    if times > 1:  # what half of them take says what messages take without rows
        less = Traffic()
        _walk(share, active[taken[::2]], random, Timeline(), less)
        fewer = _volumes(less)
        more = (len(active) - rows) / (rows - len(taken[::2]))
        for large, small in zip((sent, received), fewer[:2], strict=True):
            large.update({party: round((large[party] - small[party]) * more) for party in small})
    own = share.parties[0]
    busy: defaultdict[str, float] = defaultdict(float)
    for (party, _), seconds in trace.busy.items():
        busy[party] += seconds
    busy[own] += ended - weighing
    rounds = max((trace.turns(own, party) for party in share.parties[1:]), default=0)
    on_the_way = _STAGES * messages * broker.message
    if broker.is_far:
        on_the_way = rounds * broker.message
    on_the_way += broker.byte * sum(sent.values())
    return RefreshEstimate(
        len(share.grown_trees),
        rounds,
        (ended - begun) * times + on_the_way,
        {
            party: RefreshingParty(busy[party] * times, sent[party], received[party])
            for party in share.parties
        },
    )


def _walk(
    share: ActiveShare,
    values: NDArray[np.float32],
    random: np.random.Generator,
    trace: Timeline,
    traffic: Traffic,
) -> None:
    """The rows of ``values`` walk down the trees of ``share``, as before they are refreshed."""
    own, standing_in = share.parties[0], shares_standing_in(ServedForest.of(share))
    asking = ActiveInference(share, values)
    machines: dict[str, Machine] = {own: asking}
    for party in asking.peers:
        held = standing_in[party]
        columns = len(held.lookup_table)
        made_up = random.random((len(values), columns)).astype(np.float32)
        asked = Given(PassiveRows(held, made_up, None))
        machines[party] = PassiveInference(own, asked)

    async def run() -> list[Any]:
        return await run_machines(machines, ThreadPool(), MEMORY, "inference", traffic, trace=trace)

    in_own_loop(run())


def _volumes(traffic: Traffic) -> tuple[Counter[str], Counter[str], int]:
    """Bytes that each party sent and received, and all messages."""
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for sender, recipient in traffic.volumes:
        together = traffic.between(sender, recipient).bytes
        sent[sender] += together
        received[recipient] += together
    return sent, received, traffic.total.messages
