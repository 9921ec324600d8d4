"""Online scores by three daemons on one RabbitMQ node: latency, throughput, and beside a training.

::

    python -m benchmarks.online DATA [--mode MODE ...] [--json] [--page FILE]

DATA is a folder with credit2_active.csv and credit2_passive.csv (Default of Credit Card Clients).
50 trees of depth 4; latencies count from when a request was due. With modes, only these are
measured, and no training beside.
On a machine that does other things besides, look at the processor time per request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.credit import Credit
from benchmarks.page import write_page
from fedmq import TrainParams
from fedmq.cli.bench import Load, Measured, run
from tests.party.online.serving_federation import TOKEN, ServingFederation

PARAMS = TrainParams(num_boost_round=50, max_depth=4, max_bin=32)
PLAIN, EXPLAINED = (
    "bitmap, single rows, in turns",
    "bitmap, single rows with four reasons, in turns",
)
RATES = {"bitmap": 100, "hop": 100, "sealed": 50}
"""Single rows a second, by mode."""
# What a load is to keep to.
LIMITS = {
    "bitmap, single rows": "p50 10 ms, p99 40 ms",
    "bitmap, batches of 100": "2,000 rows/s",
    "hop, single rows": "p50 40 ms",
    "bitmap, all rows": "3 s, exact",
    EXPLAINED: "p50 three times that without",
    "hop, all rows": "3 s, exact",
    "sealed, single rows": "p50 20 ms, p99 60 ms",
    "sealed, all rows": "30 s, within 2^-20",
    "during a training": "p99 twice that before",
}
HEAD = (
    "Three daemons, one RabbitMQ node and the caller on the same cores; 50 trees of depth 4 on "
    "Credit 2. Latencies count from when a request was due. *Now and then*: four single rows a "
    "second, so that each is alone, beside what `fedmq estimate` says of one before. *All rows*: "
    "30,000 in requests of 10,000. The training beside is Paillier with 2048 bits, its "
    "sums hidden."
)
FEDMQ = "from fedmq.cli.main import main; main()"
# More trees than it grows while it is measured beside.
TRAINING = """\
party = "party.toml"
engine = "paillier"
engine_options = { sums = "hidden" }

[params]
num_boost_round = 500
max_depth = 4
max_bin = 32
"""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """Puts loads on ``federation`` and keeps what was measured."""

    def __init__(self, federation: ServingFederation) -> None:
        self.federation = federation
        self.figures: dict[str, Any] = {}

    def load(
        self, what: str, rate: float, seconds: float, rows: int = 1, explain: int | None = None
    ) -> Measured:
        """Requests of ``rows`` rows at ``rate``, as ``fedmq bench infer`` makes them."""
        federation = self.federation
        before = {
            party: cpu_seconds(process.pid) for party, process in federation.processes.items()
        }
        measured = asyncio.run(
            run(
                Load(
                    federation.url,
                    "/v1/models/production/predict",
                    TOKEN,
                    federation.ids,
                    rate,
                    seconds,
                    rows,
                    10_000,
                    explain,
                )
            )
        )
        requests = len(measured.milliseconds)
        self.figures[what] = {
            "p50_ms": round(measured.percentile(50), 1),
            "p99_ms": round(measured.percentile(99), 1),
            "rows_per_second": round(requests * rows / measured.elapsed),
            "cpu_ms_per_request": {
                party: round((cpu_seconds(process.pid) - before[party]) / requests * 1000, 2)
                for party, process in federation.processes.items()
            },
            "statuses": {str(code): count for code, count in measured.statuses.items()},
        }
        print(f"{what}: {self.figures[what]}", file=sys.stderr)
        return measured

    def estimate(self) -> dict[str, float]:
        """Milliseconds of a single score by mode, as `fedmq estimate` says beforehand."""
        file = str(self.federation.folder / "bank" / "party.toml")
        command = [sys.executable, "-c", FEDMQ, "estimate", file, "--model", "model-1", "--json"]
        done = subprocess.run(command, check=True, capture_output=True)
        return {
            mode: round(1000 * cost["seconds_alone"], 1)
            for mode, cost in json.loads(done.stdout)["modes"].items()
        }

    def all_rows(self, mode: str) -> None:
        """Seconds for all 30,000 rows in requests of 10,000, and whether they are XGBoost's.

        In mode sealed: whether they are within 2^-20 of the largest.
        """
        import httpx

        federation = self.federation

        async def ask() -> list[float]:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(
                base_url=federation.url, headers=headers, timeout=90
            ) as client:
                answers = await asyncio.gather(
                    *(
                        client.post(
                            "/v1/models/production/predict",
                            json={
                                "ids": federation.ids[start : start + 10_000],
                                "output": "margin",
                                "deadline_ms": 60_000,
                            },
                        )
                        for start in range(0, len(federation.ids), 10_000)
                    )
                )
            refused = [answer.text for answer in answers if answer.status_code != 200]
            if refused:
                raise SystemExit(f"all rows in mode {mode}: {refused[0][:300]}")
            return [row["score"] for answer in answers for row in answer.json()["scores"]]

        start = time.perf_counter()
        margins = np.array(asyncio.run(ask()), dtype=np.float32)
        seconds = time.perf_counter() - start
        right = federation.margins["model-1"]
        within = 2**-20 * np.abs(right).max() if mode == "sealed" else 0.0
        exact = bool(np.abs(margins - right).max() <= within)
        self.figures[f"{mode}, all rows"] = {"seconds": round(seconds, 2), "exact": exact}
        print(f"{mode}, all rows: {self.figures[f'{mode}, all rows']}", file=sys.stderr)

    def reasons(self) -> None:
        """Single rows without and with their four strongest reasons, in turns."""
        taken: dict[str, list[tuple[Measured, float]]] = {PLAIN: [], EXPLAINED: []}
        for _ in range(4):
            for what, explain in ((PLAIN, None), (EXPLAINED, 4)):
                measured = self.load(what, 40, 4, explain=explain)
                taken[what].append((measured, self.figures[what]["cpu_ms_per_request"]["bank"]))
        for what, turns in taken.items():
            milliseconds = [number for turn, _ in turns for number in turn.milliseconds]
            self.figures[what] = {
                "p50_ms": round(float(np.percentile(milliseconds, 50)), 1),
                "p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
                "cpu_ms_per_request": {"bank": round(float(np.mean([cpu for _, cpu in turns])), 2)},
            }

    def beside_a_training(self) -> None:
        """The same load before, during and after the first minutes of a training."""
        bank = self.federation.folder / "bank"
        (bank / "train.toml").write_text(TRAINING)
        self.load("before a training", 50, 60)
        training = subprocess.Popen(
            [sys.executable, "-c", FEDMQ, "train", str(bank / "train.toml")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(10)
        self.load("during a training", 50, 60)
        if training.poll() is not None:
            raise SystemExit("the training ended before the scores that are measured beside it")
        training.terminate()
        training.wait()


def table(figures: dict[str, Any]) -> str:
    """As Markdown, with what each load is to keep to."""
    lines = [
        "| load | p50, ms | estimated | p99, ms | rows/s | seconds | exact | to keep to |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for what, measured in figures.items():
        if "warming" not in what:
            names = ("p50_ms", "estimated_ms", "p99_ms", "rows_per_second", "seconds", "exact")
            cells = [str(measured.get(name, "")) for name in names]
            lines.append(f"| {what} | {' | '.join(cells)} | {LIMITS.get(what, '')} |")
    if EXPLAINED not in figures:
        return "\n".join(lines)
    p50 = figures[EXPLAINED]["p50_ms"] / figures[PLAIN]["p50_ms"]
    cpu = [figures[what]["cpu_ms_per_request"]["bank"] for what in (PLAIN, EXPLAINED)]
    p99 = figures["during a training"]["p99_ms"] / figures["before a training"]["p99_ms"]
    return "\n".join(
        [
            *lines,
            "",
            f"With four reasons p50 is {p50:.2f} times that without, and the active party's daemon "
            f"takes {cpu[1]:.2f} ms of processor time a request in place of {cpu[0]:.2f}. "
            f"Beside the training p99 is {p99:.2f} times that before.",
        ]
    )


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--mode", choices=RATES, nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    credit = Credit.read(arguments.data, "credit2")
    with tempfile.TemporaryDirectory() as folder:
        label = credit.label.astype(np.int64)
        federation = ServingFederation(Path(folder) / "demo", credit.joined(), label, [PARAMS])
        try:
            federation.start_broker()
            federation.start()
            bench = Bench(federation)
            estimated = bench.estimate()
            for mode in arguments.mode or RATES:
                federation.activate("model-1", mode)
                bench.load(f"{mode}, warming up", 50, 2)
                bench.load(f"{mode}, now and then", 4, 15)
                bench.figures[f"{mode}, now and then"]["estimated_ms"] = estimated[mode]
                bench.load(f"{mode}, single rows", RATES[mode], 10)
                if mode != "sealed":
                    bench.load(f"{mode}, batches of 100", 1000, 0.2, 100)
                bench.all_rows(mode)
                if mode == "bitmap" and not arguments.mode:
                    bench.reasons()
            if not arguments.mode:
                federation.activate("model-1", "bitmap")
                bench.beside_a_training()
        finally:
            federation.stop()
    if arguments.page:
        write_page(arguments.page, "Online scores", "make bench-online", HEAD, table(bench.figures))
    if arguments.json:
        print(json.dumps(bench.figures))
        return
    for what, figures in bench.figures.items():
        print(f"{what:24}", *(f"{name} {value}" for name, value in figures.items()), sep="  ")


if __name__ == "__main__":
    main()
