"""Seconds per tree, where they go, memory and bytes, of one training in a process of its own.

::

    python -m benchmarks.trees '{"engine": "ou", "rows": 30000, "depth": 3}' [--broker amqp://…]

A case is a table (made up, or ``data`` and ``name``: a folder and one of its credit tables), an
engine and parameters; see `Case`. All parties share
this machine. XGBoost trains on the joined table in the same process, for the ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.centralised import xgboost_seconds
from benchmarks.credit import Credit
from fedmq import TrainParams, simulate
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import OLDEST
from fedmq.boosting.xgboost_comparison.parity import compare, installed_arithmetic, train_reference
from fedmq.party.telemetry.timeline import Timeline, write_trace
from fedmq.simulation.memory_watch import MemoryWatch

# Where a computation's time is counted.
PARTS = {
    "Encrypt": "encrypt",
    "DrawNoise": "encrypt",
    "SumRows": "sum",
    "Merge": "sum",
    "Subtract": "sum",
    "SumBins": "sum",
    "ShowCandidates": "pack and hide",
    "Decrypt": "decrypt",
    "EncryptNode": "encrypt",
    "SumPieces": "sum",
    "AnswerQuery": "sum",
    "DecryptAnswer": "decrypt",
    "MaskSums": "sum",
    "ReadShares": "decrypt",
    "GarbleGains": "garble",
    "GarbleMore": "garble",
    "EvaluateGains": "evaluate",
    "EvaluateMore": "evaluate",
    "HiddenLevel": "transfers",
    "GarbleLevel": "garble",
    "EvaluateLevel": "evaluate",
}


@dataclass(frozen=True)
class Case:
    """One training. ``features``: of the active party and of each passive one."""

    engine: str = "paillier"
    rows: int = 30_000
    features: tuple[int, ...] = (13, 10)
    depth: int = 3
    bins: int = 32
    key_bits: int = 2048
    trees: int = 3
    goss: bool = False
    gradient_bits: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    data: str | None = None
    name: str | None = None


def tables(case: Case) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """The parties' columns, the active one's first, and the label."""
    if case.data and case.name:
        credit = Credit.read(Path(case.data), case.name, case.rows)
        return [credit.active, credit.passive], credit.label
    random = np.random.default_rng(0)
    columns = [random.normal(size=(case.rows, n)).astype(np.float32) for n in case.features]
    signal = sum(table[:, : min(5, table.shape[1])].sum(axis=1) for table in columns)
    noise = random.normal(size=case.rows) * 2
    return columns, (signal + noise > 0).astype(np.float32)


def run(case: Case, broker: str, trace_file: Path | None = None) -> dict[str, Any]:
    """Train; what was seen, per tree.

    Without the first, which makes keys and tables, and the last, which makes no noise ahead.
    """
    columns, label = tables(case)
    params = TrainParams(
        num_boost_round=case.trees + 2,
        max_depth=case.depth,
        max_bin=case.bins,
        goss=case.goss,
        gradient_bits=case.gradient_bits,
        xgboost_arithmetic=OLDEST,
    )
    options = dict(case.options)
    if case.engine in ("paillier", "ou"):
        options |= {"key_bits": case.key_bits, "allow_weak_keys": case.key_bits < 2048}
    trace, done = Timeline(), [time.time()]
    passive = {f"passive{i}": table for i, table in enumerate(columns[1:], start=1)}
    with MemoryWatch() as memory:
        model = simulate(
            active=columns[0],
            label=label,
            passive=passive,
            params=params,
            engine=case.engine,
            engine_options=options,
            broker=broker,
            trace=trace,
            on_report=lambda _: done.append(time.time()),
        )
    if trace_file is not None:
        write_trace(trace.document(), trace_file)
    seconds = np.diff(done)[1:-1]
    result: dict[str, Any] = {
        "seconds": float(np.median(seconds)),
        "first": float(done[1] - done[0]),
        **_set_up(trace),
        **split_by_part(trace, done[1], done[-2], case.trees),
        "MB": model.bytes_sent / 1e6 / (case.trees + 2),
        "peak MB": memory.peak / 1e6,
    }
    return result | beside_xgboost(np.hstack(columns), label, params, model)


def split_by_part(trace: Timeline, start: float, end: float, trees: int) -> dict[str, float]:
    """Seconds of a core per part and tree; of messages and of idle time, on the clock."""
    parts: dict[str, float] = defaultdict(float)
    at_work, moving = [], []
    for event in trace.document()["traceEvents"]:
        begun = event.get("ts", 0) / 1e6
        if event["ph"] != "X" or not start <= begun <= end:
            continue
        span = (begun, begun + event["dur"] / 1e6)
        if "busy ms" in event["args"]:
            parts[PARTS.get(event["name"], "other")] += event["args"]["busy ms"] / 1e3
            at_work.append(span)
        elif "bytes" in event["args"]:
            moving.append(span)
    split = {part: seconds / trees for part, seconds in sorted(parts.items())}
    split["core seconds"] = sum(split.values())
    split["transfer"] = _covered(moving) / trees
    split["wait"] = (end - start - _covered(at_work)) / trees
    return split


def _set_up(trace: Timeline) -> dict[str, float]:
    """Seconds until the last part of an engine's set-up has arrived, and its size."""
    events = [event for event in trace.document()["traceEvents"] if event["ph"] == "X"]
    parts = [event for event in events if event["name"] == "engine setup"]
    if not parts:
        return {}
    begun = min(event["ts"] for event in events)
    ended = max(event["ts"] + event["dur"] for event in parts)
    size = sum(event["args"].get("bytes", 0) for event in parts)
    return {"set-up seconds": (ended - begun) / 1e6, "set-up MB": size / 1e6}


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans lasts."""
    total, until = 0.0, 0.0
    for begun, ended in sorted(spans):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


def beside_xgboost(
    values: NDArray[np.float32], label: NDArray[np.float32], params: TrainParams, model: Any
) -> dict[str, Any]:
    result: dict[str, Any] = {"xgboost seconds": xgboost_seconds(values, label, params)}
    same = params.xgboost_arithmetic == installed_arithmetic()
    if same and not params.goss and params.gradient_bits is None:
        bins = BinMatrix.of(values, Cuts.of(values, params.max_bin))
        parity = compare(train_reference(bins, label, params), model.joined_trees(), bins)
        result["nodes as XGBoost's"] = f"{parity.identical}/{parity.total}"
    return result


def in_own_process(case: Case, broker: str, trace: Path | None = None) -> dict[str, Any]:
    """`run` in a fresh process, so that neither memory nor tables of powers are inherited."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.trees",
        json.dumps(asdict(case)),
        "--broker",
        broker,
    ]
    command += ["--trace", str(trace)] if trace else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run one case and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", help='JSON of the settings that differ, such as {"engine": "ou"}')
    parser.add_argument("--broker", default="memory://", help="memory:// or amqp://… (memory://)")
    parser.add_argument("--trace", type=Path, help="write a timeline for ui.perfetto.dev")
    options = parser.parse_args()
    settings = json.loads(options.case)
    settings["features"] = tuple(settings.get("features", Case.features))
    print(json.dumps(run(Case(**settings), options.broker, options.trace)))


if __name__ == "__main__":
    main()
