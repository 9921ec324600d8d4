"""Wide tables: seconds and bytes a tree, and the peak memory of each party, beside XGBoost.

::

    python -m benchmarks.wide_memory [--tables 100000x300+300 20000x20+5000/1]
        [--engines ou lattice "ou, hidden sums"] [--trees 3] [--json] [--page FILE]

A table is ROWSxOWN+OTHER: columns of the active party and of the other one; /DEPTH says how deep
its trees are, 3 when left out. Two daemons train on made-up tables over a private RabbitMQ node.
Hidden sums of the widest table take minutes a node, and memory that one node fills. Seconds are the
median without the first tree and the last. Memory is the peak of a party's daemon and workers,
reading its table included. Where a party refuses, its reason is printed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.broker import private_node
from benchmarks.centralised import xgboost_seconds
from benchmarks.estimate import BANK, TELCO, Job, Parties
from benchmarks.made_up_table import joined_table, write_parquet
from benchmarks.page import write_page
from fedmq import TrainParams
from fedmq.boosting.params import OLDEST
from fedmq.errors import FedmqError

ENGINES = {
    "ou": ("ou", ""),
    "lattice": ("lattice", ""),
    "ou, hidden sums": ("ou", 'sums = "hidden"'),
    "lattice, hidden sums": ("lattice", 'sums = "hidden"'),
}
DEFAULT = ["ou", "ou, hidden sums"]
"""A lattice sends gigabytes of hints about so many columns before the first tree."""
TABLE = "wide"
_SHAPE = re.compile(r"(\d+)x(\d+)\+(\d+)(?:/(\d+))?")
_DEPTH = 3
HEAD = (
    "Rows, and columns of the active and of the other party; 32 bins. Two daemons on one machine "
    "over RabbitMQ; memory is the peak of a daemon and its workers, reading the table included. "
    "Hidden sums compare one node of a wide table at a time, so a tree of one split shows their "
    "memory."
)


@dataclass(frozen=True)
class Shape:
    """A made-up table: rows, and columns of both parties; the depth of its trees."""

    rows: int
    own: int
    other: int
    depth: int = _DEPTH

    @classmethod
    def of(cls, text: str) -> Shape:
        """The shape that ROWSxOWN+OTHER/DEPTH names; ArgumentTypeError for another text."""
        if (found := _SHAPE.fullmatch(text)) is None:
            raise argparse.ArgumentTypeError(
                f"{text}: write ROWSxOWN+OTHER/DEPTH, as in 2000x20+5000/1"
            )
        return cls(*map(int, found.groups(default=_DEPTH)))

    def __str__(self) -> str:
        return f"{self.rows:,} x ({self.own:,} + {self.other:,})"


@dataclass(frozen=True)
class Row:
    """A training, per tree, and megabytes of each party's memory; or why it was ``refused``."""

    table: str
    depth: int
    engine: str
    xgboost_seconds: float
    seconds: float | None = None
    megabytes: float | None = None
    active_memory: float | None = None
    passive_memory: float | None = None
    refused: str = ""


def write_tables(folder: Path, shape: Shape, params: TrainParams) -> float:
    """Both parties' tables as Parquet; returns XGBoost's seconds a tree on all columns."""
    write_parquet(folder, TABLE, shape.rows, (shape.own, shape.other), apart=50)
    return xgboost_seconds(*joined_table(folder, TABLE), params)


def measured(folder: Path, shape: Shape, engine: str, xgboost: float, job: Job, trees: int) -> Row:
    """One training by two daemons."""
    with tempfile.TemporaryDirectory() as name, private_node((BANK, TELCO)) as broker:
        parties = Parties(Path(name), folder, broker)
        try:
            taken = parties.train(parties.prepare(job, trees))
        except FedmqError as error:
            return Row(str(shape), shape.depth, engine, xgboost, refused=str(error))
    return Row(
        str(shape),
        shape.depth,
        engine,
        xgboost,
        taken.seconds,
        sum(taken.kinds.values()) / 1e6,
        taken.memory[BANK] / 1e6,
        taken.memory[TELCO] / 1e6,
    )


def table(found: list[Row]) -> str:
    """Tables and engines, as Markdown."""
    lines = [
        "| table | depth | engine | s per tree | XGBoost | MB per tree | active, MB | other, MB |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        figures = (row.megabytes, row.active_memory, row.passive_memory)
        cells = " | ".join("" if figure is None else f"{figure:,.0f}" for figure in figures)
        seconds = "refused" if row.seconds is None else f"{row.seconds:,.1f}"
        first = (
            f"| {row.table} | {row.depth} | {row.engine} | {seconds} | {row.xgboost_seconds:.2f} "
        )
        lines.append(f"{first}| {cells} |")
    refused = dict.fromkeys(f"- {row.table}, {row.engine}: {row.refused}" for row in found)
    reasons = [line for line in refused if not line.endswith(": ")]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shapes = [Shape(100_000, 300, 300), Shape(20_000, 20, 5_000, depth=1)]
    parser.add_argument("--tables", nargs="+", type=Shape.of, default=shapes)
    parser.add_argument("--engines", nargs="+", default=DEFAULT, choices=list(ENGINES))
    parser.add_argument("--trees", type=int, default=3, help="at least 3")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    found = []
    for shape in options.tables:
        params = TrainParams(max_depth=shape.depth, max_bin=32, xgboost_arithmetic=OLDEST)
        with tempfile.TemporaryDirectory() as name:
            xgboost = write_tables(Path(name), shape, params)
            for engine in options.engines:
                name_of, engine_options = ENGINES[engine]
                job = Job(TABLE, name_of, shape.depth, engine_options, ending="parquet")
                found.append(
                    measured(Path(name), shape, engine, xgboost, job, max(3, options.trees))
                )
                print(found[-1], file=sys.stderr, flush=True)
    if options.page:
        write_page(
            options.page, "Memory of wide tables", "make bench-wide-memory", HEAD, table(found)
        )
    print(json.dumps([asdict(row) for row in found]) if options.json else table(found))


if __name__ == "__main__":
    main()
