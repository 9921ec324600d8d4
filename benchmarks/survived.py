"""What a federation survives: faults on daemons and broker, under sessions of every kind.

::

    python -m benchmarks.survived [--faults 300] [--minutes 120] [--seed 0] [--page FILE]

Three daemons around a private RabbitMQ node train, cross-validate, continue, delete, align,
evaluate and activate, and one leaves and joins, by turns with five engines, while faults strike one
after the other, and callers ask for scores. Every result must be that of a calm round before.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.page import write_page
from tests.chaos.federation import ChaosFederation
from tests.chaos.storm import PLAIN, EngineOfTraining, Storm
from tests.chaos.work import KINDS, LIMITS, Answers, Callers, Work, turns
from tests.rabbitmq_node import RabbitNode

ENGINES: tuple[EngineOfTraining, ...] = (
    ("ou", {}),
    ("lattice", {}),
    ("lattice", {"sums": "hidden"}),
    ("paillier", {}),
    PLAIN,
)
HEAD = (
    "Three daemons around a RabbitMQ node. Sessions of nine kinds follow each other, by turns with "
    "five engines, while faults strike at any party, at its link, at its clock, or at the broker. "
    "Every result is compared with that of a session in which nothing struck: the shares of models "
    "and the scores bit for bit, the ids of alignments, the figures of cross-validations. The run "
    "ends with an error at the first difference, at a session that does not end within eight "
    "minutes, at a daemon that keeps files open, or at a message that a daemon put aside. A caller "
    "asks for scores meanwhile, one after the other, with a deadline of two seconds; who gets none "
    "asks again after a quarter of a second. A quick series is five trainings of a tree, one right "
    "after the other. A clock step sets the wall clock of a daemon wrong, by 31 days at most, for "
    "some seconds; what it counts in days is looked at every two seconds."
)
_LONGEST_RECOVERY = 10.0
_MOST_FAULTS = 8
"""Under one session; then it comes to its end in calm, so that all kinds have their turn."""


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
    """A calm round, then sessions in the storm for so long; the counts, as Markdown."""
    federation.start()
    storm = Storm(federation, seed)
    work = Work(storm)
    begun = time.monotonic()
    work.calm_round(PLAIN)
    calm = time.monotonic() - begun
    callers = Callers(storm)
    callers.start()
    over = threading.Event()
    failures: list[BaseException] = []

    def keep_working() -> None:
        try:
            for kind, engine in turns(ENGINES):
                if over.is_set():
                    return
                work.session(kind, engine)
        except BaseException as error:
            failures.append(error)

    working = threading.Thread(target=keep_working, daemon=True)
    working.start()
    begun = time.monotonic()
    last = begun + 60 * minutes
    ended, since = 0, 0
    while sum(storm.struck.values()) < faults and time.monotonic() < last and not failures:
        if sum(work.done.values()) > ended:
            ended, since = sum(work.done.values()), 0
        elif since == _MOST_FAULTS:
            time.sleep(0.1)
            continue
        since += 1
        with work.calm:
            fault = storm.strike()
            callers.await_recovery(fault, _LONGEST_RECOVERY)
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
    """Faults, sessions, engines and scores."""
    faults = sum(storm.struck.values())
    waits = [wait for each in answers.back_after.values() for wait in each]
    lines = [
        f"**{faults} faults in {seconds / 60:.0f} minutes, {sum(work.done.values())} sessions of "
        f"{len(+work.done)} kinds, none with another result than in calm, where one of each kind "
        f"takes {calm:.0f} s; {answers.asked:,} scores, {answers.wrong} wrong, the slowest answer "
        f"after {answers.slowest:.2f} s; right scores again {median(waits or [0.0]):.2f} s after a "
        f"fault's end (median), {max(waits, default=0.0):.2f} s at most.**",
        "",
        "| fault | times | right scores again after, s: median | most |",
        "|---|---:|---:|---:|",
        *(_back_after(kind, storm, answers) for kind in sorted(storm.struck)),
        "",
        "| session | ended, all as in calm | asked for again |",
        "|---|---:|---:|",
        *(f"| {kind} | {work.done[kind]} | {work.asked_again[kind]} |" for kind in KINDS),
        "",
        _table("engine", "trainings of all kinds", work.engines),
        "",
        "| scores | requests |",
        "|---|---:|",
        f"| asked for | {answers.asked} |",
        f"| right | {answers.right} |",
        f"| said to be degraded | {answers.degraded} |",
        f"| none, while a fault lasted or a daemon started | {answers.broken} |",
        f"| none, within {Callers.RECOVERY:g} s after that | {answers.recovering} |",
        f"| none, later | {answers.healthy} |",
        f"| wrong | {answers.wrong} |",
        f"| later than the deadline by more than {Callers.GRACE:g} s | {answers.late} |",
        "",
        _table("reason of a refusal when no fault lasted", "requests", answers.reasons),
    ]
    return "\n".join(lines)


def _back_after(kind: str, storm: Storm, answers: Answers) -> str:
    waits = answers.back_after.get(kind, [0.0])
    return f"| {kind} | {storm.struck[kind]} | {median(waits):.2f} | {max(waits):.2f} |"


def _table(head: str, count: str, counted: dict[str, int]) -> str:
    rows = [f"| {name} | {counted[name]} |" for name in sorted(counted)]
    return "\n".join([f"| {head} | {count} |", "|---|---:|", *rows])


if __name__ == "__main__":
    main()
