"""What adding eight ciphertexts at once saves on tables of few rows and many columns.

::

    python -m benchmarks.wide [--rounds 3] [--cases N] [--from N] [--page FILE]

Tables are made up; the last one has its sums hidden, and ``--from 4`` measures it alone. Each round
trains with ``vectors`` and without, one after the other, so that what else the machine does falls
on both; both models are XGBoost's. All parties share this machine, over a broker in memory. Seconds
per tree are printed; the page has seconds of cores and ratios, which depend less on what else the
machine does.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.page import write_page
from benchmarks.trees import Case, in_own_process

CIRCUITS = ("transfers", "garble", "evaluate")
"""Parts of hidden sums alone."""
CASES = (
    Case(engine="ou", rows=10_000, features=(13, 500), trees=1),
    Case(engine="ou", rows=2_000, features=(13, 500), trees=1),
    Case(engine="ou", rows=10_000, features=(13, 50), trees=3),
    Case(engine="paillier", rows=2_000, features=(13, 100), trees=1),
    Case(engine="ou", rows=10_000, features=(13, 500), trees=1, options={"sums": "hidden"}),
)
PARTS = ("core seconds", "encrypt", "sum", "pack and hide", "decrypt", *CIRCUITS)
WAYS = {"one by one": False, "eight at once": True}
HEAD = (
    "What [eight products at once](../explanation/fast-encryption.md#eight-at-once) save on wide "
    "tables: keys of 2048 bits, 32 bins, depth 3. Seconds of cores per tree, of all parties, and "
    "where they go; medians, rounds: {rounds}. *Times faster*: the median of the ratios within a "
    "round, in seconds of cores."
)


def measured(case: Case, rounds: int) -> list[str]:
    """Two lines of the table."""
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, vectors in WAYS.items():
            options = {**case.options, "vectors": vectors}
            result = in_own_process(replace(case, options=options), "memory://")
            print(
                f"{name(case)}, {way}: {result['seconds']:.2f} s on the clock, "
                f"{result['peak MB']:.0f} MB of memory",
                flush=True,
            )
            same, all_nodes = result["nodes as XGBoost's"].split("/")
            if same != all_nodes:
                raise SystemExit(f"{name(case)}: {same} of {all_nodes} nodes are XGBoost's")
            seen[way].append(result)
    lines = []
    for way, results in seen.items():
        cells = [
            f"{median(result[part] for result in results):.3g}" if part in results[0] else ""
            for part in PARTS
        ]
        ratios = [
            before["core seconds"] / result["core seconds"]
            for before, result in zip(seen["one by one"], results, strict=True)
        ]
        cells.append(f"{median(ratios):.2f}")
        lines.append(f"| {name(case)} | {way} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def name(case: Case) -> str:
    """How the page calls a case."""
    hidden = ", hidden sums" * (case.options.get("sums") == "hidden")
    return f"{case.engine}, {case.rows:,} x {case.features[1]}{hidden}"


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each way (3)")
    parser.add_argument("--cases", type=int, default=len(CASES), help="the first N tables")
    parser.add_argument("--from", type=int, default=0, dest="first", help="leave out N tables (0)")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = [
        "| engine, rows x passive columns | products | core seconds | encrypt | sum | "
        "pack and hide | decrypt | transfers | garble | evaluate | times faster |",
        "|---|---|" + "---:|" * 9,
    ]
    for case in CASES[options.first : options.cases]:
        text += measured(case, options.rounds)
    if options.page:
        write_page(
            options.page,
            "Wide tables",
            "python -m benchmarks.wide",
            HEAD.format(rounds=options.rounds),
            "\n".join(text),
        )


if __name__ == "__main__":
    main()
