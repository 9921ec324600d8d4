"""``fedmq bench infer``: how fast the daemons of a federation answer for scores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from fedmq.cli.model.load_generator import Load, Measured, run
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.errors import ConfigError, DaemonError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.table import ReadTable

__all__ = ["bench"]

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
        ReadTable(config.party, data, wanted=()).run().ids,
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
    """Latency over the share of requests, as HDR histograms show it: each 9 more is a step."""
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
