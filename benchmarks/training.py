"""Seconds per tree of each engine on Default of Credit Card Clients, beside XGBoost's.

::

    python -m benchmarks.training DATA [--engines plain ou paillier] [--trees 5] [--depth 3]
                                  [--bins 32] [--key-bits 2048] [--rows N] [--json]

DATA is a folder with ``credit2_active.csv`` (id, label, 13 features) and ``credit2_passive.csv``
(id, 10 features): the data set of the UCI repository, dealt out by columns, 30,000 rows. Two
parties train in one process by ``fedmq.simulate``, each engine in a process of its own. XGBoost
trains the joined table in the same run, on all cores as they do. Memory is the peak of the process
that holds both parties, and of its largest worker.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import fedmq
from benchmarks.centralised import xgboost_seconds
from benchmarks.credit import Credit
from fedmq.boosting.metrics import auc


@dataclass(frozen=True)
class Result:
    """What one engine did."""

    engine: str
    seconds_per_tree: float
    seconds_first_tree: float
    ratio_to_xgboost: float | None
    megabytes_sent_per_tree: float
    peak_megabytes: int
    peak_megabytes_of_a_worker: int
    train_auc: float


def load(options: argparse.Namespace) -> Credit:
    """The table that the command line asks for."""
    return Credit.read(options.data, "credit2", options.rows)


def params_of(options: argparse.Namespace) -> fedmq.TrainParams:
    """The parameters of all engines and of XGBoost."""
    return fedmq.TrainParams(
        num_boost_round=options.trees, max_depth=options.depth, max_bin=options.bins
    )


def measure_xgboost(options: argparse.Namespace) -> float:
    """Seconds per tree on the joined table."""
    credit = load(options)
    return xgboost_seconds(credit.joined(), credit.label, params_of(options))


def measure(engine: str, options: argparse.Namespace) -> Result:
    """Train with ``engine`` in this process."""
    credit = load(options)
    passive = {"passive": credit.passive}
    times = [time.perf_counter()]
    model = fedmq.simulate(
        active=credit.active,
        label=credit.label,
        passive=passive,
        params=params_of(options),
        engine=engine,
        engine_options=({} if engine in ("plain", "lattice") else {"key_bits": options.key_bits}),
        on_report=lambda _: times.append(time.perf_counter()),
    )
    spent = np.diff(times)
    # The first tree makes keys and tables, the last no noise ahead.
    between = spent[1:-1] if len(spent) > 2 else spent
    scores = model.predict(active=credit.active, passive=passive)
    own, workers = (
        resource.getrusage(who).ru_maxrss // 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return Result(
        engine,
        round(float(np.median(between)), 4),
        round(float(spent[0]), 4),
        None,
        round(model.bytes_sent / len(times[1:]) / 1e6, 3),
        own,
        workers,
        round(auc(credit.label, scores), 5),
    )


def measured_alone(engine: str) -> Result:
    """The same in a fresh process, so that memory is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", *sys.argv[1:], "--alone", engine],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(done.returncode)
    return Result(**json.loads(done.stdout))


def table(results: list[Result]) -> str:
    """Results as text, one engine a row."""
    header = f"{'':<10}{'s/tree':>10}{'first':>10}{'x XGBoost':>11}{'MB/tree':>10}"
    lines = [header + f"{'MB peak':>10}{'MB worker':>11}{'AUC':>10}"]
    lines += [
        f"{result.engine:<10}{result.seconds_per_tree:>10.3f}{result.seconds_first_tree:>10.3f}"
        f"{result.ratio_to_xgboost:>11.0f}{result.megabytes_sent_per_tree:>10.2f}"
        f"{result.peak_megabytes:>10}{result.peak_megabytes_of_a_worker:>11}{result.train_auc:>10.5f}"
        for result in results
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of credit2_active.csv, credit2_passive.csv")
    parser.add_argument("--engines", nargs="+", default=["plain", "ou", "paillier"])
    parser.add_argument("--trees", type=int, default=5, help="trees to train (5)")
    parser.add_argument("--depth", type=int, default=3, help="levels of a tree (3)")
    parser.add_argument("--bins", type=int, default=32, help="bins of a feature (32)")
    parser.add_argument("--key-bits", type=int, default=2048, help="length of the keys (2048)")
    parser.add_argument("--rows", type=int, help="rows to take; all by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(asdict(measure(options.alone, options))))
        return
    xgboost = measure_xgboost(options)
    results = []
    for engine in options.engines:
        print(f"{engine}: {options.trees} trees ...", file=sys.stderr, flush=True)
        alone = measured_alone(engine)
        ratio = round(alone.seconds_per_tree / xgboost, 2)
        results.append(Result(**asdict(alone) | {"ratio_to_xgboost": ratio}))
    if options.json:
        shown = {name: getattr(options, name) for name in ("trees", "depth", "bins", "key_bits")}
        engines = [asdict(result) for result in results]
        print(json.dumps({**shown, "xgboost_seconds_per_tree": xgboost, "engines": engines}))
    else:
        print(f"XGBoost: {xgboost:.4f} s/tree")
        print(table(results))


if __name__ == "__main__":
    main()
