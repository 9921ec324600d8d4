"""``fedmq bench``: requests for scores in an even stream, and how long they took."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import numpy as np

from fedmq.cli.output import json_option, print_next_step, print_result
from fedmq.cli.party_daemon import PARTY_HELP, party_argument
from fedmq.errors import ConfigError, DaemonError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.table import read_table

__all__ = ["Load", "Measured", "bench", "run"]

_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)


@click.group()
def bench() -> None:
    """Measure a running federation."""


@bench.command(epilog=PARTY_HELP)
@party_argument
@click.option("--rate", default=100.0, show_default=True, help="Requests per second.")
@click.option("--seconds", default=10.0, show_default=True, help="How long.")
@click.option("--rows", default=1, show_default=True, help="Rows per request.")
@click.option("--name", default="production", show_default=True, help="Name or id of the model.")
@click.option("--deadline-ms", type=float, help="The requests' deadline.")
@click.option("--plot", type=click.Path(path_type=Path), help="SVG of the latencies to write.")
@json_option
def infer(
    party: Path,
    rate: float,
    seconds: float,
    rows: int,
    name: str,
    deadline_ms: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Ask the daemon of PARTY for scores, and report how long they take.

    Requests come when they are due (open loop, Poisson arrivals), and a latency counts from then.
    The ids are drawn from the party's own serving file.
    """
    config, _ = PartyFile.read(party)
    if config.http is None:
        raise ConfigError(f"{party}: there is no [http], so the daemon serves none")
    if config.http.certificate is not None:
        raise ConfigError(f"{party}: bench infer speaks plain HTTP; leave certificate out for it")
    data = config.serving or config.data
    token = config.http.tokens[0].get_secret_value() if config.http.tokens else None
    load = Load(
        f"http://{config.http.host}:{config.http.port}",
        f"/v1/models/{name}/predict",
        token,
        read_table(config.party, data, wanted=()).ids,
        rate,
        seconds,
        rows,
        deadline_ms,
    )
    try:
        measured = asyncio.run(run(load))
    except (OSError, asyncio.IncompleteReadError) as error:
        raise DaemonError(f"{load.url}: no daemon serves there: {error}") from None
    if plot is not None:
        _write(plot, _svg(measured, f"{rate:g} requests/s of {rows} rows"))
    print_result(_result(load, measured), as_json, _in_words)
    print_next_step(as_json, "serving", party)


def _result(load: Load, measured: Measured) -> dict[str, Any]:
    count = len(measured.milliseconds)
    return {
        "requests": count,
        "rows": count * load.rows,
        "rate": load.rate,
        "rows_per_second": round(count * load.rows / measured.elapsed, 1),
        "statuses": {str(status): times for status, times in sorted(measured.statuses.items())},
        "degraded": measured.degraded,
        "milliseconds": {
            f"p{share:g}": round(measured.percentile(share), 2) for share in _PERCENTILES
        },
    }


def _in_words(result: Any) -> str:
    percentiles = "  ".join(f"{name} {value}" for name, value in result["milliseconds"].items())
    statuses = ", ".join(f"{times} times {status}" for status, times in result["statuses"].items())
    return (
        f"{result['requests']} requests, {result['rows_per_second']} rows/s; {statuses}; "
        f"{result['degraded']} degraded\nms: {percentiles}"
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _svg(measured: Measured, title: str) -> str:
    """Latency over the share of requests, as in HDR histograms: each further 9 is a step."""
    width, height, left, bottom = 640, 360, 60, 40
    shares = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99]
    highest = measured.percentile(100) or 1.0

    def x(place: float) -> float:
        return left + place * (width - left - 20) / (len(shares) - 1)

    def y(milliseconds: float) -> float:
        return height - bottom - milliseconds / highest * (height - bottom - 40)

    points = " ".join(
        f"{x(place):.1f},{y(measured.percentile(share)):.1f}" for place, share in enumerate(shares)
    )
    labels = "".join(
        f'<text x="{x(place):.0f}" y="{height - 15}" text-anchor="middle">{share:g}</text>'
        for place, share in enumerate(shares)
    )
    levels = "".join(
        f'<text x="{left - 8}" y="{y(highest * part / 4) + 4:.0f}" text-anchor="end">'
        f"{highest * part / 4:.3g}</text>"
        f'<line x1="{left}" x2="{width - 20}" y1="{y(highest * part / 4):.0f}" '
        f'y2="{y(highest * part / 4):.0f}" stroke="#ddd"/>'
        for part in range(5)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{left}" y="20">{title}: milliseconds by percentile</text>{levels}{labels}'
        f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="2"/></svg>\n'
    )


# Requests start when due, whether or not earlier ones have been answered.

_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` requests per second for ``seconds``, each with ``rows`` of ``ids``.

    ``explain``: number of reasons requested with each score.
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
    """Milliseconds from due time to answer, in the order of the answers; HTTP statuses."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    degraded: int = 0
    elapsed: float = 0.0

    def percentile(self, share: float) -> float:
        """The latency of this percentile (0 to 100) of the requests."""
        return float(np.percentile(self.milliseconds, share)) if self.milliseconds else float("nan")


async def run(load: Load) -> Measured:
    """Put ``load`` on a service; arrivals are a Poisson process.

    Raises:
        OSError: no service listens there.
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
            if not reader.at_eof():  # the server closes idle connections
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
