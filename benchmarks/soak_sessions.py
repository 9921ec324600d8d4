"""What many sessions leave behind: memory, disk and files of each daemon over its trainings.

::

    python -m benchmarks.soak_sessions [--trainings 60] [--trees 20] [--rows 300] [--json]

Three daemons over a private RabbitMQ node train model after model with the plain engine. After each
training the active party scores fifty people with it; after every fifth the parties
align their ids anew, and one of them loses its broker and comes back. What a round adds is the
slope of a line through all points, the first third left out: caches fill, and a session that has
ended answers repetitions for another minute. The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from benchmarks.soak import Point, slope, started
from tests.chaos.federation import PARTIES, ChaosFederation

_EVERY = 5
_LIMITS = """
most_trainings_per_day = 100000
most_alignments_per_day = 100000
most_equations_per_row = 1000000
"""
"""No policy ends so many trainings on the same rows."""


def watch(federation: ChaosFederation, trainings: int, trees: int) -> dict[str, list[Point]]:
    """Train so many models, and note each daemon after each of them."""
    points: dict[str, list[Point]] = {party: [] for party in PARTIES}
    ids = [f"p{row}" for row in range(50)]
    for number in range(1, trainings + 1):
        model = f"soak{number}"
        federation.train(model, trees)
        ends = federation.await_ends(model)
        if any(state != "finished" for state, _ in ends.values()):
            raise SystemExit(f"training {number} ended as {ends}\n{federation.tell()}")
        federation.ask("bank", "predict", model=model, ids=ids, strict=True)
        if number % _EVERY == 0:
            job = {"party": str(federation.bank.file), "name": "people"}
            federation.ask("bank", "align", job=job)
            away = PARTIES[number // _EVERY % len(PARTIES)]
            federation.daemons[away].proxy.cut()
            federation.daemons[away].proxy.heal()
        for party, daemon in federation.daemons.items():
            points[party].append(Point.of(daemon, number))
        print(f"{number} of {trainings}", file=sys.stderr)
    return points


def summary(points: list[Point]) -> dict[str, Any]:
    """After a third, two thirds and all of the trainings, and what one of them adds."""
    warm = points[len(points) // 3 :]
    shown = [warm[0], warm[len(warm) // 2], warm[-1]]
    number = [point.tree for point in warm]
    return {
        "trainings": [point.tree for point in shown],
        "memory_mb": [round(point.memory / 1e3, 1) for point in shown],
        "state_kb": [round(point.state) for point in shown],
        "open_files": [point.files for point in shown],
        "memory_kb_per_training": round(slope(number, [point.memory for point in warm]), 1),
        "state_kb_per_training": round(slope(number, [point.state for point in warm]), 1),
    }


def table(result: dict[str, Any]) -> str:
    """The daemons, a row for each of their points, and what a training adds."""
    lines = [
        "| party | trainings | memory, MB | state, KB | open files |",
        "|---|---:|---:|---:|---:|",
    ]
    for party in PARTIES:
        figures = result[party]
        columns = ("trainings", "memory_mb", "state_kb", "open_files")
        rows = zip(*(figures[column] for column in columns), strict=True)
        lines += [f"| {party} | " + " | ".join(map(str, row)) + " |" for row in rows]
        lines.append(
            f"| | per training | {figures['memory_kb_per_training']:+} KB "
            f"| {figures['state_kb_per_training']:+} KB | |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainings", type=int, default=60)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with started(options.rows, _LIMITS) as federation:
        begun = time.perf_counter()
        points = watch(federation, options.trainings, options.trees)
        seconds = time.perf_counter() - begun
    result = {
        "trainings": options.trainings,
        "trees": options.trees,
        "rows": options.rows,
        "seconds": round(seconds, 1),
        **{party: summary(seen) for party, seen in points.items()},
    }
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
