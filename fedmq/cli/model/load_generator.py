"""Requests at the times at which they are due, whether or not earlier ones have been answered.

A generator that waits for answers sends fewer requests just when the service is slow, and so hides
that it is slow (coordinated omission). Here a latency counts from the moment at which the request
was due.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

__all__ = ["Load", "Measured", "run"]

_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` requests per second for ``seconds``, each with ``rows`` of ``ids``.

    ``explain``: for so many reasons with each score.
    """

    url: str
    path: str
    token: str | None
    ids: Sequence[str]
    rate: float
    seconds: float
    rows: int = 1
    deadline_ms: float | None = None
    explain: int | None = None
    seed: int = 0


@dataclass(slots=True)
class Measured:
    """Milliseconds from due to answered, in the order of the answers; HTTP statuses."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    degraded: int = 0
    elapsed: float = 0.0

    def percentile(self, share: float) -> float:
        """The latency within which this share (0 to 100) of the requests was answered."""
        return float(np.percentile(self.milliseconds, share)) if self.milliseconds else float("nan")


async def run(load: Load) -> Measured:
    """Put ``load`` on a service; arrivals are a Poisson process.

    Raises:
        OSError: nobody listens there.
    """
    generator = _Generator(load)
    return await generator.run()


class _Generator:
    def __init__(self, load: Load) -> None:
        self._load = load
        address = urlsplit(load.url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        token = f"Authorization: Bearer {load.token}\r\n" if load.token else ""
        self._head = (
            f"POST {load.path} HTTP/1.1\r\nHost: {address.netloc}\r\n{token}"
            "Content-Type: application/json\r\n"
        )
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._measured = Measured()

    async def run(self) -> Measured:
        load = self._load
        random = np.random.default_rng(load.seed)
        count = max(1, round(load.rate * load.seconds))
        due = np.cumsum(random.exponential(1 / load.rate, count))
        chosen = random.integers(0, len(load.ids), (count, load.rows))
        start = time.perf_counter()
        tasks = []
        for number in range(count):
            moment = start + float(due[number])
            wait = moment - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            ids = [load.ids[position] for position in chosen[number].tolist()]
            tasks.append(asyncio.create_task(self._request(ids, moment)))
        await asyncio.gather(*tasks)
        self._measured.elapsed = time.perf_counter() - start
        for _, writer in self._idle:
            writer.close()
        return self._measured

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():  # the server ends what was idle for a while
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    async def _request(self, ids: list[str], due: float) -> None:
        request: dict[str, object] = {"ids": ids}
        if self._load.deadline_ms is not None:
            request["deadline_ms"] = self._load.deadline_ms
        if self._load.explain is not None:
            request["explain"] = self._load.explain
        body = json.dumps(request)
        async with self._free:
            reader, writer = await self._connection()
            writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            answer = await reader.readexactly(length)
            self._idle.append((reader, writer))
        self._measured.milliseconds.append((time.perf_counter() - due) * 1000)
        self._measured.statuses[status] += 1
        self._measured.degraded += b'"degraded"' in answer
