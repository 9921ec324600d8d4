"""What many sessions leave behind: memory, files, disk and queues over all that a federation does.

::

    python -m benchmarks.soak_sessions [--trainings 60] [--scores 600] [--trees 20] [--rows 300]
        [--page FILE] [--json]

Three daemons over a private RabbitMQ node train model after model with the plain engine. After each
training the active party scores fifty people with it in a file, serves it, makes its share of all
online scores, and all parties delete the model that no rollback can reach any more. After every
fifth the parties align their ids anew, and one of them loses its broker and comes back; after every
tenth one leaves the federation, the others train, and it joins again. What a round adds is the
slope of a line through all points, the first third left out: caches fill, and a session that has
ended answers repetitions for another minute. All models are the same, so every score in a file is
compared. The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.page import write_page
from benchmarks.soak import Point, slope, started
from fedmq.party.store.documents import FORMER_MODELS
from tests.chaos.federation import PARTIES, ChaosFederation

_ALIGN_EVERY = 5
_LEAVE_EVERY = 10
_ROWS_A_SCORE = 5
_LIMITS = """
most_trainings_per_day = 100000
most_alignments_per_day = 100000
most_equations_per_row = 1000000
delete_models = true
"""
"""No policy ends so many trainings on the same rows, and all parties delete what they are asked to.
"""
HEAD = (
    "Three daemons and their RabbitMQ node, in one run of one federation: trainings, files of "
    "scores, activations, online scores, deletions, alignments, cut links, and a party that leaves "
    "and joins again. The points lie after a third, two thirds and all of the trainings; what a "
    "training adds is the slope of a line through all points but those of the first third. The "
    "models that no rollback can reach are deleted everywhere, so what is added to the state "
    "folder is the history. *Logs*: of requests and of questions about people, as long as the "
    "owner keeps them. What grows beside them is mostly the record of what was answered about "
    "which rows, by which later trainings are limited."
)


def watch(
    federation: ChaosFederation, trainings: int, trees: int, scores: int
) -> tuple[dict[str, list[Point]], list[int]]:
    """Train so many models; each daemon after each of them, and the messages in all queues."""
    points: dict[str, list[Point]] = {party: [] for party in PARTIES}
    queued = []
    ids = [f"p{row}" for row in range(50)]
    expected: Any = None
    for number in range(1, trainings + 1):
        model = f"soak{number}"
        train(federation, model, trees)
        found = federation.ask("bank", "predict", model=model, ids=ids, strict=True)["scores"]
        federation.ask("bank", "activate", model=model, name="production")
        expected = expected or found
        if found != expected:
            raise SystemExit(f"{model} scores otherwise than soak1")
        for place in range(scores * (number - 1) // trainings, scores * number // trainings):
            score(federation, ids, place)
        if number > FORMER_MODELS:  # until then a rollback can reach it
            old = f"soak{number - FORMER_MODELS}"
            federation.ask("bank", "delete_everywhere", model=old, seconds=60.0)
        if number % _ALIGN_EVERY == 0:
            job = {"party": str(federation.bank.file), "name": "people"}
            federation.ask("bank", "align", job=job)
            away = PARTIES[number // _ALIGN_EVERY % len(PARTIES)]
            federation.daemons[away].proxy.cut()
            federation.daemons[away].proxy.heal()
        if number % _LEAVE_EVERY == 0:
            leave_and_join(federation, f"two{number}", trees)
        for party, daemon in federation.daemons.items():
            points[party].append(Point.of(daemon, number))
        queued.append(federation.node.waiting())
        print(f"{number} of {trainings}", file=sys.stderr)
    return points, queued


def train(federation: ChaosFederation, model: str, trees: int) -> None:
    """Train ``model`` to its end at all parties that the active party knows."""
    federation.train(model, trees)
    while (end := federation.settled(model)) is None or end[0] == "running":
        time.sleep(0.05)
    if end[0] != "finished":
        raise SystemExit(f"the training of {model} ended as {end}\n{federation.tell()}")


def score(federation: ChaosFederation, ids: list[str], place: int) -> None:
    """Score some people online; a party whose link was cut may be asked for two seconds."""
    start = place % (len(ids) - _ROWS_A_SCORE)
    asked = ids[start : start + _ROWS_A_SCORE]
    answer = federation.ask("bank", "score", name="production", ids=asked)
    if answer.get("degraded") or len(answer["scores"]) != len(asked):
        raise SystemExit(f"online scores of {asked}: {answer}")


def leave_and_join(federation: ChaosFederation, model: str, trees: int) -> None:
    """The last party leaves, the others train and delete a model, and it joins again."""
    *others, leaving = PARTIES
    federation.leave(leaving)
    for party in others:
        federation.ask(party, "reload")
    train(federation, model, trees)
    federation.ask("bank", "delete_everywhere", model=model, seconds=60.0)
    federation.come_back()
    for party in others:
        federation.ask(party, "reload")


def summary(points: list[Point]) -> dict[str, Any]:
    """After a third, two thirds and all of the trainings, and what one of them adds."""
    warm = points[len(points) // 3 :]
    shown = [warm[0], warm[len(warm) // 2], warm[-1]]
    number = [point.tree for point in warm]
    return {
        "trainings": [point.tree for point in shown],
        "memory_mb": [round(point.memory / 1e3, 1) for point in shown],
        "logs_kb": [round(point.logs) for point in shown],
        "besides_kb": [round(point.state - point.logs) for point in shown],
        "open_files": [point.files for point in shown],
        "memory_kb_per_training": round(slope(number, [point.memory for point in warm]), 1),
        "logs_kb_per_training": round(slope(number, [point.logs for point in warm]), 1),
        "besides_kb_per_training": round(
            slope(number, [point.state - point.logs for point in warm]), 1
        ),
    }


def table(result: dict[str, Any]) -> str:
    """The daemons, a row for each of their points, and what a training adds."""
    lines = [
        f"**{result['trainings']} trainings of {result['trees']} trees, {result['scores']:,} "
        f"online scores of {_ROWS_A_SCORE} people in {result['seconds'] / 60:.0f} minutes; at most "
        f"{result['queued_most']} messages in the queues after a round, "
        f"{result['queued_last']} at the end.**",
        "",
        "| party | trainings | memory, MB | logs, KB | state besides, KB | open files |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for party in PARTIES:
        figures = result[party]
        columns = ("trainings", "memory_mb", "logs_kb", "besides_kb", "open_files")
        rows = zip(*(figures[column] for column in columns), strict=True)
        lines += [f"| {party} | " + " | ".join(map(str, row)) + " |" for row in rows]
        lines.append(
            f"| | per training | {figures['memory_kb_per_training']:+} KB "
            f"| {figures['logs_kb_per_training']:+} KB "
            f"| {figures['besides_kb_per_training']:+} KB | |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainings", type=int, default=60)
    parser.add_argument("--scores", type=int, default=600, help="online, over all trainings")
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with started(options.rows, _LIMITS) as federation:
        begun = time.perf_counter()
        points, queued = watch(federation, options.trainings, options.trees, options.scores)
        seconds = time.perf_counter() - begun
    result = {
        "trainings": options.trainings,
        "scores": options.scores,
        "trees": options.trees,
        "rows": options.rows,
        "seconds": round(seconds, 1),
        "queued_most": max(queued),
        "queued_last": queued[-1],
        **{party: summary(seen) for party, seen in points.items()},
    }
    if options.page:
        title = "What many sessions leave behind"
        write_page(options.page, title, "make soak-sessions", HEAD, table(result))
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
