"""Set intersection of two parties: seconds, cost per id, memory, and the event loop's stalls.

Both parties run in this process, on one pool of two worker processes::

    python -m benchmarks.alignment                      # 10^4, 10^5 and 10^6 ids a party
    python -m benchmarks.alignment --ids 1000000
    python -m benchmarks.alignment --broker amqp://...  # over RabbitMQ

Half of the ids are shared. The figure to compare with is "CPU µs per operation": an alignment of
n and m ids takes 2 (n + m) multiplications on the curve, and one alone is timed in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from fedmq.computation import Given
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.data.loading import AlignmentIds, AlignmentTerms
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.telemetry.metrics import Traffic
from fedmq.privacy.set_intersection import IdList, blind, blind_ids
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.memory_watch import MemoryWatch

PARTIES = ("bank", "telco")
TICK = 0.002


@dataclass(frozen=True)
class Measured:
    """One alignment."""

    ids_each: int
    common: int
    seconds: float
    cpu_seconds: float
    cpu_microseconds_per_operation: float
    megabytes_sent: float
    peak_megabytes: float
    longest_stall_milliseconds: float
    of_it_own_work_milliseconds: float


def cpu_seconds() -> float:
    times = os.times()
    workers = sum(
        sum(worker.cpu_times()[:2]) for worker in psutil.Process().children(recursive=True)
    )
    return times.user + times.system + workers


async def stalls(longest: list[float]) -> None:
    """The longest wait of the event loop, and the longest that its own thread computed at once.

    On a busy machine the first is mostly the work of others.
    """
    while True:
        wall, own = time.perf_counter(), time.thread_time()
        await asyncio.sleep(TICK)
        longest[0] = max(longest[0], time.perf_counter() - wall - TICK)
        longest[1] = max(longest[1], time.thread_time() - own)


def own_ids(party: str, rows: range, folder: Path) -> AlignmentIds:
    terms = AlignmentTerms("bench", "bench", PARTIES)
    ids = IdList.of(f"customer-{row}" for row in rows)
    return AlignmentIds(ids, "", (), terms, AlignmentStore(folder / party))


def measured(count: int, broker: str, workers: int, folder: Path) -> Measured:
    """Align ``count`` ids of each party, half of them shared."""
    bank = own_ids("bank", range(count), folder)
    telco = own_ids("telco", range(count // 2, count // 2 + count), folder)
    machines = {
        "bank": ActiveAlignment("bench", PARTIES, bank.ids, (), os.urandom(32), bank.keep),
        "telco": PassiveAlignment("telco", PARTIES, Given(telco), lambda _: None, os.urandom(32)),
    }
    traffic = Traffic()
    longest = [0.0, 0.0]
    spent = [0.0]

    class Pool(ProcessPool):
        async def close(self) -> None:
            spent[0] = cpu_seconds()  # workers are still there
            await super().close()

    async def align() -> list[Any]:
        watch = asyncio.create_task(stalls(longest))
        try:
            return await run_machines(machines, Pool(workers), broker, "training", traffic)
        finally:
            watch.cancel()

    with MemoryWatch() as memory:
        begun, before = time.perf_counter(), cpu_seconds()
        common, _ = in_own_loop(align())
        seconds = time.perf_counter() - begun
    assert common == count - count // 2
    cpu = spent[0] - before
    return Measured(
        ids_each=count,
        common=common,
        seconds=round(seconds, 2),
        cpu_seconds=round(cpu, 2),
        cpu_microseconds_per_operation=round(cpu / (4 * count) * 1e6, 1),
        megabytes_sent=round(traffic.total.bytes / 1e6, 1),
        peak_megabytes=round(memory.peak / 1e6),
        longest_stall_milliseconds=round(longest[0] * 1e3, 1),
        of_it_own_work_milliseconds=round(longest[1] * 1e3, 1),
    )


def one_operation() -> dict[str, float]:
    """CPU microseconds of a bare multiplication, and of hashing and multiplying an id."""
    ids = IdList.of(str(number) for number in range(4000))
    timed = {}
    blind_ids(os.urandom(32), ids)  # what the first one translates is no operation
    begun = time.process_time()
    points = blind_ids(os.urandom(32), ids)
    timed["hash and multiply"] = (time.process_time() - begun) / len(ids) * 1e6
    begun = time.process_time()
    blind(os.urandom(32), points)
    timed["multiply"] = (time.process_time() - begun) / len(ids) * 1e6
    return {name: round(value, 1) for name, value in timed.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--broker", default=MEMORY)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone = one_operation()
    rows = []
    for count in options.ids:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(asdict(measured(count, options.broker, options.workers, Path(folder))))
    if options.json:
        print(json.dumps({"microseconds_alone": alone, "alignments": rows}))
        return
    print("µs alone: " + ", ".join(f"{name} {value}" for name, value in alone.items()))
    names = list(rows[0])
    print("| " + " | ".join(name.replace("_", " ") for name in names) + " |")
    print("|" + " ---: |" * len(names))
    for row in rows:
        print("| " + " | ".join(f"{row[name]:,}" for name in names) + " |")


if __name__ == "__main__":
    main()
