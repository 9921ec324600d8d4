"""All benchmarks, as a page and its data in docs/measured.

::

    python -m benchmarks.report [--data FOLDER] [--full] [--out docs/measured] [--parts NAME ...]

``--data`` holds credit1 and credit2, both as NAME_active.csv and NAME_passive.csv: the papers'
data. Quick by default, some five minutes on two free cores; ``--full`` takes about half an hour,
most of it for 5,000 features. With ``--parts`` (as ``figures.json`` names them) only these are
measured, and the others are taken from the last run. What else the machine does slows it
down: beside the seconds on the clock stand the seconds of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.broker import private_node
from benchmarks.credit import Credit
from benchmarks.trees import Case, in_own_process
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.privacy.homomorphic.histogram import Tricks, plan_cells, products

MEASURED = Path(__file__).parents[1] / "docs" / "measured"
Row = dict[str, Any]

TRICKS = (
    "joint_sums",
    "skip_fullest",
    "subtract_siblings",
    "sum_early",
    "noise_ahead",
    "pack_sums",
)
SPLIT = ("encrypt", "sum", "pack and hide", "decrypt", "other", "transfer", "wait")
CIRCUITS = ("transfers", "garble", "evaluate")


@dataclass(frozen=True)
class Sweep:
    """Cases that differ in one thing; plotted over it, one line per engine."""

    name: str
    title: str
    axis: str
    cases: Sequence[tuple[float, Case]]


def sweeps(full: bool) -> list[Sweep]:
    """What the time per tree is measured over."""
    small = Case(rows=30_000 if full else 4_000, trees=2)
    ou, paillier = replace(small, engine="ou"), replace(small, engine="paillier")
    plain = replace(small, engine="plain")
    figure = replace(ou, rows=30_000 if full else 3_000)

    def over(values: Sequence[int], *changed: Callable[[int], Case]) -> list[tuple[float, Case]]:
        return [(value, change(value)) for change in changed for value in values]

    rows = [5_000, 10_000, 20_000, 30_000] if full else [1_000, 2_000, 4_000]
    widths = [50, 200, 1_000, 5_000] if full else [10, 50, 100]
    many = [10_000, 100_000, 1_000_000] if full else [10_000, 100_000]
    encrypted = [15_000, 50_000, 150_000] if full else []
    return [
        Sweep(
            "rows",
            "Time over rows (SecureBoost, Figure 5)",
            "rows",
            over(rows, lambda n: replace(paillier, rows=n), lambda n: replace(ou, rows=n)),
        ),
        Sweep(
            "features",
            "Time over features (SecureBoost, Figure 5)",
            "features of the passive party",
            over(
                widths, lambda n: replace(figure, rows=5_000 if full else 1_000, features=(10, n))
            ),
        ),
        Sweep(
            "depth",
            "Time over depth (SecureBoost, Figure 5)",
            "depth",
            over(range(3, 9) if full else (3, 5), lambda n: replace(figure, depth=n)),
        ),
        Sweep(
            "scale",
            "Time over many rows",
            "rows",
            over(many, lambda n: replace(plain, rows=n, features=(10, 10)))
            + over(encrypted, lambda n: replace(paillier, rows=n, features=(5, 5))),
        ),
        Sweep("bins", "Time over bins", "bins", over((8, 32, 128), lambda n: replace(ou, bins=n))),
        Sweep(
            "key",
            "Time over the key's length",
            "bits",
            over(
                (1024, 2048, 3072, 4096) if full else (1024, 2048, 3072),
                lambda n: replace(paillier, key_bits=n, rows=small.rows // 2),
                lambda n: replace(ou, key_bits=n, rows=small.rows // 2),
            ),
        ),
        Sweep(
            "parties",
            "Time over parties",
            "passive parties, of 10 features each",
            over((1, 2, 4), lambda n: replace(ou, features=(10,) + (10,) * n)),
        ),
    ]


def switches(full: bool) -> list[tuple[str, Case]]:
    """The same training with one trick less."""
    base = Case(engine="paillier", rows=30_000 if full else 3_000, trees=2)
    cases = [("all tricks", base)]
    cases += [(f"without {trick}", replace(base, options={trick: False})) for trick in TRICKS]
    # It takes 15 ms a row: fewer rows will do.
    few = replace(base, rows=500, trees=1)
    cases.append(("500 rows, all tricks", few))
    cases.append(("500 rows, without short_noise", replace(few, options={"short_noise": False})))
    return [*cases, ("goss", replace(base, goss=True))]


def hidden(case: Case, covert: int = 1) -> Case:
    """The case on a lattice that shows no sum, with so many copies of circuits."""
    return replace(case, engine="lattice", options={"sums": "hidden", "covert": covert})


def papers(data: str, full: bool) -> list[tuple[str, Case]]:
    """The papers' tables, with the figures that peers have on them."""
    credit2 = Case(data=data, name="credit2", trees=3)
    credit1 = Case(data=data, name="credit1", rows=150_000, trees=2)
    # Trees of a fraction of a second differ more from one another.
    lattice2, lattice1 = (replace(case, engine="lattice", trees=9) for case in (credit2, credit1))
    cases = [
        ("Credit 2, plain", replace(lattice2, engine="plain")),
        ("Credit 2, lattice", lattice2),
        ("Credit 2, lattice, depth 6", replace(lattice2, depth=6)),
        ("Credit 2, lattice, hidden sums", hidden(lattice2)),
        ("Credit 2, lattice, hidden sums, two copies", hidden(lattice2, covert=2)),
        ("Credit 2, lattice, hidden sums, depth 6", replace(hidden(credit2), depth=6)),
        ("Credit 2, ou", replace(credit2, engine="ou")),
        ("Credit 2, ou, depth 6", replace(credit2, engine="ou", depth=6)),
        ("Credit 2, paillier", credit2),
        ("Credit 2, paillier, goss", replace(credit2, goss=True)),
        ("Credit 1, lattice", lattice1),
        ("Credit 1, lattice, hidden sums", replace(hidden(credit1), trees=3)),
        ("Credit 1, ou", replace(credit1, engine="ou")),
    ]
    million = Case(engine="lattice", rows=1_000_000, features=(6, 12))
    whole = [
        ("Credit 1, paillier", credit1),
        ("1,000,000 rows, 6 and 12 columns, lattice", million),
    ]
    return cases + whole if full else cases


class Report:
    """Collects Markdown, figures and plots, and writes them as it goes."""

    def __init__(self, folder: Path, parts: Sequence[str] | None) -> None:
        self._page, self.data = folder / "benchmarks.md", folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self._text: list[str] = []
        self._figures: dict[str, Any] = {}
        self.later: list[str] = []
        if parts is not None:
            before: dict[str, Any] = json.loads((self.data / "figures.json").read_text())
            self.later = sorted({*before.get("later", ()), *parts} & set(before))
            self._figures = {name: part for name, part in before.items() if name not in parts}
        self._figures["later"] = self.later

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """The figures of a part, measured unless they are taken from the last run."""
        if name not in self._figures:
            self._figures[name] = measure()
            (self.data / "figures.json").write_text(json.dumps(self._figures, indent=1) + "\n")
        return self._figures[name]

    def add(self, *lines: str) -> None:
        """Add lines of Markdown."""
        self._text += lines
        self._page.write_text("\n".join(self._text) + "\n")

    def table(self, first: str, rows: Mapping[str, Row], columns: Sequence[str]) -> None:
        """Add a table: a line for each of ``rows``."""
        self.add(f"| {first} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns))
        for name, row in rows.items():
            cells = (_cell(row.get(column, "")) for column in columns)
            self.add(f"| {name} | " + " | ".join(cells) + " |")
        self.add("")

    def plot(self, sweep: Sweep, lines: Mapping[str, Sequence[tuple[float, Row]]]) -> None:
        """Seconds and seconds of cores per tree over what the sweep changes."""
        import matplotlib as mpl  # it is an extra, and only this needs it

        mpl.use("Agg")
        mpl.rcParams["svg.hashsalt"] = "fedmq"  # the same figures give the same file
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        for engine, points in lines.items():
            places = [place for place, _ in points]
            (drawn,) = axes.plot(places, [row["seconds"] for _, row in points], "o-", label=engine)
            busy = [row["core seconds"] / 2 for _, row in points]
            axes.plot(places, busy, ":", color=drawn.get_color(), label=f"{engine}, cores at work")
        axes.set(xlabel=sweep.axis, ylabel="seconds per tree", title=sweep.title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.tight_layout()
        figure.savefig(self.data / f"{sweep.name}.svg", metadata={"Date": None})
        pyplot.close(figure)
        self.add(f"![{sweep.title}]({self.data.name}/{sweep.name}.svg)", "")


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def binned(data: str | None) -> Iterator[tuple[str, NDArray[np.integer]]]:
    """Tables whose histograms are summed jointly."""
    random = np.random.default_rng(0)
    yield "40 binary columns, 30,000 rows", random.integers(0, 2, (30_000, 40)).astype(np.uint8)
    sparse = (random.random((30_000, 40)) < 0.05).astype(np.uint8)
    yield "40 binary columns of 5 % ones, 30,000 rows", sparse
    yield "10 independent columns of 33 bins", random.integers(0, 33, (30_000, 10)).astype(np.uint8)
    for name in ("credit1", "credit2") if data else ():
        values = Credit.read(Path(str(data)), name).passive
        yield f"{name}, passive", BinMatrix.of(values, Cuts.of(values, 32)).codes


def fewer_products(bins: NDArray[np.integer]) -> float:
    """How many times fewer products the root's sums take than one for each row and feature."""
    blocks = (bins[:, start : start + 16] for start in range(0, bins.shape[1], 16))
    tricks = Tricks()
    groups = [group for block in blocks for group in plan_cells(block, tricks)]
    return bins.size / products(groups, tricks)


def phe_seconds(case: Case, micros: Mapping[str, float]) -> float:
    """What the same tree would take python-paillier on two cores, from its own primitives.

    Two ciphertexts a row, all of them added for each feature and level, two decryptions a sum.
    """
    features = sum(case.features[1:])
    sums = features * case.bins * ((1 << case.depth) - 1)
    work = 2 * case.rows * micros["encrypt"] + 2 * sums * micros["decrypt"]
    work += 2 * case.rows * features * case.depth * micros["add, one feature"]
    return work / 1e6 / 2


def with_ratios(case: Case, row: Row, phe: Mapping[str, float]) -> Row:
    """A result with how it compares to XGBoost and, if encrypted, to python-paillier."""
    row["times XGBoost"] = row["seconds"] / row["xgboost seconds"]
    if case.engine != "plain":
        row["phe / this"] = phe_seconds(case, phe) / max(row["core seconds"] / 2, 1e-9)
    return row


def primitives(full: bool) -> dict[str, dict[str, float]]:
    """Microseconds by scheme and primitive."""
    size = ["--rows", "4000", "--repeat", "5"] if full else ["--rows", "1000", "--repeat", "3"]
    command = [sys.executable, "-m", "benchmarks.primitives", "--json", *size]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)["µs"]
    return found


def swept(sweep: Sweep, measured: Callable[[Case], Row]) -> dict[str, list[tuple[float, Row]]]:
    """Each place and what was measured there, by engine."""
    lines: dict[str, list[tuple[float, Row]]] = {}
    for place, case in sweep.cases:
        lines.setdefault(case.engine, []).append((place, measured(case)))
    return lines


def main() -> None:
    """Measure all, and write the report as it goes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="folder with credit1 and credit2; left out, made-up tables")
    parser.add_argument("--full", action="store_true", help="half an hour instead of minutes")
    parser.add_argument("--parts", nargs="+", help="what to measure anew; all by default")
    parser.add_argument("--out", type=Path, default=MEASURED)
    options = parser.parse_args()
    report = Report(options.out, options.parts)
    load = os.getloadavg()[0]
    report.add(
        "# Benchmarks",
        "",
        f"Made by `make bench`{' in full' if options.full else ', the quick run'}: all parties on "
        f"{len(os.sched_getaffinity(0))} cores of one machine ({platform.machine()}, Python "
        f"{platform.python_version()}), messages over RabbitMQ. When it began, "
        f"{load:.1f} other tasks were running there; beside the seconds on the clock stand the "
        "seconds that cores were at work, which depend on that less. Keys have 2048 bits, trees "
        "depth 3 and features 32 bins where nothing else is said. Seconds are the median per tree, "
        "without the first and the last. XGBoost trains the joined table on the same cores; its "
        "time leaves out reading and binning the table.",
        "",
        *(
            [f"Measured later than the rest, by `PARTS=`: {', '.join(report.later)}.", ""]
            if report.later
            else []
        ),
        "## Primitives, one core, µs",
        "",
    )
    micros = report.part("primitives", lambda: primitives(options.full))
    names = {name: {s: micros[s].get(name, "") for s in micros} for name in micros["paillier"]}
    report.table("", names, list(micros))
    columns = ["seconds", "core seconds", "times XGBoost", "phe / this", "MB", "peak MB"]
    with private_node() as broker:

        def measured(case: Case, trace: Path | None = None) -> Row:
            print(f"{case}", file=sys.stderr)
            return with_ratios(case, in_own_process(case, broker, trace), micros["phe"])

        def of_papers() -> dict[str, Row]:
            timeline = report.data / "timeline.json"
            return {
                name: measured(case, timeline if name == "Credit 2, ou" else None)
                for name, case in papers(options.data, options.full)
            }

        if options.data:
            found = report.part("papers", of_papers)
            report.add("## The papers' tables", "", "Time, traffic and memory per tree:", "")
            report.table("", found, [*columns, "nodes as XGBoost's"])
            sent = {name: row for name, row in found.items() if "set-up MB" in row}
            report.add("What parties send each other once, before the first tree:", "")
            report.table("", sent, ["set-up seconds", "set-up MB"])
            report.add(
                "Seconds of cores by part; messages under way and idle time, on the clock. "
                "*transfers* has small circuits, too, which a step garbles or evaluates with them:",
                "",
            )
            report.table("", found, (*SPLIT, *CIRCUITS))
            report.add("[timeline.json](data/timeline.json) opens in ui.perfetto.dev.", "")
        report.add("## Joint histograms", "")
        joint = report.part(
            "joint",
            lambda: {
                name: {"fewer products": fewer_products(bins)}
                for name, bins in binned(options.data)
            },
        )
        report.table("How many times", joint, ["fewer products"])
        report.add("## What each trick brings", "")
        found = report.part(
            "switches",
            lambda: {name: measured(case) for name, case in switches(options.full)},
        )
        report.table("Paillier", found, [*columns[:2], *SPLIT[:4], "MB"])
        for sweep in sweeps(options.full):
            lines = report.part(sweep.name, partial(swept, sweep, measured))
            report.add(f"## {sweep.title}", "")
            for engine, points in lines.items():
                rows = {f"{place:,}": row for place, row in points}
                report.table(f"{engine}, {sweep.axis}", rows, columns)
            report.plot(sweep, lines)


if __name__ == "__main__":
    main()
