"""Seconds per tree beside SecretFlow's SGB, which a user would pick instead, in one run.

::

    python -m benchmarks.secretflow DATA [--trees 2] [--json] [--page FILE]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. SecretFlow needs Python 3.10: where an
interpreter of that version is found, an environment of its own is made in ``.secretflow``, which
takes 1.3 GB, and two of its processes train on the same tables, keys, depth and number of bins;
without it the benchmark says so and ends. SecretFlow takes no missing values: they are -1 there.
fedmq's parties talk over a private RabbitMQ node, SecretFlow's to each other.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.broker import private_node
from benchmarks.credit import LABELS
from benchmarks.page import write_page
from benchmarks.trees import Case, in_own_process

VERSION = "1.14.0b0"
ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".secretflow"
HEAD = (
    f"Seconds per tree; SecretFlow {VERSION}, whose parties also sum the active party's own "
    "columns in cipher and show the active party all sums, as fedmq's engines do but for hidden "
    "sums. 32 bins, keys of 2048 bits, all parties on the cores of one machine."
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


def told_by_alice(python: Path, program: str, job: dict[str, Any]) -> dict[str, Any] | None:
    """What the ``program`` of two processes prints at last as alice, of a ``job``; None: it fails.

    The job gets its addresses here, and keys of 2048 bits.
    """
    ports = dict(zip(("alice", "bob"), free_ports(2), strict=True))
    asked = json.dumps(job | {"ports": ports, "key_bits": 2048})
    with ExitStack() as stack:
        alice, bob = (
            stack.enter_context(
                subprocess.Popen(
                    [str(python), "-m", program, party, asked],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for party in ("alice", "bob")
        )
        try:
            lines = alice.communicate(timeout=1800)[0].splitlines()
        finally:
            for process in (alice, bob):
                process.kill()
    # Its libraries may print lines, too.
    told = [line for line in lines if line.startswith('{"seconds"')]
    return json.loads(told[-1]) if told else None


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


def table_of(rows: Sequence[tuple[str, dict[str, float | None]]]) -> str:
    """The figures as Markdown."""
    columns = list(rows[0][1])
    lines = [f"| seconds per tree | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for title, seconds in rows:
        cells = ["failed" if value is None else f"{value:.3g}" for value in seconds.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    python = environment()
    if python is None:
        print("skipped: SecretFlow needs Python 3.10, and there is none here", file=sys.stderr)
        return
    rows: list[tuple[str, dict[str, float | None]]] = []
    with private_node() as broker:
        for table in TABLES:
            seconds: dict[str, float | None] = {}
            for name, (engine, engine_options) in ENGINES.items():
                case = Case(
                    engine=engine,
                    options=engine_options,
                    depth=table.depth,
                    trees=options.trees,
                    rows=150_000 if table.name == "credit1" else 30_000,
                    data=str(options.data),
                    name=table.name,
                )
                seconds[f"fedmq, {name}"] = in_own_process(case, broker)["seconds"]
            for engine, schema in SCHEMAS.items():
                seconds[f"SecretFlow, {engine}"] = secretflow_seconds(
                    python, options.data, table, schema, options.trees
                )
            rows.append((table.title, seconds))
            print(table.title, seconds, file=sys.stderr)
    if options.page:
        write_page(options.page, "Beside SecretFlow", "make bench-secretflow", HEAD, table_of(rows))
    print(json.dumps(dict(rows)) if options.json else table_of(rows))


if __name__ == "__main__":
    main()
