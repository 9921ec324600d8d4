"""What it costs that a training outlives crashes: seconds per tree with and without the store.

::

    python benchmarks/durability.py DATA --broker amqp://USER:PASSWORD@HOST:PORT/
                                    [--trees 20] [--depth 3] [--bins 32] [--repeats 5] [--json]

DATA is a folder with ``credit2_active.csv`` and ``credit2_passive.csv``, 30,000 rows. Two parties
train with the plain engine in one process over RabbitMQ, which makes everything but the arithmetic
count most. Runs with and without a store take turns; the medians and their ratio are shown, and
the median time until a tree is on one party's disk. The user must be allowed to declare queues;
they are deleted afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fedmq
from fedmq.party.compute import ThreadPool
from fedmq.party.configuration.party import DataSection
from fedmq.party.in_process import run_machines
from fedmq.party.keeper import Keeper, StoreKeeper
from fedmq.party.store.database import Database
from fedmq.party.store.sessions import SessionStore, StoredSession
from fedmq.party.tables import LoadActiveTable, LoadPassiveTable
from fedmq.party.traffic import Traffic
from fedmq.privacy.engine import Given
from fedmq.privacy.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.step import Step
from fedmq.protocol.training_active import ActiveTraining
from fedmq.protocol.training_passive import PassiveTraining
from fedmq.protocol.training_tables import ActiveTable, PassiveTable

LABEL = "default.payment.next.month"


class TimedKeeper(StoreKeeper):
    """Notes how long each tree takes to be on disk."""

    def __init__(self, store: SessionStore, seconds: list[float]) -> None:
        super().__init__(store, StoredSession("session", "m", 1), lambda _: None)
        self._seconds = seconds

    async def save(self, step: Step) -> None:
        begun = time.perf_counter()
        await super().save(step)
        self._seconds.append(time.perf_counter() - begun)


class Benchmark:
    """Trainings of the same model, one after the other."""

    def __init__(self, data: Path, broker: str, params: fedmq.TrainParams) -> None:
        own = DataSection(path=data / "credit2_active.csv", id="id", label=LABEL)
        other = DataSection(path=data / "credit2_passive.csv", id="id")
        self._own: ActiveTable = LoadActiveTable("bank", own, params, 0.0, "salt").run()
        self._other: PassiveTable = LoadPassiveTable("telco", other, "salt").run()
        self._broker = broker
        self._params = params
        self.saves: list[float] = []

    def seconds(self, durable: bool) -> float:
        """Per tree, from the first tree's end to the last one's."""
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(self._train(Path(folder) if durable else None))

    async def _train(self, folder: Path | None) -> float:
        machines: dict[str, Machine] = {
            "bank": ActiveTraining("m", "bank", ("telco",), self._own, self._params, Plain()),
            "telco": PassiveTraining("telco", "bank", Given(self._other), lambda _: Plain(), 7),
        }
        databases = {party: Database(folder / party) for party in machines} if folder else {}
        keepers: dict[str, Keeper] = {}
        for party, database in databases.items():
            await database.open()
            keepers[party] = TimedKeeper(SessionStore(database), self.saves)
        ends: list[float] = []
        await run_machines(
            machines,
            ThreadPool(),
            self._broker,
            "training",
            Traffic(),
            lambda _: ends.append(time.perf_counter()),
            keepers=keepers,
        )
        for database in databases.values():
            await database.close()
        return float(np.mean(np.diff(ends)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    params = fedmq.TrainParams(
        num_boost_round=options.trees, max_depth=options.depth, max_bin=options.bins
    )
    benchmark = Benchmark(options.data, options.broker, params)
    pairs = [(benchmark.seconds(True), benchmark.seconds(False)) for _ in range(options.repeats)]
    kept, forgotten = (statistics.median(each) for each in zip(*pairs, strict=True))
    result = {
        "seconds_per_tree_with_store": round(kept, 4),
        "seconds_per_tree_without": round(forgotten, 4),
        "seconds_per_save": round(statistics.median(benchmark.saves), 4),
        "ratio": round(kept / forgotten, 3),
        "ratio_of_each_pair": [round(one / other, 3) for one, other in pairs],
    }
    print(json.dumps(result) if options.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
