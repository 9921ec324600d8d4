"""What this checkout costs beside another one: seconds a tree, and processor time a score.

::

    python -m benchmarks.paired DATA OTHER [--engines plain ou lattice] [--rounds 5] [--trees 8]
                                           [--scores] [--json]

DATA is a folder with credit2_active.csv and credit2_passive.csv (Default of Credit Card Clients).
OTHER is a checkout of another commit, say by ``git worktree add``. Both run in turns, each training
and each load in a process of its own, so that a machine that grows slower slows both. A ratio is
this checkout's figure by the other's; below 1 this one is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
SCORES = ("bitmap, single rows", "hop, single rows")


def said(checkout: Path, *arguments: str) -> Any:
    """What ``python -m ARGUMENTS`` prints there, read as JSON; the venv is this one's."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def seconds_per_tree(checkout: Path, data: Path, engine: str, trees: int) -> dict[str, float]:
    """The median tree of one training, first and last left out."""
    arguments = ("--trees", str(trees), "--alone", engine)
    return {
        engine: said(checkout, "benchmarks.training", str(data), *arguments)["seconds_per_tree"]
    }


def score_costs(checkout: Path, data: Path) -> dict[str, float]:
    """Milliseconds of all daemons' processor time a request, by how scores are made."""
    figures = said(checkout, "benchmarks.online", str(data), "--json")
    return {what: sum(figures[what]["cpu_ms_per_request"].values()) for what in SCORES}


def paired(
    measure: Callable[[Path], dict[str, float]], other: Path, rounds: int
) -> dict[str, dict[str, float]]:
    """Both checkouts in turns; medians of each, and the median of the ratios pair by pair."""
    pairs = []
    for turn in range(rounds):
        order = (HERE, other) if turn % 2 else (other, HERE)
        taken = {checkout: measure(checkout) for checkout in order}
        pairs.append((taken[HERE], taken[other]))
        print(f"{pairs[-1][0]} beside {pairs[-1][1]}", file=sys.stderr, flush=True)
    return {
        what: {
            "here": statistics.median(here[what] for here, _ in pairs),
            "other": statistics.median(there[what] for _, there in pairs),
            "ratio": round(statistics.median(here[what] / there[what] for here, there in pairs), 3),
        }
        for what in pairs[0][0]
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of credit2_active.csv, credit2_passive.csv")
    parser.add_argument("other", type=Path, help="a checkout of another commit")
    parser.add_argument("--engines", nargs="*", default=["plain", "ou", "lattice"])
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each training (5)")
    parser.add_argument("--trees", type=int, default=8, help="trees of each training (8)")
    parser.add_argument("--scores", action="store_true", help="online scores, too: two rounds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    data, other = options.data.resolve(), options.other.resolve()
    figures: dict[str, dict[str, float]] = {}
    for engine in options.engines:
        figures |= paired(
            partial(seconds_per_tree, data=data, engine=engine, trees=options.trees),
            other,
            options.rounds,
        )
    if options.scores:
        figures |= paired(partial(score_costs, data=data), other, 2)
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{'':<24}{'here':>10}{'other':>10}{'ratio':>8}")
    for what, row in figures.items():
        print(f"{what:<24}{row['here']:>10.4f}{row['other']:>10.4f}{row['ratio']:>8.3f}")


if __name__ == "__main__":
    main()
