"""What a training will take, foretold from two small ones of the same kind.

The same machines, engine and parameters train on a few rows, twice, and what is seen is drawn out
along a straight line: all that an engine does grows by the row, the rest by the tree. The other
parties' columns are made up, as many as they are said to hold, all of different values: columns of
few values, or of missing ones, take less.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.party.compute import cores
from fedmq.party.memory_watch import MemoryWatch
from fedmq.party.simulated_model import ACTIVE
from fedmq.party.simulation import simulate
from fedmq.party.trace import Trace

__all__ = ["Estimate", "PartyEstimate", "estimate"]

_FEWEST_ROWS = 1000
_TREES = 2  # after the first, which makes keys and tables
_BUDGET = 5.0  # seconds for the second, larger training


@dataclass(frozen=True, slots=True)
class PartyEstimate:
    """What one party is in for: seconds of its cores, and bytes that it sends."""

    core_seconds: float
    bytes_sent: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a whole training.

    ``together``: seconds if all parties share this machine; ``apart``: if each has one like it.
    ``memory``: bytes that all parties together take at their peak, and so more than any of them.
    """

    trees: int
    together: float
    apart: float
    memory: float
    parties: Mapping[str, PartyEstimate]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Seconds and bytes of one small training; per tree where not said otherwise."""

    rows: int
    seconds: float
    first: float
    waited: float
    memory: float
    busy: Mapping[str, float]
    sent: Mapping[str, float]


def estimate(
    *,
    active: NDArray[np.float32],
    label: NDArray[np.float32],
    passive: Mapping[str, int],
    params: TrainParams,
    engine: str,
    engine_options: Mapping[str, Any],
    workers: int | None = None,
) -> Estimate:
    """Foretell a training on ``active`` (rows, features) and ``label`` (rows,).

    ``passive``: how many columns each of the others holds. Takes about ten seconds. Raises what
    `simulate` raises.
    """
    rows = len(label)

    def seen(count: int) -> _Seen:
        return _train(
            active, label, passive, params, engine, engine_options, workers, min(count, rows)
        )

    small = seen(_FEWEST_ROWS)
    per_row = max(small.seconds, 1e-4) / small.rows
    more = max(4 * _FEWEST_ROWS, int(_BUDGET / (_TREES + 1) / per_row))
    whole = _drawn_out(small, seen(more), rows) if rows > _FEWEST_ROWS else small
    trees, width = params.num_boost_round, workers or cores()
    others = max((whole.busy[party] for party in passive), default=0.0)
    apart = (whole.busy[ACTIVE] + others) / width + whole.waited
    return Estimate(
        trees=trees,
        together=whole.seconds * trees + whole.first,
        apart=apart * trees + whole.first,
        memory=whole.memory,
        parties={
            party: PartyEstimate(whole.busy[party] * trees, whole.sent[party] * trees)
            for party in (ACTIVE, *passive)
        },
    )


def _train(
    active: NDArray[np.float32],
    label: NDArray[np.float32],
    passive: Mapping[str, int],
    params: TrainParams,
    engine: str,
    options: Mapping[str, Any],
    workers: int | None,
    rows: int,
) -> _Seen:
    random = np.random.default_rng(0)
    chosen = np.sort(random.permutation(len(label))[:rows])
    made_up = {
        party: random.random((rows, count)).astype(np.float32) for party, count in passive.items()
    }
    trace, done = Trace(), [time.time()]
    brief = {"num_boost_round": _TREES + 1, "early_stopping_rounds": None, "active_only_trees": 0}
    with MemoryWatch() as watch:
        model = simulate(
            active=active[chosen],
            label=label[chosen],
            passive=made_up,
            params=params.model_copy(update=brief),
            engine=engine,
            engine_options=options,
            workers=workers,
            trace=trace,
            on_report=lambda _: done.append(time.time()),
        )
    seconds = float(np.diff(done)[1:].min())  # the one that other work disturbed least
    busy: dict[str, float] = defaultdict(float)
    for (party, _), spent in trace.busy.items():
        busy[party] += spent / (_TREES + 1)
    sent: dict[str, float] = defaultdict(float)
    for (sender, _), kinds in model.traffic.items():
        sent[sender] += sum(each.bytes for each in kinds.values()) / (_TREES + 1)
    waited = max(0.0, seconds - sum(busy.values()) / (workers or cores()))
    first = max(0.0, float(done[1] - done[0]) - seconds)
    return _Seen(rows, seconds, first, waited, watch.peak, busy, sent)


def _drawn_out(small: _Seen, large: _Seen, rows: int) -> _Seen:
    """What ``rows`` rows will show, if all grows along the line through two points."""
    share = (rows - large.rows) / (large.rows - small.rows)

    def drawn(before: float, after: float) -> float:
        return after + max(0.0, after - before) * share

    parties = large.busy.keys() | large.sent.keys()
    return replace(
        large,
        rows=rows,
        seconds=drawn(small.seconds, large.seconds),
        memory=drawn(small.memory, large.memory),
        busy={each: drawn(small.busy[each], large.busy[each]) for each in parties},
        sent={each: drawn(small.sent[each], large.sent[each]) for each in parties},
    )
