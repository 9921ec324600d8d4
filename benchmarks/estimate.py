"""What ``fedmq estimate`` says, beside what the same jobs then take two daemons.

::

    python -m benchmarks.estimate DATA [--trees 6] [--jobs ou ...] [--without-bins] [--json]
                                       [--page FILE]

DATA holds ``credit1_*.csv`` and ``credit2_*.csv``. For each job the estimate is made first, by the
command in a process of its own, then two daemons train the job over a private RabbitMQ node, and
the estimate is made once more: what else the machine does changes with time, so the mean of both
estimates is compared. The estimate knows the passive party's bins (``--bins``), unless
``--without-bins``. Shown are ratios, estimate to measurement: seconds per tree on the clock,
seconds of cores, bytes and peak memory of each party, and the seconds that an estimate took. The
first and the last tree are left out: one makes keys, the other gets nothing ready for the next.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.broker import private_node
from benchmarks.credit import LABELS
from benchmarks.made_up_table import link_tables, write_parquet, write_table
from benchmarks.page import write_page
from fedmq.boosting.params import OLDEST
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.operations.control import request_daemon
from fedmq.simulation.memory_watch import MemoryWatch

WIDE = "wide"
WIDE_ROWS, WIDE_COLUMNS = 10_000, (13, 500)
TALL, BROAD = "tall", "broad"
TALL_ROWS, TALL_COLUMNS = 1_000_000, (10, 10)
BROAD_ROWS, BROAD_COLUMNS = 100_000, (300, 300)
HEAD = (
    "Ratios of what `fedmq estimate` says to what two daemons then take: the aim is 0.7 to 1.3. "
    "*s per tree* is what was measured. Traffic is both ways; the estimate knows the passive "
    "party's bins. *Wide*, *tall* and *broad* are made-up tables: rows, and columns of the active "
    f"and of the other party, are {WIDE_ROWS:,} x ({WIDE_COLUMNS[0]} + {WIDE_COLUMNS[1]}), "
    f"{TALL_ROWS:,} x ({TALL_COLUMNS[0]} + {TALL_COLUMNS[1]}) and "
    f"{BROAD_ROWS:,} x ({BROAD_COLUMNS[0]} + {BROAD_COLUMNS[1]})."
)
FEDMQ = str(Path(sys.executable).with_name("fedmq"))
BANK, TELCO = "bank", "telco"
FEDERATION = f'name = "benchmark"\nactive = "{BANK}"\npassive = ["{TELCO}"]\n'


@dataclass(frozen=True)
class Job:
    """A training of the benchmarks; ``options`` of its engine as TOML, ``bins`` of each column.

    ``ending``: of the tables' files, and so their type.
    """

    data: str
    engine: str
    depth: int = 3
    options: str = ""
    bins: int = 32
    ending: str = "csv"

    @property
    def name(self) -> str:
        """For people."""
        deep = f", depth {self.depth}" if self.depth != 3 else ""
        options = f", {self.options}" if self.options else ""
        bins = f", {self.bins} bins" if self.bins != 32 else ""
        return f"{self.data.replace('credit', 'Credit ')}, {self.engine}{options}{deep}{bins}"


JOBS = [
    *(Job("credit2", engine) for engine in ("plain", "ou", "paillier")),
    Job("credit2", "ou", 6),
    Job("credit2", "lattice", options='sums = "hidden"'),
    *(Job("credit1", engine) for engine in ("plain", "ou", "paillier")),
    Job(WIDE, "ou"),
    *(Job(TALL, engine, ending="parquet") for engine in ("plain", "lattice")),
    Job(TALL, "lattice", options='sums = "hidden"', ending="parquet"),
    Job(BROAD, "ou", ending="parquet"),
]


def named(jobs: Sequence[Job], words: Sequence[str]) -> list[Job]:
    """Those whose names hold one of ``words``; all without words."""
    return [job for job in jobs if not words or any(word in job.name for word in words)]


@dataclass(frozen=True)
class Taken:
    """Seconds and bytes, both ways, per tree and by party; peak bytes of memory by party.

    ``kinds``: bytes per tree by kind of message.
    """

    seconds: float
    core_seconds: Mapping[str, float]
    traffic: Mapping[str, float]
    memory: Mapping[str, float]
    kinds: Mapping[str, float] = field(default_factory=dict)


class Parties:
    """The files of two parties, whose tables are those of ``DATA``."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        broker: str,
        apart: bool = False,
        ports: Mapping[str, int] | None = None,
        compute: Mapping[str, str] | None = None,
    ) -> None:
        """``apart``: each has a core of its own, as if on a machine of its own.

        ``ports``: where parties reach the broker that do not at its own port. ``compute``:
        what parties compute with, as TOML, for those that say so.
        """
        self._folder, self._data = folder, data
        self._apart = apart
        self._broker = urlsplit(broker)
        self._ports = ports or {}
        self._compute = {party: f"compute = {toml}\n" for party, toml in (compute or {}).items()}
        (folder / "federation.toml").write_text(FEDERATION)
        for party in (BANK, TELCO):
            (folder / party / "traces").mkdir(parents=True)

    def prepare(self, job: Job, trees: int, options: str = "") -> Path:
        """The job's file, after those of the parties; more ``options`` of the engine as TOML."""
        for party, table in ((BANK, "active"), (TELCO, "passive")):
            label = f'label = "{LABELS.get(job.data, "label")}"\n' if party == BANK else ""
            port = self._ports.get(party, self._broker.port)
            broker = self._broker._replace(netloc=f"{party}:{party}@{self._broker.hostname}:{port}")
            self.file(party).write_text(
                f'party = "{party}"\nfederation = "../federation.toml"\n'
                f'broker = "{broker.geturl()}"\nstate = "state"\n{self._compute.get(party, "")}'
                f'[data]\npath = "{self._data.absolute()}/{job.data}_{table}.{job.ending}"\n'
                f'type = "{job.ending}"\nid = "id"\n'
                f'{label}[policy]\nengines = ["{job.engine}"]\nallow_unsealed = true\n'
            )
        path = self._folder / BANK / "train.toml"
        path.write_text(
            f'engine = "{job.engine}"\n'
            f"[params]\nnum_boost_round = {trees}\nmax_depth = {job.depth}\nmax_bin = {job.bins}\n"
            f'xgboost_arithmetic = "{OLDEST}"\n'
            f"[engine_options]\n{job.options}\n{options}\n"
        )
        return path

    def file(self, party: str) -> Path:
        """A party's own file."""
        return self._folder / party / "party.toml"

    def train(self, job: Path) -> Taken:
        """Train by daemons that are started for it."""
        done: list[float] = []
        with ExitStack() as stack:
            daemons = {party: stack.enter_context(self._daemon(party)) for party in (BANK, TELCO)}
            watches = {
                party: stack.enter_context(MemoryWatch(daemon.pid))
                for party, daemon in daemons.items()
            }

            def note(event: Mapping[str, Any]) -> None:
                if event["event"] == "progress" and event["done"] > len(done):
                    done.append(time.time())

            description = TrainingJob.read(job)
            request = {"do": "train", "job": description.model_dump(mode="json")}
            request_daemon(self._folder / BANK / "state", request, note)
            steady = done[:-1] if len(done) > 2 else done
            seen = {party: self._timeline(party, steady) for party in daemons}
        trees = description.params.num_boost_round
        kinds: Counter[str] = Counter()
        for _, sent in seen.values():
            kinds.update(sent)
        return Taken(
            float(np.median(np.diff(steady))),
            {party: busy for party, (busy, _) in seen.items()},
            # What one of two parties sends, the other receives.
            dict.fromkeys(seen, kinds.total() / trees),
            {party: float(watch.peak) for party, watch in watches.items()},
            {kind: size / trees for kind, size in kinds.most_common()},
        )

    @contextmanager
    def _daemon(self, party: str) -> Iterator[subprocess.Popen[str]]:
        folder = self._folder / party
        core = [BANK, TELCO].index(party)
        alone = ["taskset", "--cpu-list", str(core)] if self._apart else []
        daemon = subprocess.Popen(
            [*alone, FEDMQ, "run", str(self.file(party)), "--trace", str(folder / "traces")],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert daemon.stderr is not None
            if not any("is ready" in line for line in daemon.stderr):
                raise SystemExit(f"the daemon of {party} does not start")
            yield daemon
        finally:
            daemon.terminate()
            daemon.communicate()

    def _timeline(self, party: str, ends: Sequence[float]) -> tuple[float, Counter[str]]:
        """Seconds of cores of the median tree, and bytes sent by kind.

        Trees end at the times ``ends``; in some of them workers translate kernels, once each.
        """
        while not (files := list((self._folder / party / "traces").glob("*.json"))):
            time.sleep(0.1)  # it is written once all parties know that the session is over
        [file] = files
        events = json.loads(file.read_text())["traceEvents"]
        file.unlink()
        spans = [event for event in events if event["ph"] == "X"]
        busy = [
            sum(
                event["args"].get("busy ms", 0)
                for event in spans
                if first < event["ts"] / 1e6 <= last
            )
            for first, last in pairwise(ends)
        ]
        sent: Counter[str] = Counter()
        for event in spans:
            sent[event["name"]] += event["args"].get("bytes", 0)
        return float(np.median(busy)) / 1e3, +sent


def estimated(job: Path, bins: str | None, link: str | None = None) -> tuple[Taken, float]:
    """What ``fedmq estimate`` says per tree, and how long it took; ``link`` as it reads one."""
    known = [*(["--bins", bins] if bins else []), *(["--link", link] if link else [])]
    begun = time.perf_counter()
    run = subprocess.run(
        [FEDMQ, "estimate", str(job), "--json", *known],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    took = time.perf_counter() - begun
    found = json.loads(run.stdout)
    parties, trees = found["parties"], found["trees"]
    return Taken(
        found["seconds_per_tree"],
        {party: taken["core_seconds"] / trees for party, taken in parties.items()},
        {
            party: (taken["bytes_sent"] + taken["bytes_received"]) / trees
            for party, taken in parties.items()
        },
        {party: taken["memory_bytes"] for party, taken in parties.items()},
    ), took


def compared(before: Taken, measured: Taken, after: Taken) -> dict[str, float]:
    """Ratios of the mean estimate to what was measured."""

    def ratio(*three: float) -> float:
        return (three[0] + three[2]) / 2 / max(three[1], 1e-9)

    row = {"seconds": ratio(before.seconds, measured.seconds, after.seconds)}
    cores = [sum(taken.core_seconds.values()) for taken in (before, measured, after)]
    row["core seconds"] = ratio(*cores)
    for what in ("traffic", "memory"):
        for party in measured.traffic:
            three = [getattr(taken, what)[party] for taken in (before, measured, after)]
            row[f"{party}, {what}"] = ratio(*three)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=6, help="at least 3")
    parser.add_argument("--jobs", nargs="+", default=[], help="those whose names hold a word")
    parser.add_argument(
        "--without-bins", action="store_true", help="give the number of columns alone"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    jobs = named(JOBS, options.jobs)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, private_node((BANK, TELCO)) as broker:
        tables = Path(name) / "tables"
        tables.mkdir()
        link_tables(tables, options.data)
        write_table(tables, WIDE, WIDE_ROWS, WIDE_COLUMNS)
        write_parquet(tables, TALL, TALL_ROWS, TALL_COLUMNS)
        write_parquet(tables, BROAD, BROAD_ROWS, BROAD_COLUMNS, apart=50)
        parties = Parties(Path(name), tables, broker)
        for job in jobs:
            file = parties.prepare(job, options.trees)
            command = ["data", "bins", str(parties.file(TELCO)), "--max-bin", "32"]
            bins = subprocess.run([FEDMQ, *command], check=True, capture_output=True, text=True)
            known = None if options.without_bins else bins.stdout.splitlines()[-1]
            before, took = estimated(file, known)
            measured = parties.train(file)
            after, took_again = estimated(file, known)
            row = {"s per tree": measured.seconds, **compared(before, measured, after)}
            result[job.name] = {**row, "estimate took, s": (took + took_again) / 2}
            print(f"{job.name}: {before} {measured} {after}", file=sys.stderr)
    if options.page:
        text = f"```text\n{table(result)}\n```"
        write_page(options.page, "Estimates and measurements", "make bench-estimate", HEAD, text)
    print(json.dumps(result) if options.json else table(result))


def table(result: Mapping[str, Mapping[str, float]]) -> str:
    """Jobs as lines."""
    columns: Sequence[str] = list(next(iter(result.values()), {}))
    width = max(map(len, result), default=0)
    head = " " * width + "".join(f"{column:>18}" for column in columns)
    lines = [
        name.ljust(width) + "".join(f"{row[column]:18.2f}" for column in columns)
        for name, row in result.items()
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    main()
