"""Bytes, core hours and money of a training of 100 million rows and ten parties, estimated.

::

    python -m benchmarks.on_paper [--rows N] [--parties N] [--columns N] [--trees N]
        [--engines plain ou] [--prices CORE_HOUR GIGABYTE] [--sizes N N N] [--json] [--page FILE]

Tables are made up. `fedmq estimate --rows` says the same of a job. Each engine trains here on a
sample, for some ten seconds, and is extrapolated. The same is done for the ``sizes``, from samples
of a quarter of their rows, and compared with trainings of all their rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import fedmq.simulation.simulate as simulation
from benchmarks.page import write_page
from benchmarks.trees import split_by_part
from fedmq import TrainParams, simulate
from fedmq.boosting.params import OLDEST
from fedmq.errors import DataError
from fedmq.messages.training import MOST_ROWS
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.telemetry.timeline import Timeline
from fedmq.simulation.estimate import (
    CORE_HOUR,
    GIGABYTE,
    Estimate,
    Prices,
    estimate,
    made_up_table,
)

HIDDEN = "ou, hidden sums"
ENGINES = {
    "plain": ("plain", {}),
    "ou": ("ou", {}),
    HIDDEN: ("ou", {"sums": "hidden"}),
    "paillier": ("paillier", {}),
    "lattice": ("lattice", {}),
}
CHECKED = ("plain", "ou")
CHECK_TREES = 4
HEAD = (
    "{rows:,} rows and {parties} parties, {columns} columns each; depth 3, 32 bins, {trees} "
    "trees: estimated by trainings on samples, on this machine. A training takes {most:,} rows at "
    "most, so a longer table is on paper. *Core hours* are those of all parties together. Money is "
    "{core_hour:g} a core hour and {gigabyte:g} for each gigabyte that leaves a party or the broker"
    "{default}; memory, disks and machines that wait are not counted."
)
CHECK_HEAD = (
    "The same at sizes that run here, from samples of a quarter of the rows. Ratios of the "
    "estimate to the training of all rows: the aim is 0.7 to 1.3."
)


@dataclass(frozen=True)
class Shape:
    """A training on paper: rows, parties, and columns of each."""

    rows: int
    parties: int = 10
    columns: int = 10

    @property
    def passive(self) -> dict[str, list[int]]:
        """The bins of the other parties' columns."""
        return {f"party{n}": [32] * self.columns for n in range(1, self.parties)}


@dataclass(frozen=True)
class OnPaper:
    """What an engine takes: ``gigabytes`` and ``core_hours`` of all parties, ``money`` with the
    broker's; None where it does not take so many rows."""

    engine: str
    gigabytes: float | None = None
    core_hours: float | None = None
    money: float | None = None


@dataclass(frozen=True)
class Checked:
    """Per tree: seconds of cores and megabytes of a training, and the estimate's ratios to both."""

    engine: str
    rows: int
    core_seconds: float
    megabytes: float
    core_ratio: float
    bytes_ratio: float


def params_of(trees: int) -> TrainParams:
    """The parameters of all these trainings."""
    return TrainParams(num_boost_round=trees, max_depth=3, max_bin=32, xgboost_arithmetic=OLDEST)


def estimated(engine: str, shape: Shape, trees: int, sample: int) -> Estimate:
    """The estimate of a training, from ``sample`` of its rows at most."""
    active, label = made_up_table(min(sample, shape.rows), shape.columns)
    name, options = ENGINES[engine]
    return estimate(
        active=active,
        label=label,
        passive=shape.passive,
        params=params_of(trees),
        engine=name,
        engine_options=options,
        rows=shape.rows,
    )


def on_paper(engine: str, shape: Shape, trees: int, prices: Prices) -> OnPaper:
    """What a training takes."""
    try:
        found = estimated(engine, shape, trees, shape.rows)
    except DataError as error:
        print(f"{engine}: {error}", file=sys.stderr)
        return OnPaper(engine)
    parties = found.parties.values()
    return OnPaper(
        engine,
        sum(party.bytes_sent for party in parties) / 1e9,
        sum(party.core_seconds for party in parties) / 3600,
        sum(map(prices.of_party, parties)) + prices.of_broker(found),
    )


def checked(engine: str, shape: Shape) -> Checked:
    """An estimate beside the training that it is about."""
    found = estimated(engine, shape, CHECK_TREES, max(2, shape.rows // 4))
    active, label = made_up_table(shape.rows, shape.columns)
    name, options = ENGINES[engine]
    trace, ends = Timeline(), [time.time()]
    others = {
        party: made_up_table(shape.rows, shape.columns, seed)[0]
        for seed, party in enumerate(shape.passive, start=1)
    }
    # A simulation of light arithmetic has no workers; every daemon has.
    with mock.patch.object(simulation, "_pool", lambda *_: ProcessPool()):
        model = simulate(
            active=active,
            label=label,
            passive=others,
            params=params_of(CHECK_TREES),
            engine=name,
            engine_options=options,
            trace=trace,
            on_report=lambda _: ends.append(time.time()),
        )
    parts = split_by_part(trace, ends[1], ends[-2], CHECK_TREES - 2)
    seconds, size = parts["core seconds"], model.bytes_sent / CHECK_TREES
    parties = found.parties.values()
    return Checked(
        engine,
        shape.rows,
        seconds,
        size / 1e6,
        sum(party.core_seconds for party in parties) / CHECK_TREES / seconds,
        sum(party.bytes_sent for party in parties) / CHECK_TREES / size,
    )


def paper_table(found: Sequence[OnPaper]) -> str:
    """Engines, as Markdown."""
    lines = ["| engine | gigabytes | core hours | money |", "|---|---:|---:|---:|"]
    for row in found:
        figures = (row.gigabytes, row.core_hours, row.money)
        cells = ["takes fewer rows" if value is None else f"{value:,.0f}" for value in figures]
        lines.append(f"| {row.engine} | {' | '.join(cells)} |")
    return "\n".join(lines)


def check_table(found: Sequence[Checked]) -> str:
    """Engines and sizes, as Markdown."""
    lines = [
        "| engine | rows | core seconds a tree | estimated | MB a tree | estimated |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.engine} | {row.rows:,} | {row.core_seconds:.2f} | x {row.core_ratio:.2f} "
        f"| {row.megabytes:.1f} | x {row.bytes_ratio:.2f} |"
        for row in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Estimate, check, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--columns", type=int, default=10, help="of each party (10)")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--prices", nargs=2, type=float, default=[CORE_HOUR, GIGABYTE])
    parser.add_argument("--sizes", nargs="*", type=int, default=[4_000, 16_000, 64_000])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    shape, prices = Shape(options.rows, options.parties, options.columns), Prices(*options.prices)
    paper: list[OnPaper] = []
    for engine in options.engines:
        paper.append(on_paper(engine, shape, options.trees, prices))
        print(paper[-1], file=sys.stderr, flush=True)
    checks: list[Checked] = []
    for engine in (engine for engine in CHECKED if engine in options.engines):
        for rows in options.sizes:
            checks.append(checked(engine, Shape(rows, options.parties, options.columns)))
            print(checks[-1], file=sys.stderr, flush=True)
    text = f"{paper_table(paper)}\n\n## Checked\n{CHECK_HEAD}\n\n{check_table(checks)}"
    if options.page:
        default = prices == Prices()
        head = HEAD.format(
            **asdict(shape),
            **asdict(prices),
            trees=options.trees,
            most=MOST_ROWS,
            default=" (round figures of January 2025, in USD)" if default else "",
        )
        write_page(options.page, "On paper", "make bench-on-paper", head, text)
    result: dict[str, Any] = {
        "shape": asdict(shape),
        "trees": options.trees,
        "prices": asdict(prices),
        "on_paper": [asdict(row) for row in paper],
        "checked": [asdict(row) for row in checks],
    }
    print(json.dumps(result) if options.json else text)


if __name__ == "__main__":
    main()
