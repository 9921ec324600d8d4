"""What a round of ten classes costs beside one binary tree.

::

    python -m benchmarks.classes [--rounds 3] [--page FILE] [--way WAY]

The digits of scikit-learn, 1,797 x 64, dealt out to two parties; engine ``ou`` with keys of 2048
bits, depth 4. Each repetition trains in every way, one after the other, so that what else the
machine does falls on all; a training runs in a process of its own. All parties share this machine,
over a broker in memory, and each model is XGBoost's. Seconds on the clock are printed; the page has
seconds of cores and ratios, which depend less on what else the machine does. With ``--way`` one
training runs here, and one line of JSON is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.page import write_page
from benchmarks.trees import beside_xgboost, split_by_part
from fedmq import TrainParams, simulate
from fedmq.party.telemetry.timeline import Timeline

CLASSES = 10
PARTS = ("encrypt", "sum", "pack and hide", "decrypt")
HEAD = (
    "What a round of [ten classes](../how-to/objectives.md#several-classes) costs beside one "
    "binary tree (is the digit above 4?): the digits of scikit-learn, 1,797 x 64, half of the "
    "columns at a passive party; `ou`, 2048 bits, depth 4, over a broker in memory. Medians, "
    "repetitions: {rounds}. Seconds of cores per round, of all parties, and where they go. "
    "*Times*: the median of the ratios to the binary tree within a repetition."
)


@dataclass(frozen=True)
class Way:
    """``trees`` grow in each of ``rounds`` that are measured."""

    params: Mapping[str, Any]
    trees: int
    rounds: int


WAYS = {
    "one binary tree": Way({}, 1, 4),
    "multi_output_tree": Way(
        {
            "objective": "multi:softprob",
            "num_class": CLASSES,
            "multi_strategy": "multi_output_tree",
        },
        1,
        4,
    ),
    "one_output_per_tree": Way({"objective": "multi:softprob", "num_class": CLASSES}, CLASSES, 1),
}


def run(way: Way) -> dict[str, Any]:
    """Train; what was seen, per round.

    Without the first round, which makes keys and tables, and the last, which makes no noise ahead.
    """
    values, digits = load_digits(return_X_y=True)
    values = values.astype(np.float32)
    label = (digits if "num_class" in way.params else digits > CLASSES // 2 - 1).astype(np.float32)
    params = TrainParams(num_boost_round=way.rounds + 2, max_depth=4, **way.params)
    trace, done = Timeline(), [time.time()]
    model = simulate(
        active=values[:, :32],
        label=label,
        passive={"passive": values[:, 32:]},
        params=params,
        engine="ou",
        trace=trace,
        on_report=lambda _: done.append(time.time()),
    )
    begun, ended = done[way.trees], done[-1 - way.trees]
    return {
        "seconds": (ended - begun) / way.rounds,
        **split_by_part(trace, begun, ended, way.rounds),
        "MB": model.bytes_sent / 1e6 / (way.rounds + 2),
        **beside_xgboost(values, label, params, model),
    }


def in_own_process(name: str) -> dict[str, Any]:
    """`run` in a fresh process; every node must be XGBoost's."""
    command = [sys.executable, "-m", "benchmarks.classes", "--way", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    same, all_nodes = result["nodes as XGBoost's"].split("/")
    if same != all_nodes:
        raise SystemExit(f"{name}: {same} of {all_nodes} nodes are XGBoost's")
    return result


def measured(rounds: int) -> list[str]:
    """A line of the table for each way."""
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, results in seen.items():
            results.append(in_own_process(name))
            print(f"{name}: {results[-1]['seconds']:.2f} s on the clock", flush=True)
    binary, *_ = seen.values()
    lines = []
    for name, results in seen.items():
        numbers = [
            median(result.get(key, 0.0) for result in results)
            for key in ("core seconds", *PARTS, "MB")
        ]
        times = median(
            result["core seconds"] / before["core seconds"]
            for before, result in zip(binary, results, strict=True)
        )
        cells = [*(f"{number:.3g}" for number in numbers), f"{times:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each way (3)")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(run(WAYS[options.way])))
        return
    text = [
        "| a round of | core seconds | encrypt | sum | pack and hide | decrypt | MB | times |",
        "|---|" + "---:|" * 7,
        *measured(options.rounds),
    ]
    if options.page:
        head = HEAD.format(rounds=options.rounds)
        write_page(options.page, "Classes", "make bench-classes", head, "\n".join(text))


if __name__ == "__main__":
    main()
