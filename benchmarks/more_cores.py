"""What more processes bring, and what they cannot: Credit 1 with one process, two, and all cores.

::

    python -m benchmarks.more_cores DATA [--engines plain lattice ou "lattice, hidden sums"]
        [--processes 1 2] [--rows N] [--trees 3] [--json] [--page FILE]

DATA holds ``credit1_*.csv``. Both parties train in one process and share so many workers, as those
of a daemon, each training in a process of its own. *Efficiency* is the speed-up by worker. *Serial*
is the part of a tree that no more workers would shorten, by Amdahl's law, of the two times (Karp
and Flatt, CACM 1990). What it is made of is seen on the timeline: how long one computation alone
was at work, by its name, and how long none was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fedmq.simulation.simulate as simulation
from benchmarks.credit import Credit
from benchmarks.page import write_page
from fedmq import TrainParams, simulate
from fedmq.boosting.params import OLDEST
from fedmq.party.compute.processes import ProcessPool, cores
from fedmq.party.telemetry.timeline import Timeline

ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "lattice": ("lattice", {}),
    "ou": ("ou", {}),
    "lattice, hidden sums": ("lattice", {"sums": "hidden"}),
}
NOTHING = "no computation"
SHOWN = 3  # parts of what is serial
HEAD = (
    "Credit 1, depth 3, 32 bins; both parties share so many worker processes, and each tree's time "
    "is the median without the first and the last. *Efficiency*: speed-up by worker. *Serial*: the "
    "part of a tree that no worker more shortens, by Amdahl's law. *Alone*: the computations that "
    "were at work alone for the largest parts of a tree, and the part without any, in which "
    "messages are packed, sent and kept."
)


@dataclass(frozen=True)
class Taken:
    """``seconds`` a tree with so many ``processes``; ``alone``: of them, by what worked alone."""

    engine: str
    processes: int
    seconds: float
    alone: dict[str, float]


def alone(spans: Iterable[tuple[str, float, float]], start: float, end: float) -> dict[str, float]:
    """Seconds between ``start`` and ``end`` in which one span lasted alone, by its name.

    Spans are (name, start, end); `NOTHING` has the seconds without any.
    """
    edges: list[tuple[float, int, str]] = []
    for name, begun, ended in spans:
        inside = max(begun, start), min(ended, end)
        if inside[0] < inside[1]:
            edges += [(inside[0], 1, name), (inside[1], -1, name)]
    found: dict[str, float] = defaultdict(float)
    running: dict[str, int] = defaultdict(int)
    before = start
    for moment, step, name in [*sorted(edges), (end, 0, NOTHING)]:
        count = sum(running.values())
        if count <= 1:
            found[next((name for name, held in running.items() if held), NOTHING)] += (
                moment - before
            )
        running[name] += step
        before = moment
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def serial_part(one: float, many: float, processes: int) -> float:
    """The serial part of a tree that takes ``one`` second with one process, ``many`` with more."""
    return max(0.0, (many / one - 1 / processes) / (1 - 1 / processes))


def train(data: Path, engine: str, processes: int, rows: int | None, trees: int) -> Taken:
    """Train in this process, with a pool as a daemon has it."""
    credit = Credit.read(data, "credit1", rows)
    name, options = ENGINES[engine]
    trace, ends = Timeline(), [time.time()]
    # A simulation of light arithmetic has no workers; every daemon has.
    with mock.patch.object(simulation, "_pool", lambda *_: ProcessPool(processes)):
        simulate(
            active=credit.active,
            label=credit.label,
            passive={"passive": credit.passive},
            params=TrainParams(
                num_boost_round=trees + 2, max_depth=3, max_bin=32, xgboost_arithmetic=OLDEST
            ),
            engine=name,
            engine_options=options,
            trace=trace,
            on_report=lambda _: ends.append(time.time()),
        )
    start, end = ends[1], ends[-2]
    spans = (
        (event["name"].strip("_"), event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in trace.document()["traceEvents"]
        if event["ph"] == "X" and "busy ms" in event["args"]
    )
    held = {name: seconds / trees for name, seconds in alone(spans, start, end).items()}
    return Taken(engine, processes, float(np.median(np.diff(ends)[1:-1])), held)


def in_own_process(options: argparse.Namespace, engine: str, processes: int) -> Taken:
    """`train` in a fresh process."""
    asked = json.dumps([engine, processes])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.more_cores", *sys.argv[1:], "--alone", asked],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(done.returncode)
    return Taken(**json.loads(done.stdout.splitlines()[-1]))


def table(found: Sequence[Taken]) -> str:
    """Engines and processes, as Markdown."""
    lines = [
        "| engine | processes | s per tree | efficiency | serial | alone |",
        "|---|---:|---:|---:|---:|---|",
    ]
    first = {taken.engine: taken.seconds for taken in reversed(found) if taken.processes == 1}
    for taken in found:
        cells = ["", "", ""]
        if taken.processes > 1 and taken.engine in first:
            one = first[taken.engine]
            parts = sorted(taken.alone.items(), key=lambda part: -part[1])[:SHOWN]
            cells = [
                f"{one / taken.seconds / taken.processes:.0%}",
                f"{serial_part(one, taken.seconds, taken.processes):.0%}",
                ", ".join(f"{name} {seconds / taken.seconds:.0%}" for name, seconds in parts),
            ]
        lines.append(
            f"| {taken.engine} | {taken.processes} | {taken.seconds:.2f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--processes", nargs="+", type=int, default=sorted({1, 2, cores()}))
    parser.add_argument("--rows", type=int, help="rows to take; all by default")
    parser.add_argument("--trees", type=int, default=3, help="that count; two more are grown (3)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        engine, processes = json.loads(options.alone)
        taken = train(options.data, engine, processes, options.rows, options.trees)
        print(json.dumps(asdict(taken)))
        return
    found = []
    for engine in options.engines:
        for processes in options.processes:
            found.append(in_own_process(options, engine, processes))
            print(found[-1], file=sys.stderr, flush=True)
    if options.page:
        command = "make bench-cores"
        write_page(options.page, "More cores", command, HEAD, table(found))
    print(json.dumps([asdict(taken) for taken in found]) if options.json else table(found))


if __name__ == "__main__":
    main()
