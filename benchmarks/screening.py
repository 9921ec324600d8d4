"""A screen beside SecretFlow's binning by weight of evidence, in one run.

::

    python -m benchmarks.screening DATA [--wide] [--json] [--page FILE]

DATA holds ``credit2_*.csv``; ``--wide`` adds a made-up table of 100,000 rows and 300 columns of
each party. SecretFlow's environment is that of `benchmarks.secretflow`. Both encrypt every label,
fedmq on its lattice, SecretFlow with keys of 2048 bits, cut columns into ten bins, and show the
active party the ones of each bin. All parties are on one machine; fedmq's talk over a private
RabbitMQ node. SecretFlow's clock begins when its parties are connected; so does fedmq's, and what
declaring queues and connecting takes stands beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.broker import private_node
from benchmarks.credit import LABELS
from benchmarks.made_up_table import write_table
from benchmarks.page import write_page
from benchmarks.secretflow import ROOT, VERSION, environment, told_by_alice

BINS = 10
_PARTIES = ("active", "passive")
ROWS, COLUMNS = 100_000, 300
HEAD = (
    f"Seconds of `fedmq.screen` and of SecretFlow {VERSION}'s `VertWoeBinning`: information values "
    "of all columns, ten bins each, every label encrypted, by fedmq on its lattice, by SecretFlow "
    "with keys of 2048 bits, all parties on the cores of one machine, and connected; *connecting*: "
    "what fedmq's parties take for that, queues included. *Farthest*: the largest "
    "difference of an information value from SecretFlow's, which cuts at other places where values "
    "repeat."
)
BEGUN = """\
import json, sys, time
import pandas, fedmq

job = json.loads(sys.argv[1])
active, passive = (pandas.read_csv(job[f"{which} table"]).drop(columns="id")
                   for which in ("active", "passive"))
label = active.pop(job["label"])
screen = fedmq.screen  # all is imported, as on the other side
begun = time.perf_counter()
"""
"""What a screen's program begins with, to its clock."""
SCREEN = """\
from fedmq.transport.rabbitmq.link import RabbitMQLink, TemporaryTopology

connecting = 0.0


def timed(step):
    async def taken(*given):
        global connecting
        since = time.perf_counter()
        try:
            return await step(*given)
        finally:
            connecting += time.perf_counter() - since
    return taken


for kind, name in ((TemporaryTopology, "__aenter__"), (TemporaryTopology, "__aexit__"),
                   (RabbitMQLink, "open"), (RabbitMQLink, "close")):
    setattr(kind, name, timed(getattr(kind, name)))
begun = time.perf_counter()
found = screen(active=active, label=label, passive={"bob": passive}, bins=job["bins"],
                     most_rows=100_000, broker=job["broker"])
seconds = time.perf_counter() - begun - connecting
print(json.dumps({"seconds": seconds, "connecting": connecting,
                  "iv": {one["name"]: one["iv"] for one in found.columns}}))
"""


def screened(program: str, job: dict[str, Any], broker: str) -> dict[str, Any]:
    """What a ``program`` after `BEGUN` says of ``job``, in a process of its own."""
    command = [sys.executable, "-c", BEGUN + program, json.dumps(job | {"broker": broker})]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables_of(folder: Path, name: str) -> dict[str, str]:
    """A job's words for the two parties' tables."""
    return {f"{which} table": str(folder / f"{name}_{which}.csv") for which in _PARTIES}


def farthest(ours: dict[str, float | None], theirs: dict[str, float]) -> float:
    """The largest difference of information values of columns that both have."""
    gaps = [abs(value - theirs[name]) for name, value in ours.items() if value and name in theirs]
    return float(np.max(gaps, initial=0.0))


def table_of(figures: dict[str, dict[str, float | None]]) -> str:
    """The figures as Markdown."""
    columns = list(next(iter(figures.values())))
    lines = [f"| table | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for title, seconds in figures.items():
        cells = ["failed" if value is None else f"{value:.3g}" for value in seconds.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    python = environment()
    if python is None:
        print("skipped: SecretFlow needs Python 3.10, and there is none here", file=sys.stderr)
        return
    tables = {"Credit 2": (options.data.absolute(), "credit2", LABELS["credit2"])}
    figures: dict[str, dict[str, float | None]] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(private_node())
        if options.wide:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            write_table(folder, "wide", ROWS, (COLUMNS, COLUMNS))
            tables[f"{ROWS:,} x ({COLUMNS} + {COLUMNS})"] = (folder, "wide", "label")
        for title, (folder, name, label) in tables.items():
            job = {"bins": BINS, "label": label, **tables_of(folder, name)}
            ours = screened(SCREEN, job, broker)
            figures[title] = {"fedmq": ours["seconds"], "connecting": ours["connecting"]}
            for schema, cipher in (("ou", "ou"), ("zpaillier", "paillier")):
                program = "benchmarks.secretflow_screen_party"
                theirs = told_by_alice(python, program, job | {"schema": schema})
                figures[title][f"SecretFlow, {cipher}"] = theirs["seconds"] if theirs else None
                if theirs:
                    figures[title]["farthest"] = farthest(ours["iv"], theirs["iv"])
            print(title, figures[title], file=sys.stderr)
    if options.page:
        command = "make bench-screening"
        write_page(options.page, "Screens beside SecretFlow", command, HEAD, table_of(figures))
    print(json.dumps(figures) if options.json else table_of(figures))


if __name__ == "__main__":
    main()
