"""What a day with an open console leaves in a daemon's memory: a long day in some minutes.

::

    python -m benchmarks.console_day [--minutes 10] [--json]

The example federation, three daemons around a private RabbitMQ node, with a model that is served.
At the active party's console every page is loaded over and over, streams of what runs and of what
waits are opened and dropped, and beside them two stay open; trainings and scores follow one
another. The memory of the daemon's own process (resident, megabytes) is taken after an eighth, when
all has been done once, after a quarter, a half and at the end: what grows with pages, streams or
sessions grows from each to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import psutil

from fedmq.transport.background_tasks import BackgroundTasks
from tests.cli.command import fedmq
from tests.party.console.shown_federation import (
    SECOND,
    SERVED,
    add_to_policy,
    begin_training,
    start_with_consoles,
    train_and_serve,
)
from tests.party.daemons import ACTIVE, PASSIVE, ExampleFederation
from tests.rabbitmq_node import RabbitNode

_TREES = 3
_PAGES = (
    "now",
    "now/sessions",
    "inbox",
    "inbox/news?known=",
    "models",
    "serving",
    f"models/{SERVED}",
    f"models/{SERVED}/tree?tree=2",
    f"comparison?one={SERVED}&other={SECOND}",
    "data",
    "data/table",
    "people",
    "records",
    "records?event=console&text=anna",
    "records/verification",
    "records/letters",
    "records/audit.jsonl",
    "score",
)
_STREAMS = ("now/events", "inbox/events")
_TAKEN = {"eighth": 1 / 8, "quarter": 1 / 4, "half": 1 / 2, "end": 1.0}


class Day:
    """All that somebody does at the console of ``federation``'s active party, and how often."""

    def __init__(self, federation: ExampleFederation, client: httpx.AsyncClient) -> None:
        self.done: Counter[str] = Counter()
        self._federation = federation
        self._client = client

    async def load(self, number: int) -> None:
        """The next page, and all that stands in it."""
        answer = await self._client.get(f"/console/{_PAGES[number % len(_PAGES)]}")
        assert answer.status_code == 200, (answer.request.url, answer.text)
        self.done["pages"] += 1
        await asyncio.sleep(0.02)

    async def look_in(self, number: int) -> None:
        """A stream that is dropped after its first lines, as when a tab is closed."""
        async with self._client.stream("GET", f"/console/{_STREAMS[number % 2]}") as stream:
            async for _ in stream.aiter_bytes():
                break
        self.done["streams"] += 1
        await asyncio.sleep(0.1)

    async def stay(self, number: int) -> None:
        """A stream that stays open."""
        async with self._client.stream("GET", f"/console/{_STREAMS[number % 2]}") as stream:
            async for _ in stream.aiter_bytes():
                pass

    async def train(self, number: int) -> None:
        """A short training; its model is removed, as a night's experiment would be."""
        model = f"day-{number}"
        process = begin_training(self._federation, model, _TREES)
        assert await asyncio.to_thread(process.wait, 120) == 0
        config = self._federation.config(ACTIVE)
        await asyncio.to_thread(fedmq, "models", "delete", config, model, "--yes")
        self.done["trainings"] += 1
        await asyncio.sleep(1)

    async def score(self, number: int) -> None:
        """A score, by the address that callers use."""
        path = "/v1/models/production/predict"
        answer = await self._client.post(path, json={"ids": [f"P{number % 100:04d}"]})
        assert answer.status_code == 200, answer.text
        self.done["scores"] += 1
        await asyncio.sleep(0.2)


async def _over_and_over(do: Callable[[int], Awaitable[None]]) -> None:
    for number in itertools.count():
        await do(number)


async def _measured(federation: ExampleFederation, seconds: float) -> dict[str, float]:
    process = psutil.Process(federation.daemons[ACTIVE].process.pid)
    address = fedmq("console", federation.config(ACTIVE), "--json").result["address"]
    url = address.partition("/console")[0]
    async with httpx.AsyncClient(base_url=url, timeout=None, follow_redirects=True) as client:
        await client.get(address)
        day = Day(federation, client)
        tasks = BackgroundTasks()
        stays = (day.stay, day.stay)
        begun, before = time.perf_counter(), process.cpu_times()
        running = [
            tasks.spawn(_over_and_over(do))
            for do in (day.load, day.look_in, *stays, day.train, day.score)
        ]
        megabytes: dict[str, float] = {}
        for name, part in _TAKEN.items():
            await asyncio.sleep(begun + part * seconds - time.perf_counter())
            for task in running:
                if task.done():
                    task.result()  # what went wrong
            megabytes[f"megabytes_{name}"] = round(process.memory_info().rss / 1e6, 1)
            print(f"{name}: {megabytes[f'megabytes_{name}']} MB, {dict(day.done)}", file=sys.stderr)
        after = process.cpu_times()
        await tasks.close()
    taken = after.user + after.system - before.user - before.system
    return {**megabytes, **day.done, "core_percent": round(100 * taken / seconds, 1)}


def main() -> None:
    """Measure, and print a table or a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        node = RabbitNode(place / "broker")
        node.start()
        federation = start_with_consoles(place / "federation", node)
        try:
            add_to_policy(federation, "most_trainings_per_day = 100_000", *PASSIVE)
            train_and_serve(federation, place)
            result = asyncio.run(_measured(federation, 60 * arguments.minutes))
        finally:
            federation.discard()
            node.discard()
    if arguments.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:>18}  {value:,}" for name, value in result.items()))


if __name__ == "__main__":
    main()
