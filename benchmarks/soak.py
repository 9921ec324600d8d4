"""What a long training leaves behind: memory and disk of each daemon over its trees.

::

    python -m benchmarks.soak [--trees 500] [--rows 300] [--json]

Three daemons train one model with the plain engine over a private RabbitMQ node. At a third, two
thirds and all of the trees the resident memory of each daemon (with its compute workers), the size
of its state folder, how much of that the trees themselves take, as checkpoints and as the model,
and the number of its open files are noted. What a tree adds is the slope of a line through twenty
such points, the first third left out, where caches fill, and SQLite's log, which ends at 1 MB.
The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos.federation import PARTIES, ChaosFederation, DaemonProcess
from tests.rabbitmq_node import RabbitNode

_POINTS = 20


@dataclass(frozen=True)
class Point:
    """One daemon after ``tree`` trees; kilobytes. ``trees`` and ``logs`` are parts of ``state``."""

    tree: int
    memory: float
    state: float
    trees: float
    logs: float
    files: int

    @classmethod
    def of(cls, daemon: DaemonProcess, tree: int) -> Point:
        memory = sum(_resident(pid) for pid in _family(daemon.pid))
        state = sum(path.stat().st_size for path in daemon.state.rglob("*") if path.is_file())
        files = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
        return cls(
            tree, memory / 1e3, state / 1e3, _saved(daemon) / 1e3, _logged(daemon) / 1e3, files
        )


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def _saved(daemon: DaemonProcess) -> int:
    """Bytes of the trees in its store and, at the end, in its share of the model."""
    store = f"file:{daemon.state / 'fedmq.sqlite'}?mode=ro"
    with closing(sqlite3.connect(store, uri=True)) as connection:
        (size,) = connection.execute("SELECT total(length(data)) FROM steps").fetchone()
    return int(size) + sum(path.stat().st_size for path in daemon.state.glob("models/*"))


def _logged(daemon: DaemonProcess) -> int:
    """Bytes of the logs that the owner keeps: requests to this party, and questions about ids."""
    logs = (daemon.state / "audit.jsonl", *daemon.state.glob("audit/*.jsonl"))
    return sum(path.stat().st_size for path in logs if path.exists())


def _resident(pid: int) -> int:
    """Bytes that a process has written to memory; what it shares with others counts in part.

    Mapped files, such as libraries, are left out: they are shared with whatever else runs.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    values = [line.split()[1] for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))]
    return sum(map(int, values)) * 1024


@contextmanager
def started(rows: int, policy: str = "") -> Iterator[ChaosFederation]:
    """Three daemons over a private node, with more lines of ``policy``."""
    with tempfile.TemporaryDirectory() as folder:
        (broker := Path(folder) / "broker").mkdir()
        (parties := Path(folder) / "parties").mkdir()
        node = RabbitNode(broker)
        node.start()
        federation = ChaosFederation(parties, node, rows)
        for daemon in federation.daemons.values():
            lines = daemon.file.read_text().replace("[policy]\n", f"[policy]\n{policy}")
            daemon.file.write_text(lines)
        try:
            federation.start()
            yield federation
        finally:
            federation.close()
            node.discard()


def watch(federation: ChaosFederation, trees: int) -> dict[str, list[Point]]:
    """Train, and note each daemon about twenty times on the way and at the end."""
    session = federation.train("soak", trees)
    points: dict[str, list[Point]] = {party: [] for party in PARTIES}
    due = 0
    while federation.settled("soak") in (None, ("running", "")):
        tree = federation.session(session).get("done", 0)
        if tree >= due:
            _note(federation, points, tree)
            due = tree + max(1, trees // _POINTS)
        time.sleep(0.1)
    state, reason = federation.settled("soak") or ("", "")
    if state != "finished":
        raise SystemExit(f"the training ended as {state}: {reason}\n{federation.tell()}")
    _note(federation, points, trees)
    return points


def _note(federation: ChaosFederation, points: dict[str, list[Point]], tree: int) -> None:
    for party, daemon in federation.daemons.items():
        points[party].append(Point.of(daemon, tree))


def slope(number: list[int], values: list[float]) -> float:
    """What a tree, or a training, adds to ``values``."""
    return float(np.polyfit(number, values, 1)[0])


def summary(points: list[Point], trees: int) -> dict[str, Any]:
    """Start, middle, end, and what a tree adds once the daemon is warm."""
    warm = [point for point in points if point.tree >= trees / 3]
    nearest = [min(warm, key=lambda p: abs(p.tree - at)) for at in (0, trees * 2 / 3, trees)]
    number = [point.tree for point in warm]
    besides = [point.state - point.trees for point in warm]
    return {
        "at_trees": [point.tree for point in nearest],
        "memory_mb": [round(point.memory / 1e3, 1) for point in nearest],
        "state_kb": [round(point.state) for point in nearest],
        "trees_kb": [round(point.trees) for point in nearest],
        "open_files": [point.files for point in nearest],
        "memory_kb_per_tree": round(slope(number, [p.memory for p in warm]), 2),
        "trees_kb_per_tree": round(slope(number, [p.trees for p in warm]), 2),
        "besides_kb_per_tree": round(slope(number, besides), 2),
    }


def table(result: dict[str, Any]) -> str:
    """The daemons, a row for each of their points, and what a tree adds."""
    lines = [
        "| party | trees | memory, MB | state, KB | of which trees | open files |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for party in PARTIES:
        figures = result[party]
        columns = ("at_trees", "memory_mb", "state_kb", "trees_kb", "open_files")
        rows = zip(*(figures[column] for column in columns), strict=True)
        lines += [f"| {party} | " + " | ".join(map(str, row)) + " |" for row in rows]
        besides = f"{figures['besides_kb_per_tree']:+} beside them"
        lines.append(
            f"| | per tree | {figures['memory_kb_per_tree']:+} KB | {besides} "
            f"| {figures['trees_kb_per_tree']:+} | |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with started(options.rows) as federation:
        begun = time.perf_counter()
        points = watch(federation, options.trees)
        seconds = time.perf_counter() - begun
    result = {
        "trees": options.trees,
        "rows": options.rows,
        "seconds": round(seconds, 1),
        **{party: summary(seen, options.trees) for party, seen in points.items()},
    }
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
