"""Ten million rows: what a tree takes of time, memory and the wire where parties compute on Dask.

::

    python -m benchmarks.many_rows [--rows 10000000] [--engines plain ou] [--json] [--page FILE]

Two daemons over a private RabbitMQ node, each with a Dask cluster of its own, of one worker, train
two trees of depth 3 on a made-up table of 20 columns, half of them at either party. Seconds are
those of the second tree. Memory is the peak of a party: of its daemon, and of its scheduler and
worker together. It is watched from before the table is read.
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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.broker import private_node
from benchmarks.estimate import BANK, TELCO, Job, Parties
from benchmarks.page import write_page
from fedmq.simulation.calibration import MemoryWatch

ROWS, COLUMNS, TREES = 10_000_000, 20, 2
TABLE = "many"
DASK = str(Path(sys.executable).with_name("dask"))
HEAD = (
    "Two parties, each with a Dask cluster of one worker, on one machine; depth 3, 32 bins. "
    "Seconds are of the second tree. Memory is the peak of a daemon and of its cluster, reading "
    "the table included."
)


@dataclass(frozen=True)
class Row:
    """What a training took: seconds and megabytes a tree, peak megabytes by who."""

    rows: int
    engine: str
    seconds: float
    megabytes: float
    memory: Mapping[str, float]


def write_tables(folder: Path, rows: int) -> None:
    """The made-up table of both parties, as Parquet, a million rows at a time."""
    random = np.random.default_rng(0)
    half = COLUMNS // 2
    with ExitStack() as stack:
        files: dict[str, pq.ParquetWriter] = {}
        for first in range(0, rows, 1_000_000):
            ids = np.arange(first, min(first + 1_000_000, rows))
            values = random.normal(size=(len(ids), COLUMNS)).astype(np.float32)
            label = values[:, ::5].sum(axis=1) + random.normal(size=len(ids)) * 2 > 0
            parts = {"active": {"id": ids, "label": label.astype(np.int8)}, "passive": {"id": ids}}
            for number, (party, columns) in enumerate(parts.items()):
                own = values[:, number * half : (number + 1) * half]
                batch = pa.table(columns | {f"{party}{i}": own[:, i] for i in range(half)})
                if party not in files:
                    path = folder / f"{TABLE}_{party}.parquet"
                    files[party] = stack.enter_context(pq.ParquetWriter(path, batch.schema))
                files[party].write_table(batch)


@contextmanager
def cluster() -> Iterator[tuple[str, list[MemoryWatch]]]:
    """A Dask cluster of one worker: its address, and the memory of scheduler and worker."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    port = address.rpartition(":")[2]
    commands = (
        ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"],
        ["worker", address, "--nworkers", "1", "--nthreads", "1", "--memory-limit", "0"],
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


def measured(tables: Path, broker: str, rows: int, engine: str) -> Row:
    """One training by two daemons and their clusters."""
    with ExitStack() as stack:
        clusters = {party: stack.enter_context(cluster()) for party in (BANK, TELCO)}
        addresses = {party: address for party, (address, _) in clusters.items()}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parties = Parties(folder, tables, broker, compute=addresses, ending="parquet")
        taken = parties.train(parties.prepare(Job(TABLE, engine), TREES))
        memory = {party: size / 1e6 for party, size in taken.memory.items()}
        for party, (_, watches) in clusters.items():
            memory[f"{party}'s cluster"] = sum(watch.peak for watch in watches) / 1e6
        return Row(rows, engine, taken.seconds, sum(taken.kinds.values()) / 1e6, memory)


def table(found: list[Row]) -> str:
    """Rows and engines, as Markdown."""
    who = list(found[0].memory)
    heads = " | ".join(f"{name}, MB" for name in who)
    lines = [
        f"| rows | engine | s per tree | MB per tree | {heads} |",
        "|---:|---|---:|---:|" + "---:|" * len(who),
    ]
    for row in found:
        sizes = " | ".join(f"{row.memory[name]:,.0f}" for name in who)
        first = f"| {row.rows:,} | {row.engine} | {row.seconds:.1f} | {row.megabytes:,.0f} "
        lines.append(f"{first}| {sizes} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[ROWS // 10, ROWS])
    parser.add_argument("--engines", nargs="+", default=["plain", "ou"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    found = []
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as name:
            write_tables(Path(name), rows)
            for engine in options.engines:
                with private_node((BANK, TELCO)) as broker:
                    found.append(measured(Path(name), broker, rows, engine))
                print(found[-1], file=sys.stderr)
    if options.page:
        write_page(options.page, "Many rows", "make bench-many-rows", HEAD, table(found))
    print(json.dumps([asdict(row) for row in found]) if options.json else table(found))


if __name__ == "__main__":
    main()
