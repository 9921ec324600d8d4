"""Seconds per tree beside SecretFlow's SGB, which a user would pick instead, in one run.

::

    python -m benchmarks.secretflow DATA [--trees 2] [--json] [--page FILE]
    python -m benchmarks.secretflow DATA --wide [--rows 100000] [--columns 300] [--json]
        [--page FILE]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. SecretFlow needs Python 3.10: where an
interpreter of that version is found, an environment of its own is made in ``.secretflow``, which
takes 1.3 GB, and two of its processes train on the same tables, keys, depth and number of bins;
without it the benchmark says so and ends. SecretFlow takes no missing values: they are -1 there.
fedmq's parties talk over a private RabbitMQ node, SecretFlow's to each other.

``--wide`` takes a made-up table of ``--rows`` and of ``--columns`` at each party instead, where the
parties are apart by `LINK`. fedmq's parties are two daemons there: the active one is beside the
broker, and the passive one reaches it over the link. SecretFlow's parties call each other, each
over a link of its own that leads to the other. A link limits each of its directions by itself, so
what a party sends has the whole rate, as at fedmq, whatever the other sends meanwhile. The other
link carries the answers to its calls, which are a few bytes: two links carry together what the one
of fedmq does, and each message has the same delay.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.broker import private_node
from benchmarks.credit import LABELS
from benchmarks.estimate import BANK, TELCO, Job, Parties
from benchmarks.page import write_page
from benchmarks.trees import Case, in_own_process
from benchmarks.wide_area_link import Link, linked
from benchmarks.wide_memory import TABLE, Shape, write_tables
from fedmq import TrainParams
from fedmq.boosting.params import OLDEST
from fedmq.errors import FedmqError

VERSION = "1.14.0b0"
ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".secretflow"
HEAD = (
    f"Seconds per tree; SecretFlow {VERSION}, whose parties also sum the active party's own "
    "columns in cipher and show the active party all sums, as fedmq's engines do but for hidden "
    "sums. Keys of 2048 bits, all parties on the cores of one machine. "
)
CREDIT_HEAD = "No link between the parties, 32 bins, depth 3 where no other is named."
LINK = Link(100, 50)
WIDE_DEPTH, WIDE_BINS = 4, 127
WIDE_TREES, SECRETFLOW_TREES = 4, 1
"""Of the wide table: those of fedmq, where the first and the last do not count, and those of
SecretFlow, where one takes minutes, beside the first, which does not count."""
WIDE_SECONDS = 6 * 3600
"""The most that SecretFlow's trainings on the wide table may take."""
FASTER = "times faster than SecretFlow"
WIDE_HEAD = (
    "A made-up table: rows, and columns of the active and of the other party, at depth "
    f"{WIDE_DEPTH} and {WIDE_BINS} bins. The parties are apart by {LINK.megabits:g} Mbit/s each "
    f"way and a round trip of {LINK.milliseconds:g} ms. *fedmq*, and an engine: two daemons, of "
    "which the passive party's reaches the broker over the link; the median of "
    f"{WIDE_TREES} trees without the first and the last. *SecretFlow, ou*: two processes that "
    "reach each other over such links; what a second tree adds to a training. What is sent once a "
    "training, such as keys, counts on neither side. *XGBoost*: on the joined table, in one "
    "process, without a link and without a secret. The last row: SecretFlow's "
    "seconds over those of an engine of fedmq."
)


@dataclass(frozen=True)
class Table:
    """A table of DATA, and how deep its trees are."""

    name: str
    depth: int

    @property
    def title(self) -> str:
        """For people."""
        deep = f", depth {self.depth}" if self.depth != 3 else ""
        return f"{self.name.replace('credit', 'Credit ')}{deep}"


TABLES = (Table("credit2", 3), Table("credit2", 6), Table("credit1", 3))
SCHEMAS = {"ou": "ou", "paillier": "zpaillier"}
"""SecretFlow's names of the ciphers."""
ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    **{engine: (engine, {}) for engine in (*SCHEMAS, "lattice")},
    "lattice, hidden sums": ("lattice", {"sums": "hidden"}),
}
"""Names of what is measured: fedmq's engine and its options."""
WIDE_ENGINES = ("ou",)
"""A lattice would send hints of 5 GB once, and hidden sums 4 GB a tree: minutes of the link."""
Row = tuple[str, dict[str, float | None]]
"""A title, and figures by the name of their column; None: it failed."""


def environment() -> Path | None:
    """The Python of SecretFlow's environment, which is made where it is not there; None: no 3.10.

    Raises:
        CalledProcessError: it cannot be made.
    """
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "made").exists():
        found = _python310()
        if found is None:
            return None
        subprocess.run([found, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        packages = [f"secretflow=={VERSION}", "protobuf>=4,<5"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        (ENVIRONMENT / "made").touch()
    return python


def _python310() -> str | None:
    command = [str(ROOT / ".ci" / "find-python"), "3.10"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    return found.stdout.strip() or None


def told_by_alice(
    python: Path,
    program: str,
    job: dict[str, Any],
    link: Link | None = None,
    seconds: float = 1800,
) -> dict[str, Any] | None:
    """What the ``program`` of two processes prints at last as alice, of a ``job``.

    The job gets its addresses here, and keys of 2048 bits. Each party reaches the other over a
    ``link`` of its own. None: it fails, or takes more than so many ``seconds``.
    """
    ports = dict(zip(("alice", "bob"), free_ports(2), strict=True))
    with ExitStack() as stack:
        far = {party: stack.enter_context(linked(port, link)) for party, port in ports.items()}
        alice, bob = (
            stack.enter_context(
                subprocess.Popen(
                    [str(python), "-m", program, party, json.dumps(asked)],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for party in ports
            for asked in [job | {"ports": far | {party: ports[party]}, "key_bits": 2048}]
        )
        try:
            lines = _printed(alice, bob, seconds)
        finally:
            for process in (alice, bob):
                process.kill()
    # Its libraries may print lines, too.
    told = [line for line in lines if line.startswith('{"seconds"')]
    return json.loads(told[-1]) if told else None


def _printed(alice: subprocess.Popen[str], bob: subprocess.Popen[str], seconds: float) -> list[str]:
    """Alice's lines; none where she needs more ``seconds``, or waits for a bob who has failed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        failed = bob.poll()
        with suppress(subprocess.TimeoutExpired):
            return alice.communicate(timeout=1)[0].splitlines()
        if failed:
            break
    return []


def secretflow_seconds(
    python: Path, data: Path, table: Table, schema: str, trees: int
) -> float | None:
    """Seconds per tree of two processes; None where they fail."""
    job = {
        "schema": schema,
        "depth": table.depth,
        "bins": 32,
        "trees": trees,
        "label": LABELS[table.name],
        "active table": str(data.absolute() / f"{table.name}_active.csv"),
        "passive table": str(data.absolute() / f"{table.name}_passive.csv"),
    }
    told = told_by_alice(python, "benchmarks.secretflow_party", job)
    return told["seconds"] if told else None


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nobody listens at."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


def credit_row(python: Path, data: Path, table: Table, trees: int, broker: str) -> Row:
    """Seconds per tree on a table of ``data``."""
    seconds: dict[str, float | None] = {}
    for name, (engine, engine_options) in ENGINES.items():
        case = Case(
            engine=engine,
            options=engine_options,
            depth=table.depth,
            trees=trees,
            rows=150_000 if table.name == "credit1" else 30_000,
            data=str(data),
            name=table.name,
        )
        seconds[f"fedmq, {name}"] = in_own_process(case, broker)["seconds"]
    for engine, schema in SCHEMAS.items():
        theirs = secretflow_seconds(python, data, table, schema, trees)
        seconds[f"SecretFlow, {engine}"] = theirs
    return table.title, seconds


def wide_rows(python: Path, shape: Shape) -> list[Row]:
    """Seconds per tree on a made-up table over `LINK`, and how many times faster fedmq is."""
    params = TrainParams(max_depth=WIDE_DEPTH, max_bin=WIDE_BINS, xgboost_arithmetic=OLDEST)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = write_tables(folder, shape, params)
        seconds = {f"fedmq, {engine}": over_link(folder, engine) for engine in WIDE_ENGINES}
        job = {
            "schema": SCHEMAS["ou"],
            "depth": WIDE_DEPTH,
            "bins": WIDE_BINS,
            "trees": SECRETFLOW_TREES,
            "label": "label",
            **{f"{which} table": str(file) for which, file in files_of(folder).items()},
        }
        program = "benchmarks.secretflow_party"
        told = told_by_alice(python, program, job, LINK, WIDE_SECONDS)
    theirs = told["seconds"] if told else None
    faster = {
        column: theirs / taken if theirs and taken else None for column, taken in seconds.items()
    }
    return [
        (str(shape), seconds | {"SecretFlow, ou": theirs, "XGBoost": alone}),
        (FASTER, faster),
    ]


def files_of(folder: Path) -> dict[str, Path]:
    """The two parties' files of the wide table."""
    return {which: folder / f"{TABLE}_{which}.parquet" for which in ("active", "passive")}


def over_link(tables: Path, engine: str) -> float | None:
    """Seconds per tree of two daemons on the wide table; None where they fail, and why is said."""
    job = Job(TABLE, engine, WIDE_DEPTH, bins=WIDE_BINS, ending="parquet")
    with private_node((BANK, TELCO)) as broker, tempfile.TemporaryDirectory() as folder:
        port = urlsplit(broker).port
        assert port is not None
        with linked(port, LINK) as far:
            parties = Parties(Path(folder), tables, broker, ports={TELCO: far})
            try:
                taken = parties.train(parties.prepare(job, WIDE_TREES))
            except FedmqError as error:
                print(f"{job.name}: {error}", file=sys.stderr)
                return None
    print(f"{job.name}: {taken}", file=sys.stderr)
    return taken.seconds


def table_of(rows: Sequence[Row]) -> str:
    """The figures as Markdown, in the columns of the first of ``rows``."""
    columns = list(rows[0][1])
    lines = [f"| seconds per tree | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for title, figures in rows:
        cells = [cell(figures[column]) if column in figures else "" for column in columns]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(figure: float | None) -> str:
    """A figure to three digits, and never as a power of ten."""
    if figure is None:
        return "failed"
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=2, help="of the tables of DATA")
    parser.add_argument("--wide", action="store_true", help="a wide table over a link")
    parser.add_argument("--rows", type=int, default=100_000, help="of the wide table")
    parser.add_argument("--columns", type=int, default=300, help="of it, at each party")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    python = environment()
    if python is None:
        print("skipped: SecretFlow needs Python 3.10, and there is none here", file=sys.stderr)
        return
    if options.wide:
        rows = wide_rows(python, Shape(options.rows, options.columns, options.columns))
    else:
        rows = []
        with private_node() as broker:
            for table in TABLES:
                rows.append(credit_row(python, options.data, table, options.trees, broker))
                print(*rows[-1], file=sys.stderr)
    if options.page:
        title = "Beside SecretFlow" + ", far apart" * options.wide
        command = "make bench-secretflow" + " WIDE=1" * options.wide
        head = HEAD + (WIDE_HEAD if options.wide else CREDIT_HEAD)
        write_page(options.page, title, command, head, table_of(rows))
    print(json.dumps(dict(rows)) if options.json else table_of(rows))


if __name__ == "__main__":
    main()
