"""Data: this party's own columns as a training takes them, and its alignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fedmq.boosting.screened_label import strength
from fedmq.party.console.page_request import Change, Changes, PageRequest, Shows

__all__ = ["ROUTES"]

_WIDTH, _HEIGHT = 240.0, 48.0
_BINS = (8, 16, 32, 64, 128, 256)
_USUAL = 32
_STRONGEST = 20  # columns of a screen


async def data(request: PageRequest) -> Response:
    """The page; the table itself may take time to read, and comes by itself."""
    return request.page(
        "data.html",
        alignments=await request.ask("alignments"),
        screen=_strongest(await request.ask("last_screen")),
        bins=_BINS,
        max_bin=_max_bin(request),
    )


async def table(request: PageRequest) -> Response:
    """The description of the columns."""
    found = await request.ask("data", max_bin=_max_bin(request))
    columns = [
        {**column, "drawn": [_drawn(spread) for spread in column["spreads"]]}
        for column in found["columns"]
    ]
    config = request.context.config.data
    return request.part(
        "data_table.html",
        found=found,
        columns=columns,
        source=config.path.name if config.path else config.place,
    )


async def again(change: Change) -> Response:
    """Read the table once more."""
    await change.ask("data", max_bin=_max_bin(change), again=True)
    return change.done(f"/data?max_bin={_max_bin(change)}", "The table was read again.")


ROUTES = (Shows("/data", data), Shows("/data/table", table), Changes("/data/again", again))


def _strongest(screen: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The screen with its ``columns`` of all parties, the strongest first, and ``refusing``."""
    if screen is None:
        return None
    told = screen["parties"]
    unknown = {"iv": None, "auc": None, "p": None}
    found = [{"party": party, **of} for party in told for of in told[party].get("columns", ())]
    every = [{**unknown, **of} for of in sorted(found, key=strength, reverse=True)]
    refusing = {party: of["refused"] for party, of in told.items() if "refused" in of}
    largest = max((of["iv"] or 0.0 for of in every), default=0.0)
    return {
        **screen,
        "columns": every[:_STRONGEST],
        "count": len(every),
        "refusing": refusing,
        "largest": largest,
    }


def _max_bin(request: PageRequest) -> int:
    wanted = request.http.query_params.get("max_bin", "")
    return next((bins for bins in _BINS if str(bins) == wanted), _USUAL)


def _drawn(spread: Mapping[str, Any]) -> dict[str, Any]:
    """Bars and cuts of one number, as lengths of a drawing."""
    counts, low, high = spread["counts"], spread["low"], spread["high"]
    most = max(counts, default=0) or 1
    width = _WIDTH / max(1, len(counts))
    bars = [
        (place * width, _HEIGHT * (1 - count / most), width - 1, _HEIGHT * count / most)
        for place, count in enumerate(counts)
        if count
    ]
    span = (high - low) or 1.0
    cuts = [_WIDTH * (cut - low) / span for cut in spread["cuts"]]
    return {**spread, "bars": bars, "ticks": cuts}
