"""What a federation survives: faults on daemons and broker, under sessions of every kind.

::

    python -m benchmarks.survived [--faults 300] [--minutes 120] [--seed 0] [--page FILE]

Three daemons around a private RabbitMQ node align, train, cross-validate, evaluate, activate,
continue and delete, and one leaves and joins, round after round, each round with another of five
engines, while faults strike one after the other, and callers ask for scores. Every result must be
that of the first round, in which nothing strikes.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.page import write_page
from tests.chaos.federation import ChaosFederation
from tests.chaos.storm import PLAIN, EngineOfTraining, Storm
from tests.chaos.work import KINDS, LIMITS, Answers, Callers, Work
from tests.rabbitmq_node import RabbitNode

ENGINES: tuple[EngineOfTraining, ...] = (
    ("ou", {}),
    ("lattice", {}),
    ("lattice", {"sums": "hidden"}),
    ("paillier", {}),
    PLAIN,
)
HEAD = (
    "Three daemons around a RabbitMQ node; sessions of every kind run round after round, each "
    "round with the next of five engines, while faults strike one after the other, a second apart, "
    "at any party, at its link, or at the broker. Every result is compared with that of a round in "
    "which nothing struck: the shares of models and the scores bit for bit, the ids of alignments, "
    "the figures of cross-validations. The run ends with an error at the first difference, at a "
    "session that does not end within four minutes, or at a message that a daemon put aside. "
    "Callers ask for scores meanwhile, one after the other."
)


def main() -> None:
    """Strike, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=120, help="no more faults after these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (broker := Path(folder) / "broker").mkdir()
        (parties := Path(folder) / "parties").mkdir()
        with RabbitNode(broker) as node:
            federation = ChaosFederation(parties, node)
            for daemon in federation.daemons.values():
                lines = daemon.file.read_text().replace("[policy]\n", f"[policy]{LIMITS}")
                daemon.file.write_text(lines)
            try:
                text = survived(federation, options.faults, options.minutes, options.seed)
            finally:
                federation.close()
    if options.page:
        write_page(options.page, "What was survived", "make survived", HEAD, text)
    print(text)


def survived(federation: ChaosFederation, faults: int, minutes: float, seed: int) -> str:
    """A calm round, then rounds in the storm for so long at most; the counts, as Markdown."""
    federation.start()
    storm = Storm(federation, seed)
    work = Work(storm)
    begun = time.monotonic()
    work.round(PLAIN)
    calm = time.monotonic() - begun
    work.done.clear()
    work.engines.clear()
    callers = Callers(storm)
    callers.start()
    over = threading.Event()
    failures: list[BaseException] = []

    def keep_working() -> None:
        number = 0
        try:
            while not over.is_set():
                work.round(ENGINES[number % len(ENGINES)])
                number += 1
        except BaseException as error:
            failures.append(error)

    working = threading.Thread(target=keep_working)
    working.start()
    begun = time.monotonic()
    last = begun + 60 * minutes
    while sum(storm.struck.values()) < faults and time.monotonic() < last and not failures:
        with work.calm:
            storm.strike()
        print(f"{sum(storm.struck.values())} of {faults}: {dict(work.done)}", flush=True)
    over.set()
    working.join()
    answers = callers.stop()
    seconds = time.monotonic() - begun
    if failures:
        raise failures[0]
    aside = {party: federation.ask(party, "status")["dead_letters"] for party in federation.daemons}
    if any(aside.values()):
        raise SystemExit(f"messages were put aside: {aside}")
    return tables(storm, work, answers, calm, seconds)


def tables(storm: Storm, work: Work, answers: Answers, calm: float, seconds: float) -> str:
    """Faults, sessions, rounds and scores."""
    faults = sum(storm.struck.values())
    lines = [
        f"**{faults} faults in {seconds / 60:.0f} minutes, {sum(work.done.values())} sessions of "
        f"{len(work.done)} kinds, none with another result than in calm; a round without faults "
        f"took {calm:.0f} s, the slowest answer to a caller {answers.slowest:.2f} s.**",
        "",
        _table("fault", "times", storm.struck),
        "",
        "| session | ended, all as in calm | asked for again |",
        "|---|---:|---:|",
        *(f"| {kind} | {work.done[kind]} | {work.asked_again[kind]} |" for kind in KINDS),
        "",
        _table("engine", "rounds", work.engines),
        "",
        "| scores | requests |",
        "|---|---:|",
        f"| asked for | {answers.asked} |",
        f"| right | {answers.right} |",
        f"| said to be degraded | {answers.degraded} |",
        f"| refused with a reason | {answers.refused} |",
        f"| unanswered: the active party's daemon was stopped or killed | {answers.unanswered} |",
        f"| wrong | {answers.wrong} |",
        f"| later than the deadline by more than 0.1 s | {answers.late} |",
        "",
        _table("reason of a refusal, its beginning", "requests", answers.reasons),
    ]
    return "\n".join(lines)


def _table(head: str, count: str, counted: dict[str, int]) -> str:
    rows = [f"| {name} | {counted[name]} |" for name in sorted(counted)]
    return "\n".join([f"| {head} | {count} |", "|---|---:|", *rows])


if __name__ == "__main__":
    main()
