"""Many rows: what a tree takes of time, memory and the wire, on one machine and on Dask.

::

    python -m benchmarks.many_rows [--rows 10000000] [--engines plain lattice hidden ou]
                                   [--compute pool dask] [--workers 1] [--json] [--page FILE]

Without rows, engines, compute or workers it makes the trainings of `TRAININGS`, in a quarter of an
hour; with some of them every combination.

Two daemons over a private RabbitMQ node train trees of depth 3 on a made-up table of 20 columns,
half of them at either party. Each computes with processes of its own machine, or with a Dask
cluster of its own, of as many workers. *Hidden* is the lattice with hidden sums. Seconds are the
median of the trees after the first. Memory is the peak of a party: of its daemon with its
processes, and of its scheduler and workers together. It is watched from before the table is read.
XGBoost's seconds are those of the joined table in the same run, on all cores.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path

from benchmarks.broker import private_node
from benchmarks.centralised import xgboost_seconds
from benchmarks.estimate import BANK, TELCO, Job, Parties
from benchmarks.made_up_table import joined_table, write_parquet
from benchmarks.page import write_page
from fedmq import TrainParams
from fedmq.privacy.lattice.parameters import MOST_ROWS
from fedmq.simulation.memory_watch import MemoryWatch

COLUMNS, TREES = (10, 10), 5
TABLE = "many"
DASK = str(Path(sys.executable).with_name("dask"))
POOL, CLUSTER = "pool", "dask"
ENGINES = {
    **{name: Job(TABLE, name, ending="parquet") for name in ("plain", "lattice", "ou", "paillier")},
    "hidden": Job(TABLE, "lattice", options='sums = "hidden"', ending="parquet"),
}
TRAININGS: list[tuple[int, str, str, int]] = [
    *((1_000_000, "plain", *how) for how in ((POOL, 1), (CLUSTER, 1), (CLUSTER, 2), (CLUSTER, 4))),
    *((1_000_000, *how, 1) for how in product(("lattice", "hidden"), (POOL, CLUSTER))),
    *((2_000_000, engine, POOL, 1) for engine in ("lattice", "hidden")),
    (10_000_000, "plain", CLUSTER, 1),
]
"""Rows, engine, what computes, and its workers."""
HEAD = (
    "Two parties on one machine, each with its processes or with a Dask cluster; depth 3, 32 bins. "
    "*Hidden* is the lattice with hidden sums. Seconds are the median of the trees after the "
    "first, XGBoost's those of the joined table. Memory is the peak of a daemon with its "
    "processes, and of its cluster, reading the table included. A lattice takes "
    f"{MOST_ROWS:,} rows at most: the sums of more would not be exact."
)


@dataclass(frozen=True)
class Row:
    """What a training took: seconds and megabytes a tree, peak megabytes by who.

    ``workers``: of each party, processes or Dask's.
    """

    rows: int
    engine: str
    compute: str
    workers: int
    xgboost_seconds: float
    seconds: float
    megabytes: float
    memory: Mapping[str, float]


@contextmanager
def cluster(workers: int = 1) -> Iterator[tuple[str, list[MemoryWatch]]]:
    """A Dask cluster of ``workers``: its address, and the memory of scheduler and workers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    port = address.rpartition(":")[2]
    commands = (
        ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"],
        ["worker", address, "--nworkers", f"{workers}", "--nthreads", "1", "--memory-limit", "0"],
    )
    with ExitStack() as stack:
        watches = []
        for command in commands:
            process = stack.enter_context(
                subprocess.Popen([DASK, *command], stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
            watches.append(stack.enter_context(MemoryWatch(process.pid)))
        yield f"dask://{address}", watches


def measured(
    tables: Path, broker: str, rows: int, xgboost: float, engine: str, compute: str, workers: int
) -> Row:
    """One training by two daemons and what they compute with; ``xgboost``: its seconds a tree."""
    with ExitStack() as stack:
        clusters = {
            party: stack.enter_context(cluster(workers))
            for party in (BANK, TELCO)
            if compute == CLUSTER
        }
        where = {party: f'"{address}"' for party, (address, _) in clusters.items()}
        if compute == POOL:
            where = dict.fromkeys((BANK, TELCO), f"{{ workers = {workers} }}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parties = Parties(folder, tables, broker, compute=where)
        taken = parties.train(parties.prepare(ENGINES[engine], TREES))
        memory = {party: size / 1e6 for party, size in taken.memory.items()}
        for party, (_, watches) in clusters.items():
            memory[f"{party}'s cluster"] = sum(watch.peak for watch in watches) / 1e6
        megabytes = sum(taken.kinds.values()) / 1e6
        return Row(rows, engine, compute, workers, xgboost, taken.seconds, megabytes, memory)


def table(found: list[Row]) -> str:
    """Rows, engines and where they are computed, as Markdown."""
    who = list(dict.fromkeys(name for row in found for name in row.memory))
    heads = " | ".join(f"{name}, MB" for name in who)
    lines = [
        f"| rows | engine | computed by | workers | s per tree | XGBoost | MB per tree | {heads} |",
        "|---:|---|---|---:|---:|---:|---:|" + "---:|" * len(who),
    ]
    for row in found:
        sizes = " | ".join(f"{row.memory[name]:,.0f}" if name in row.memory else "" for name in who)
        what = f"{row.rows:,} | {row.engine} | {row.compute} | {row.workers}"
        seconds = f"{row.seconds:.2f} | {row.xgboost_seconds:.3f}"
        lines.append(f"| {what} | {seconds} | {row.megabytes:,.0f} | {sizes} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--engines", nargs="+", choices=ENGINES)
    parser.add_argument("--compute", nargs="+", choices=[POOL, CLUSTER])
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    trainings = TRAININGS
    if options.rows or options.engines or options.compute or options.workers:
        trainings = list(
            product(
                options.rows or [1_000_000],
                options.engines or ["plain", "lattice", "hidden"],
                options.compute or [POOL, CLUSTER],
                options.workers or [1],
            )
        )
    found = []
    for rows, of_rows in groupby(trainings, key=itemgetter(0)):
        with tempfile.TemporaryDirectory() as name:
            write_parquet(Path(name), TABLE, rows, COLUMNS)
            params = TrainParams(max_depth=3, max_bin=32)
            xgboost = xgboost_seconds(*joined_table(Path(name), TABLE), params)
            for _, engine, compute, workers in of_rows:
                with private_node((BANK, TELCO)) as broker:
                    found.append(
                        measured(Path(name), broker, rows, xgboost, engine, compute, workers)
                    )
                print(found[-1], file=sys.stderr)
    if options.page:
        write_page(options.page, "Many rows", "make bench-many-rows", HEAD, table(found))
    print(json.dumps([asdict(row) for row in found]) if options.json else table(found))


if __name__ == "__main__":
    main()
