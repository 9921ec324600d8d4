"""Time, traffic and memory of small trainings like a job's, measured on this machine.

They use a daemon's pool of worker processes, machines, messages and store, over a broker in memory.
The other parties' columns are synthetic: each party has its number of columns, each column has as
many distinct values as bins, and every column helps the model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Tree
from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.store.database import Database
from fedmq.party.store.journal import Journal, SessionStore, StoredSession, StoreJournal
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import engine_named
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.simulation.in_process import MEMORY, run_machines
from fedmq.simulation.memory_watch import MemoryWatch
from fedmq.simulation.simulate import chained
from fedmq.simulation.tables import ACTIVE

__all__ = ["Calibration", "Measurement"]

_SHORT_TREE = 2.0  # seconds; if a tree takes less, several trees are measured
_SEVERAL_TREES = 5
# The share of synthetic values that the label shifts by half of their range. These columns then win
# splits, but nodes do not become pure too soon.
_SIGNAL = 0.2


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of one training per tree, without the first tree and the last.

    The first tree also makes keys and tables; the last one prepares no next tree.
    ``seconds`` on the clock, ``first`` more for the first tree; ``work``: seconds of cores by party
    and computation; ``sent`` and ``received``: bytes, by party, and ``sent_once`` and
    ``received_once`` those that came on top for once; ``grown``: by how many bytes this process
    grew, ``code``: bytes of the libraries that processes share, and ``in_workers``: those that a
    party's workers have for themselves; ``messages`` of the active party with the one that it
    exchanges most with, and ``rounds`` of their talk, there and back; ``splits`` of a tree;
    ``files``: the most that a process had open at once.
    """

    rows: int
    seconds: float
    first: float
    grown: int
    code: int
    in_workers: Mapping[str, int]
    work: Mapping[tuple[str, str], float]
    sent: Mapping[str, float]
    received: Mapping[str, float]
    sent_once: Mapping[str, float]
    received_once: Mapping[str, float]
    messages: float
    rounds: float
    splits: float
    files: int = 0

    def busy(self, party: str) -> float:
        """Seconds of cores that ``party`` takes."""
        return sum(spent for (by, _), spent in self.work.items() if by == party)


class _Trees:
    """Records the time, core seconds and bytes so far at the end of each tree."""

    def __init__(self, trace: Timeline, traffic: Traffic) -> None:
        self._trace, self._traffic = trace, traffic
        self._ends = [time.time()]
        self._busy = [dict(trace.busy)]
        self._sent = [self.all_sent()]

    def ended(self, _: Report) -> None:
        """Record the end of a tree."""
        self._ends.append(time.time())
        self._busy.append(dict(self._trace.busy))
        self._sent.append(self.all_sent())

    def seconds(self) -> list[float]:
        """Seconds that each tree took on the clock."""
        return np.diff(self._ends).tolist()

    def work(self) -> dict[tuple[str, str], float]:
        """Seconds of cores that a tree takes, by party and computation.

        The median of the trees but the first and the last: a worker that translates a kernel does
        so once, not once a tree.
        """
        return _of_a_tree(self._busy)

    def all_sent(self) -> dict[tuple[str, str], int]:
        """Bytes so far, by sender and recipient."""
        traffic = self._traffic
        return {pair: traffic.between(*pair).bytes for pair in traffic.volumes}

    def sent(self) -> dict[tuple[str, str], float]:
        """Bytes of a tree, by sender and recipient; the median of the same trees."""
        return _of_a_tree(self._sent)


def _of_a_tree(so_far: Sequence[Mapping[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """By what the entries grew from one inner tree to the next: the median."""
    inner = so_far[1:-1]
    return {
        key: float(median(np.diff([seen.get(key, 0.0) for seen in inner]))) for key in inner[-1]
    }


class Calibration:
    """Trains on some of ``active`` (rows, features) and ``label`` (rows,).

    ``passive``: how many bins each column of each other party fills. ``pools``: of each party;
    parties that compute the same may share one. ``folder``: where stores are made, and removed
    afterwards. ``decoys``: see `TrainingJob`. ``stands_for``: of how many rows the table is a
    sample; its own number when left out.
    """

    def __init__(
        self,
        active: NDArray[np.float32],
        label: NDArray[np.float32],
        passive: Mapping[str, Sequence[int]],
        params: TrainParams,
        engine: Engine,
        pools: Mapping[str, ProcessPool],
        folder: Path | None = None,
        *,
        decoys: bool = False,
        stands_for: int | None = None,
    ) -> None:
        self._active, self._label = active, label
        self._all_rows = stands_for or len(label)
        self._passive = passive
        self._params, self._engine = params, engine
        self._pools = pools
        self._folder = folder
        self._decoys = decoys
        self._random = np.random.default_rng(0)

    async def train(self, rows: int, expected: float | None = None) -> Measurement:
        """Train on ``rows`` of the rows; ``expected``: seconds per tree, if known.

        More rows than the sample has repeat it: then the same kernels are at work as on the table.
        """
        several = expected is not None and expected < _SHORT_TREE
        trace, traffic = Timeline(), Traffic()
        trees = _Trees(trace, traffic)
        params = self._scaled(rows, 2 + (_SEVERAL_TREES if several else 1))
        with MemoryWatch(workers={by: pool.workers for by, pool in self._pools.items()}) as watch:
            async with self._journals() as journals:
                share, *_ = await run_machines(
                    self._machines(rows, params, self._engine),
                    self._pools,
                    MEMORY,
                    "training",
                    traffic,
                    trees.ended,
                    trace,
                    journals=journals,
                )
        first, *later, _ = trees.seconds()
        seconds = median(later)
        volumes = trees.sent()
        once = {
            pair: max(0.0, size - params.total_trees * volumes.get(pair, 0.0))
            for pair, size in trees.all_sent().items()
        }
        parties = (ACTIVE, *self._passive)
        messages = {
            party: sum(traffic.between(*pair).messages for pair in traffic.volumes if party in pair)
            for party in self._passive
        }
        return Measurement(
            rows,
            seconds,
            max(0.0, first - seconds),
            watch.grown,
            watch.code,
            watch.of_workers,
            trees.work(),
            {party: sum(v for (by, _), v in volumes.items() if by == party) for party in parties},
            {party: sum(v for (_, to), v in volumes.items() if to == party) for party in parties},
            {party: sum(v for (by, _), v in once.items() if by == party) for party in parties},
            {party: sum(v for (_, to), v in once.items() if to == party) for party in parties},
            max(messages.values(), default=0) / params.total_trees,
            max((trace.turns(ACTIVE, party) for party in self._passive), default=0)
            / (2 * params.total_trees),
            self._splits(share),
            watch.files,
        )

    async def splits(self, rows: int) -> float:
        """The number of splits of a tree on ``rows`` of the rows, measured without encryption."""
        params = self._scaled(rows, 2)
        machines = self._machines(rows, params, engine_named("plain", {}, "estimate"))
        share, *_ = await run_machines(machines, ThreadPool(), MEMORY, "training", Traffic())
        return self._splits(share)

    def _splits(self, share: ActiveShare) -> float:
        """Splits of an average tree; with hidden sums, its compared nodes."""
        if self._engine.hides_sums:
            depth = self._params.max_depth
            return float(np.mean([_nodes_above(tree, depth) for tree in share.trees]))
        return float(np.mean([np.sum(~tree.is_leaf) for tree in share.trees]))

    @asynccontextmanager
    async def _journals(self) -> AsyncIterator[dict[str, Journal]]:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            stores = {party: Database(Path(name) / party) for party in (ACTIVE, *self._passive)}
            for store in stores.values():
                await store.open()
            session = StoredSession("calibration", "calibration", 1)
            try:
                yield {
                    party: StoreJournal(SessionStore(store), session, lambda _: None)
                    for party, store in stores.items()
                }
            finally:
                for store in stores.values():
                    await store.close()

    def _scaled(self, rows: int, trees: int) -> TrainParams:
        """The parameters under which fewer rows grow trees of about as many nodes."""
        share = rows / self._all_rows
        less = {name: share * getattr(self._params, name) for name in ("gamma", "min_child_weight")}
        brief: dict[str, Any] = {
            "num_boost_round": trees,
            "num_parallel_tree": 1,
            "early_stopping_rounds": None,
            "active_only_trees": 0,
            **self._constraints(),
        }
        return self._params.model_copy(update=less | brief)

    def _constraints(self) -> dict[str, Any]:
        """Constraints on synthetic columns, which do not have the parties' names.

        They change what circuits compute where sums are hidden, and hardly the trees: one column
        must rise, as all of them do with the label, and each interaction constraint holds all.
        """
        if not self._engine.hides_sums:
            return {"monotone_constraints": {}, "interaction_constraints": ()}
        columns = tuple(f"f{column}" for column in range(self._active.shape[1])) + tuple(
            f"{party}.f{column}"
            for party, bins in self._passive.items()
            for column in range(len(bins))
        )
        rises = {columns[-1]: 1} if self._params.monotone_constraints else {}
        together = (columns,) * len(self._params.interaction_constraints)
        return {"monotone_constraints": rises, "interaction_constraints": together}

    def _machines(self, rows: int, params: TrainParams, engine: Engine) -> dict[str, Machine]:
        chosen = np.sort(np.resize(self._random.permutation(len(self._label)), rows))
        own = self._active[chosen]
        names = tuple(f"f{column}" for column in range(own.shape[1]))
        table = ActiveTable(own, names, self._label[chosen], np.zeros(rows, np.bool_))
        width = self._pools[ACTIVE].parallelism
        machines: dict[str, Machine] = {
            ACTIVE: ActiveTraining(
                "calibration",
                ACTIVE,
                tuple(self._passive),
                table,
                params,
                engine,
                parallelism=width,
                decoys=self._decoys,
            )
        }
        for secret, (party, bins) in enumerate(self._passive.items()):
            names = tuple(f"f{column}" for column in range(len(bins)))
            made_up = Given(PassiveTable(self._made_up(self._label[chosen], bins), names))
            machines[party] = PassiveTraining(
                party,
                ACTIVE,
                made_up,
                lambda _: engine,
                secret,
                parallelism=width,
                others=chained(engine, self._passive, party),
            )
        return machines

    def _made_up(self, label: NDArray[np.float32], bins: Sequence[int]) -> NDArray[np.float32]:
        table = self._random.random((len(label), len(bins)), np.float32)
        moved = self._random.random(table.shape, np.float32) < _SIGNAL
        known = label if label.ndim == 1 else label[:, 0]
        upper = (known > known.mean())[:, None]
        table = np.where(moved, (table + upper) / 2, table).astype(np.float32)
        for column, count in enumerate(bins):
            if count < self._params.max_bin:
                table[:, column] = np.floor(table[:, column] * count)
        return table


def _nodes_above(tree: Tree, max_depth: int) -> int:
    """The number of nodes above the maximum depth; 0 means no bound."""
    depths = np.zeros(len(tree.owner), np.int64)
    for node in np.flatnonzero(~tree.is_leaf):  # the root first
        depths[[tree.left[node], tree.right[node]]] = depths[node] + 1
    return int(np.sum(depths < max_depth)) if max_depth else len(depths)
