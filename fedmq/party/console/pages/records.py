"""Records: the audit log, dead letters and ended sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from fedmq.errors import ConfigError
from fedmq.party.console.page_request import Change, Changes, PageRequest, Shows

__all__ = ["ROUTES"]

_ENTRIES = 50
_BLOCK = 2**18
_CHAIN = ("number", "at", "event", "peer", "who", "session", "attempt", "previous")
_EVENTS = (
    "asked",
    "agreed",
    "foretold",
    "ended",
    "owner asked",
    "owner agreed",
    "owner refused",
    "owner no longer asked",
    "inconsistent",
    "console",
)
"""The events of the audit log; the search takes others as well."""


async def records(request: PageRequest) -> Response:
    """The page."""
    asked = request.http.query_params
    wanted = {key: asked.get(key, "") for key in ("event", "peer", "text")}
    before = asked.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 16):
        raise ConfigError("before: write the number of an entry")
    entries = await request.ask(
        "audit_log", **wanted, before=int(before) if before else None, most=_ENTRIES
    )
    older = None
    if len(entries) == _ENTRIES:
        older = urlencode({**wanted, "before": entries[-1]["number"]})
    return request.page(
        "records.html",
        entries=[{**entry, "details": _details(entry)} for entry in entries],
        wanted=wanted,
        before=before,
        older=older,
        events=_EVENTS,
        parties=request.context.federation.parties,
        history=await request.ask("history"),
    )


async def verification(request: PageRequest) -> Response:
    """The result of verifying the audit log."""
    found = await request.ask("verify_audit_log")
    return request.part("records_verification.html", found=found)


async def letters(request: PageRequest) -> Response:
    """The dead letters."""
    return request.part("records_letters.html", letters=await request.ask("dead_letters"))


async def export(request: PageRequest) -> Response:
    """The file of the audit log, at its present length."""
    path = request.context.consent.audit.log.path
    length = path.stat().st_size if path.exists() else 0
    name = f"audit-{request.context.party}.jsonl"
    return StreamingResponse(
        _blocks(path, length),
        media_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def requeue(change: Change) -> Response:
    """Process a dead letter again."""
    letter = change.parameter("letter")
    done = await change.ask("requeue", letter=letter)
    said = "was taken" if done["taken"] else f"was refused again: {done['reason']}"
    return change.done("/records", f"Letter {letter} {said}.")


async def drop(change: Change) -> Response:
    """Remove a dead letter for good."""
    letter = change.parameter("letter")
    await change.ask("drop", letter=letter)
    return change.done("/records", f"Letter {letter} is dropped.")


ROUTES = (
    Shows("/records", records),
    Shows("/records/verification", verification),
    Shows("/records/letters", letters),
    Shows("/records/audit.jsonl", export),
    Changes("/records/letters/{letter}/requeue", requeue),
    Changes("/records/letters/{letter}/drop", drop),
)


def _details(entry: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {_plain(value)}"
        for key, value in entry.items()
        if key not in _CHAIN and value != ""
    )


def _plain(value: Any) -> str:
    """A value of an entry, lists and tables in words too."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_plain(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_plain, value)) or "none"
    return str(value)


async def _blocks(path: Path, length: int) -> AsyncIterator[bytes]:
    """The first ``length`` bytes of the file, without later additions."""
    if not length:
        return
    file: BinaryIO = await asyncio.to_thread(path.open, "rb")
    with file:
        while length > 0:
            block = await asyncio.to_thread(file.read, min(_BLOCK, length))
            if not block:
                return
            length -= len(block)
            yield block
