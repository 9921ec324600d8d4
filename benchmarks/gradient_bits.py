"""What ``gradient_bits`` costs of a model, and what it saves of the time of a tree.

::

    python -m benchmarks.gradient_bits DATA [--rounds 3] [--seeds 3] [--without-times] [--page FILE]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. Losses are those of a third of the rows that was
held out, of models under engine ``plain``, which every other engine equals; the rounding differs
with the seed. Times are of all parties on this machine, over a broker in memory. Each round trains
with and without bits, one after the other, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.credit import Credit
from benchmarks.page import write_page
from benchmarks.trees import Case, in_own_process
from fedmq import TrainParams, simulate

BITS = (16, 8, 4, 2)
TIMED_BITS = (8, 4, 2)
DATA = {"credit1": "Credit 1", "credit2": "Credit 2"}
TREES = 30
HEAD = (
    "What [`gradient_bits`](../reference/configuration.md) costs of a model and saves of the time "
    "of a tree. *Off* is the fixed point of 40 bits, with which models are XGBoost's."
)


def losses(credit: Credit, bits: int | None, seeds: int, depth: int) -> list[float]:
    """Log loss of the held-out third, for each seed of the rounding."""
    found = []
    for seed in range(seeds if bits else 1):
        model = simulate(
            active=credit.active,
            label=credit.label,
            passive={"passive": credit.passive},
            params=TrainParams(
                num_boost_round=TREES, max_depth=depth, gradient_bits=bits, seed=seed
            ),
            engine="plain",
            evaluation=credit.held_out(0),
        )
        found.append(model.share.history["eval-logloss"][-1])
    return found


def loss_lines(folder: Path, seeds: int) -> list[str]:
    """A table of losses by bits."""
    columns = (("credit1", 3), ("credit2", 3), ("credit2", 6))
    heads = [f"{DATA[name]}, depth {depth}" for name, depth in columns]
    tables = {name: Credit.read(folder, name) for name in DATA}
    lines = [f"| bits | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    exact = {column: losses(tables[column[0]], None, 1, column[1])[0] for column in columns}
    lines.append(f"| off | {' | '.join(f'{exact[column]:.5f}' for column in columns)} |")
    for bits in BITS:
        cells = []
        for column in columns:
            found = np.array(losses(tables[column[0]], bits, seeds, column[1])) - exact[column]
            worst = found[np.abs(found).argmax()]
            cells.append(f"{found.mean():+.5f} ({worst:+.5f})")
        lines.append(f"| {bits} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def timed(folder: Path, name: str, engine: str, rounds: int) -> list[str]:
    """A table of seconds per tree by bits, medians over rounds."""
    case = Case(engine=engine, data=str(folder), name=name, rows=200_000)
    seen: dict[int | None, list[dict[str, Any]]] = {bits: [] for bits in (None, *TIMED_BITS)}
    for _ in range(rounds):
        for bits, results in seen.items():
            results.append(in_own_process(replace(case, gradient_bits=bits), "memory://"))
    lines = []
    for bits, results in seen.items():
        numbers = {
            key: median(result[key] for result in results)
            for key in ("seconds", "core seconds", "encrypt", "sum", "pack and hide", "MB")
        }
        faster = [
            off["seconds"] / result["seconds"]
            for off, result in zip(seen[None], results, strict=True)
        ]
        cells = " | ".join(f"{number:.3g}" for number in numbers.values())
        lines.append(
            f"| {DATA[name]}, {engine} | {bits or 'off'} | {cells} | {median(faster):.2f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="trainings with and without (3)")
    parser.add_argument("--seeds", type=int, default=3, help="roundings of each loss (3)")
    parser.add_argument("--without-times", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = [
        f"## Log loss\n\nOf a third of the rows, held out, after {TREES} trees: *off* in the first "
        f"line, then the mean difference from it over {options.seeds} seeds (the largest in "
        "brackets).\n",
        *loss_lines(options.data, options.seeds),
    ]
    if not options.without_times:
        text += [
            "\n## Seconds per tree\n\nOf a key of 2048 bits, 32 bins and depth 3; "
            f"medians of {options.rounds} rounds. *Times faster*: the median of the "
            "ratios within a round.\n",
            "| training | bits | seconds | core seconds | encrypt | sum | pack and hide | MB | "
            "times faster |",
            "|---|---|" + "---:|" * 7,
        ]
        for engine in ("paillier", "ou"):
            text += timed(options.data, "credit2", engine, options.rounds)
    if options.page:
        command = "python -m benchmarks.gradient_bits DATA"
        write_page(options.page, "Gradients of few bits", command, HEAD, "\n".join(text))


if __name__ == "__main__":
    main()
