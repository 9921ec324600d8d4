"""What it costs that a training outlives crashes, that its broker cannot read it, and that no lie
passes.

::

    python -m benchmarks.safety DATA [--trees 20] [--depth 3] [--bins 32] [--repeats 9]
                                     [--pairs 15] [--folder FOLDER] [--json] [--page FILE]

DATA is the folder that ``benchmarks.training`` takes. Two parties train on Default of Credit
Card Clients with the engine ``plain``, whose arithmetic is the least and whose share of messages
is the largest, in one process over a private RabbitMQ node. Four kinds of run take turns, in
another order each time: with neither, with seals, with a store, and with both. Stores lie in
``--folder``: where temporary files are held in memory, name one that is on a disk. Shown are
medians per tree, from the end of the first tree to the end of the last, by the clock and by the
processor, and what they are to those with neither. Before that: single messages, with and without
their seals.

After that, for each engine, trainings with and without the checks that parties make of each other,
one after the other: what is left out and how, `benchmarks.unchecked` says.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks import training
from benchmarks.broker import private_node
from benchmarks.page import write_page
from benchmarks.unchecked import unchecked
from fedmq.computation import Given
from fedmq.messages.array import Array
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import GradientBroadcast
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.party.store.database import Database
from fedmq.party.store.journal import Journal, SessionStore, StoredSession, StoreJournal
from fedmq.party.telemetry.metrics import Traffic
from fedmq.privacy.registry import ENGINES
from fedmq.protocol.machine import Machine
from fedmq.protocol.session_records import ActiveTree, PassiveTree, Record
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.simulation.in_process import run_machines
from fedmq.transport.sealing.keys import PrivateKeys

HEAD = (
    "Two parties train on Credit 2 with the engine `plain`, whose arithmetic is the least, over "
    "RabbitMQ. *Both*, seals and a store, are to cost at most 1.10 of the time with neither. The "
    "checks that parties make of each other are to cost at most 1.03 of the time without them."
)
PARTIES = ("bank", "telco")
SIZES = (1_000, 64_000, 1_000_000)
KINDS = {
    "neither": (False, False),
    "seals": (True, False),
    "store": (False, True),
    "both": (True, True),
}
"""What a run has: seals, a store."""
CHECKED = {"plain": (1, 20), "ou": (1, 4), "paillier": (3, 4)}
"""By engine: there is a pair of runs for so many of ``--pairs``, of so many trees."""
Item = TypeVar("Item")


def sealers() -> dict[str, EndToEnd]:
    """Fresh keys for both parties, which have not shaken hands."""
    rings = {party: KeyRing(party, PrivateKeys.generate()) for party in PARTIES}
    pinned = {party: (ring.current.public,) for party, ring in rings.items()}
    return {party: EndToEnd(ring, pinned) for party, ring in rings.items()}


# Single messages


def broadcast(size: int, sequence: int) -> Envelope:
    """A broadcast with a payload of ``size`` bytes."""
    body = GradientBroadcast(
        tree=0,
        piece=0,
        rows=Array.of(np.zeros(1, dtype=np.uint32)),
        payload={"a": Array.of(np.zeros(size, dtype=np.uint8))},
    )
    header = Header(
        id=f"s/1/bank/telco/{sequence}",
        federation="demo",
        session="s",
        attempt=1,
        sender="bank",
        recipient="telco",
        sequence=sequence,
        acknowledged=0,
        kind=body.kind,
    )
    return Envelope(header, body)


def microseconds(action: Callable[[Item], object], items: Iterable[Item]) -> float:
    """The median time of ``action`` on an item."""
    times = []
    for item in items:
        begun = time.perf_counter()
        action(item)
        times.append(time.perf_counter() - begun)
    return round(1e6 * statistics.median(times), 2)


def messages() -> list[dict[str, float]]:
    """Encoding and decoding a message, with and without its seal."""
    both: dict[str, EndToEnd] = sealers()
    rows: list[dict[str, float]] = []
    both["bank"].connect_by(lambda _, data: both["telco"].open(data))
    both["telco"].connect_by(lambda _, data: both["bank"].open(data))
    both["telco"].open(both["bank"].offer("demo", "telco"))
    for size in SIZES:
        envelopes = [broadcast(size, number) for number in range(1, 101)]
        clear = [encode(envelope) for envelope in envelopes]
        sealed = [both["bank"].seal(envelope) for envelope in envelopes]
        rows.append(
            {
                "bytes": size,
                "encode_us": microseconds(encode, envelopes),
                "seal_us": microseconds(both["bank"].seal, envelopes),
                "decode_us": microseconds(decode, clear),
                "open_us": microseconds(both["telco"].open, sealed),
                "more_bytes": len(sealed[0]) - len(clear[0]),
            }
        )
    return rows


# Trainings


class TimedJournal(StoreJournal):
    """Notes how long each tree takes to be on disk."""

    def __init__(self, store: SessionStore, seconds: list[float]) -> None:
        super().__init__(store, StoredSession("session", "m", 1), lambda _: None)
        self._seconds = seconds

    async def write(self, record: Record) -> None:
        begun = time.perf_counter()
        await super().write(record)
        if isinstance(record, ActiveTree | PassiveTree):
            self._seconds.append(time.perf_counter() - begun)


@dataclass(frozen=True)
class Clocks:
    """Seconds by the clock, and of the processor."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Clocks:
        return cls(time.perf_counter(), time.process_time())


class Trainings:
    """Trainings of the same model, one after the other."""

    def __init__(self, options: argparse.Namespace, broker: str) -> None:
        credit = training.load(options)
        names = [
            tuple(f"f{n}" for n in range(table.shape[1]))
            for table in (credit.active, credit.passive)
        ]
        nobody = np.zeros(len(credit.label), dtype=np.bool_)
        self._own = ActiveTable(credit.active, names[0], credit.label, nobody)
        self._other = PassiveTable(credit.passive, names[1])
        self._params = training.params_of(options)
        self._folder = options.folder
        self._broker = broker
        self.saves: list[float] = []
        """Seconds that a tree took to be on one party's disk."""

    def run(self, sealed: bool, stored: bool, engine: str = "plain") -> Clocks:
        """One training, per tree."""
        gc.collect()
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return asyncio.run(self._train(sealed, Path(folder) if stored else None, engine))

    async def _train(self, sealed: bool, folder: Path | None, engine: str) -> Clocks:
        spec = ENGINES[engine]()
        machines: dict[str, Machine] = {
            "bank": ActiveTraining("m", "bank", ("telco",), self._own, self._params, spec),
            "telco": PassiveTraining("telco", "bank", Given(self._other), lambda _: spec, 7),
        }
        ends: list[Clocks] = []
        async with AsyncExitStack() as stack:
            journals: dict[str, Journal] = {}
            for party in PARTIES:
                if folder is None:
                    break
                database = Database(folder / party)
                await database.open()
                stack.push_async_callback(database.close)
                journals[party] = TimedJournal(SessionStore(database), self.saves)
            await run_machines(
                machines,
                ThreadPool(),
                self._broker,
                "training",
                Traffic(),
                lambda _: ends.append(Clocks.now()),
                sealers=sealers() if sealed else None,
                journals=journals,
            )
        first, last, trees = ends[0], ends[-1], len(ends) - 1
        return Clocks((last.wall - first.wall) / trees, (last.processor - first.processor) / trees)


def trainings(options: argparse.Namespace, broker: str) -> dict[str, Any]:
    """All kinds in turn, so that a busy machine slows every one of them."""
    benchmark = Trainings(options, broker)
    benchmark.run(True, True)  # what is imported and cached by the first run is nobody's cost
    benchmark.saves.clear()
    runs: dict[str, list[Clocks]] = {kind: [] for kind in KINDS}
    for turn in range(options.repeats):
        kinds = list(KINDS)
        kinds = kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]
        for kind in kinds if turn % 2 else reversed(kinds):
            runs[kind].append(benchmark.run(*KINDS[kind]))
            print(f"{turn + 1} {kind}: {runs[kind][-1].wall:.4f} s per tree", file=sys.stderr)
    return {
        "seconds_per_save": round(statistics.median(benchmark.saves), 5),
        **{kind: compared(of_kind, runs["neither"]) for kind, of_kind in runs.items()},
    }


def checks(options: argparse.Namespace, broker: str) -> dict[str, dict[str, float]]:
    """By engine: trainings with checks, compared with those without that ran beside them."""
    result = {}
    for engine, (share, trees) in CHECKED.items():
        benchmark = Trainings(argparse.Namespace(**vars(options) | {"trees": trees}), broker)
        benchmark.run(False, False, engine)
        runs: dict[bool, list[Clocks]] = {False: [], True: []}
        for turn in range(-(-options.pairs // share)):
            for checking in (False, True) if turn % 2 else (True, False):
                with nullcontext() if checking else unchecked():
                    runs[checking].append(benchmark.run(False, False, engine))
        result[engine] = compared(runs[True], runs[False])
        print(f"checks, {engine}: {result[engine]}", file=sys.stderr)
    return result


def compared(runs: list[Clocks], plain: list[Clocks]) -> dict[str, float]:
    """Medians of ``runs`` in seconds per tree, and their ratio to those of ``plain``."""
    result = {}
    for clock in ("wall", "processor"):
        own, other = ([getattr(run, clock) for run in kind] for kind in (runs, plain))
        result[clock] = round(statistics.median(own), 5)
        result[f"{clock}_ratio"] = round(statistics.median(own) / statistics.median(other), 3)
        pairs = sorted(one / two for one, two in zip(own, other, strict=True))
        result[f"{clock}_ratio_of_pairs"] = round(statistics.median(pairs), 3)
    return result


def shown(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        "| message, bytes | encode, µs | seal | decode | open | longer by, bytes |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in result["messages"]]
    lines += [
        "",
        "| a tree with | seconds | ratio | processor seconds | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        figures = result["training"][kind]
        columns = ("wall", "wall_ratio", "processor", "processor_ratio")
        lines.append(f"| {kind} | " + " | ".join(str(figures[name]) for name in columns) + " |")
    saved = result["training"]["seconds_per_save"]
    lines += [
        "",
        f"A tree is on a party's disk after {1e3 * saved:.1f} ms.",
        "",
        "| a tree with checks | seconds | times without | processor seconds | times without |",
        "|---|---:|---:|---:|---:|",
    ]
    for engine, figures in result["checks"].items():
        columns = ("wall", "wall_ratio_of_pairs", "processor", "processor_ratio_of_pairs")
        lines.append(f"| {engine} | " + " | ".join(str(figures[name]) for name in columns) + " |")
    lines += [
        "",
        "*Times without*: the median of pairs, a training with checks and one without.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with private_node() as broker:
        result = {
            "messages": messages(),
            "training": trainings(options, broker),
            "checks": checks(options, broker),
        }
    if options.page:
        write_page(options.page, "What safety costs", "make bench-safety", HEAD, shown(result))
    print(json.dumps(result) if options.json else shown(result))


if __name__ == "__main__":
    main()
