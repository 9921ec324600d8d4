"""What an open console costs a daemon, and the scores beside it.

::

    python -m benchmarks.console [--seconds 30] [--pairs 5] [--rate 100] [--pages 1] [--json]

The example federation, three daemons around a private RabbitMQ node, with a model that is served.
First nobody looks at the active party's console, then ``--pages`` pages are open, all of them on
what runs now, and a training runs: the share of a core that the daemon's own process takes for it,
and the memory that it has come to. Then pairs of loads of ``--rate`` requests for single scores a
second, without and with the pages open, in another order each time: the 99th percentile of both,
and what the one is to the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil

from fedmq.cli.bench import Load, run
from fedmq.transport.background_tasks import BackgroundTasks
from tests.cli.command import fedmq
from tests.party.console.shown_federation import (
    begin_training,
    start_with_consoles,
    train_and_serve,
)
from tests.party.daemons import ACTIVE, ExampleFederation
from tests.rabbitmq_node import RabbitNode

_PEOPLE = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the active party's own process: percent of a core, and megabytes at the end."""

    idle_closed: float
    idle_open: float
    training_closed: float
    training_open: float
    megabytes_before: float
    megabytes_after: float


@asynccontextmanager
async def _open(federation: ExampleFederation, pages: int) -> AsyncIterator[None]:
    """So many pages that follow what runs, as a browser does."""
    address = fedmq("console", federation.config(ACTIVE), "--json").result["address"]
    async with httpx.AsyncClient(timeout=None, follow_redirects=True) as client:
        answer = await client.get(address)
        url = str(answer.url.join("/console/now/events"))

        async def look() -> None:
            async with client.stream("GET", url) as stream:
                async for _ in stream.aiter_bytes():
                    pass

        tasks = BackgroundTasks()
        for _ in range(pages):
            tasks.spawn(look())
        await asyncio.sleep(1.5)
        try:
            yield
        finally:
            await tasks.close()


async def _share(process: psutil.Process, seconds: float) -> float:
    """Percent of a core that the process takes."""

    def taken() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before, begun = taken(), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (taken() - before) / (time.perf_counter() - begun)


async def _cost(federation: ExampleFederation, seconds: float, pages: int) -> Cost:
    process = psutil.Process(federation.daemons[ACTIVE].process.pid)
    idle_closed = await _share(process, seconds)
    before = process.memory_info().rss / 1e6
    async with _open(federation, pages):
        idle_open = await _share(process, seconds)
    training = begin_training(federation, "beside", 900)
    await asyncio.sleep(5)
    training_closed = await _share(process, seconds / 2)
    async with _open(federation, pages):
        training_open = await _share(process, seconds / 2)
    session = next(
        found["session"]
        for found in fedmq("status", federation.config(ACTIVE), "--json").result["sessions"]
        if found["ended"] is None
    )
    fedmq("cancel", federation.config(ACTIVE), session)
    training.wait(60)
    after = process.memory_info().rss / 1e6
    return Cost(idle_closed, idle_open, training_closed, training_open, before, after)


async def _p99(url: str, rate: float, seconds: float, seed: int) -> float:
    ids = [f"P{number:04d}" for number in range(_PEOPLE)]
    path = "/v1/models/production/predict"
    load = Load(url=url, path=path, token=None, ids=ids, rate=rate, seconds=seconds, seed=seed)
    measured = await run(load)
    assert set(measured.statuses) == {200}, measured.statuses
    return measured.percentile(99)


async def _pairs(
    federation: ExampleFederation, count: int, rate: float, seconds: float, pages: int
) -> list[tuple[float, float]]:
    """The 99th percentiles in milliseconds, without and with pages open."""
    address = fedmq("console", federation.config(ACTIVE), "--json").result["address"]
    url = address.partition("/console")[0]
    pairs = []
    await _p99(url, rate, 3, 0)  # what is slow once
    for number in range(count):
        found: dict[bool, float] = {}
        for is_open in (False, True) if number % 2 else (True, False):
            if is_open:
                async with _open(federation, pages):
                    found[True] = await _p99(url, rate, seconds, number)
            else:
                found[False] = await _p99(url, rate, seconds, number)
        pairs.append((found[False], found[True]))
        print(f"pair {number + 1}: {found[False]:.1f} ms, {found[True]:.1f} ms", file=sys.stderr)
    return pairs


async def _measured(
    federation: ExampleFederation, arguments: argparse.Namespace
) -> dict[str, object]:
    cost = await _cost(federation, arguments.seconds, arguments.pages)
    seconds = arguments.seconds / 3
    pairs = await _pairs(federation, arguments.pairs, arguments.rate, seconds, arguments.pages)
    ratios = [with_page / without for without, with_page in pairs]
    return {
        **{name: round(value, 2) for name, value in asdict(cost).items()},
        "p99_ms_closed": round(statistics.median(without for without, _ in pairs), 2),
        "p99_ms_open": round(statistics.median(with_page for _, with_page in pairs), 2),
        "p99_ratio": round(statistics.median(ratios), 3),
    }


def main() -> None:
    """Measure, and print a table or a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        node = RabbitNode(place / "broker")
        node.start()
        federation = start_with_consoles(place / "federation", node)
        try:
            train_and_serve(federation, place)
            result = asyncio.run(_measured(federation, arguments))
        finally:
            federation.discard()
            node.discard()
    if arguments.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:>18}  {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
