"""A signed-in person's request for a page, and all that the page does with it.

A page gives the owner's commands to the daemon, which audits them first, and fills a template.
Templates escape all values: some names and reasons come from other parties.
"""

from __future__ import annotations

import hashlib
import math
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fedmq.errors import DaemonError, FedmqError, Refused
from fedmq.party.configuration.http import ConsoleRole
from fedmq.party.consent.audit_log import AuditLog, audited
from fedmq.party.console.live import Live
from fedmq.party.console.sign_in import CHANGES, Grant, Notice, SignIn, is_allowed
from fedmq.party.services.service import Command, PartyContext

__all__ = [
    "PAGES",
    "Change",
    "Changes",
    "OwnerActions",
    "Page",
    "PageRequest",
    "Rendering",
    "Route",
    "Shows",
    "StaticFile",
    "StaticFiles",
    "byte_count",
    "clock",
    "duration",
]

_LONGEST_VALUE = 200
_NONE = "\N{EN DASH}"
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_STATIC_FOLDER = Path(__file__).parent / "static"
_SERVED_SUFFIXES = (".css", ".js", ".svg")


@dataclass(frozen=True, slots=True)
class Shows:
    """GET: a signed-in person looks at something."""

    path: str
    answer: Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Changes:
    """POST: a signed-in person changes something, by a form of the console."""

    path: str
    answer: Callable[[Change], Awaitable[Response]]


Route = Shows | Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A person's request for a page of the daemon whose ``context`` this is."""

    http: Request
    """The request as it arrived."""
    sign_in: SignIn
    context: PartyContext
    actions: OwnerActions
    rendering: Rendering
    streams: Mapping[str, Live]
    """The live parts, by page."""

    @property
    def grant(self) -> Grant:
        """The signed-in person and its roles."""
        return self.sign_in.grant

    def parameter(self, name: str) -> str:
        """A part of the address, such as ``model`` of ``/models/{model}``."""
        return str(self.http.path_params[name])

    def may(self, command: str) -> bool:
        """Whether this person may give the owner's command ``command``."""
        return is_allowed(command, self.grant.roles)

    async def ask(self, command: str, **request: Any) -> Any:
        """The result of an owner's command; see `OwnerActions.ask`."""
        return await self.actions.ask(self.grant, command, **request)

    def page(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        """The page of ``template`` with ``values`` and pending notices."""
        shown = self.rendering.render(template, self, notices=self.sign_in.take_notices(), **values)
        return HTMLResponse(shown, http_status)

    def part(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        """A part of a page, which a script inserts."""
        return HTMLResponse(self.rendering.render(template, self, **values), http_status)

    def failed(self, error: str, http_status: int) -> Response:
        """An error: a line for a script, a page for a person."""
        notice = Notice(error, is_error=True)
        if "hx-request" in self.http.headers:
            return self.part("notice.html", http_status=http_status, notice=notice)
        return self.page("failed.html", http_status=http_status, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(PageRequest):
    """A person's change by a form, which `RequestGuard` has found to be the console's own."""

    form: Mapping[str, str] = field(default_factory=dict)

    def done(self, path: str, text: str) -> Response:
        """Redirect to the page at ``path``, which shows ``text``."""
        self.sign_in.notify(Notice(text))
        return RedirectResponse(f"/console{path}", 303)


class OwnerActions:
    """Gives ``commands`` to the daemon of ``party``, as its control socket does."""

    def __init__(self, party: str, commands: Mapping[str, Command], audit_log: AuditLog) -> None:
        self._party = party
        self._commands = commands
        self._audit_log = audit_log

    async def ask(self, grant: Grant, command: str, **request: Any) -> Any:
        """The result of ``command``.

        Raises:
            DaemonError: the daemon does not know the command.
            Refused: the person lacks the role, or the command cannot be audited.
            FedmqError: the command's own errors.
        """
        if command not in self._commands:
            raise DaemonError(f"this daemon does not know the command {command!r}")
        if command not in CHANGES:
            return await self.look(command, **request)
        if not is_allowed(command, grant.roles):
            await self.record(grant, "refused", what=command)
            raise Refused(
                f"{grant.who} may not {command}: it takes the role {CHANGES[command]}; ask for it "
                f"with: fedmq console PARTY.toml --role {CHANGES[command]}"
            )
        await self.record(grant, command, **request)
        try:
            return await self._do(command, {**request, "person": grant.person})
        except FedmqError as error:
            await self.record(grant, "failed", what=command, why=str(error))
            raise

    async def look(self, command: str, **request: Any) -> Any:
        """The result of the read-only ``command``, for any signed-in person."""
        assert command not in CHANGES
        return await self._do(command, request)

    async def record(self, grant: Grant, event: str, **details: Any) -> None:
        """Write a person's command into the audit log; Refused if it cannot be written."""
        entry = {name: _short(value) for name, value in details.items()}
        try:
            await audited(
                self._audit_log,
                self._party,
                "console",
                who=grant.who,
                roles=list(grant.roles),
                did=event,
                **entry,
            )
        except Refused as error:
            raise Refused(f"{error}, so nothing is done") from error

    async def _do(self, command: str, request: Mapping[str, Any]) -> Any:
        return await self._commands[command]({"do": command, **request}, _unwatched)


async def _unwatched(_: Mapping[str, Any]) -> None:
    """Progress of a command that a page does not show."""


def _short(value: Any) -> Any:
    """``value`` for the audit log, without ids and features of people."""
    if isinstance(value, str):
        return value[:_LONGEST_VALUE]
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"{len(value)} values" if hasattr(value, "__len__") else str(value)[:_LONGEST_VALUE]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the navigation: its address below ``/console``, and its title."""

    path: str
    title: str
    only_active: bool = False
    """Whether only the active party has it."""


PAGES = (
    Page("/now", "Now"),
    Page("/inbox", "Inbox"),
    Page("/models", "Models"),
    Page("/data", "Data"),
    Page("/people", "People and keys"),
    Page("/records", "Records"),
    Page("/score", "Try a score", only_active=True),
)


class Rendering:
    """Makes pages of the console of one party."""

    def __init__(self, context: PartyContext, static_files: StaticFiles) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("fedmq.party.console", "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
        )
        self._environment.filters |= {
            "byte_count": byte_count,
            "duration": duration,
            "figure": figure,
            "brief": brief,
            "clock": clock,
            "day": day,
            "busy_share": busy_share,
            "cell": cell,
            "breakable": breakable,
            "capitalize_first": lambda text: text[:1].upper() + text[1:],
            "lane_path": lane_path,
        }
        self._environment.globals |= {
            "party": context.party,
            "is_active": context.is_active,
            "federation": context.federation.name,
            "pages": [page for page in PAGES if context.is_active or not page.only_active],
            "static": static_files.address,
        }

    def render(self, template: str, request: PageRequest | None = None, **values: Any) -> str:
        """``template`` with ``values``, for a signed-in person's ``request``, or for a stranger."""
        about = {} if request is None else _about(request)
        return self._environment.get_template(template).render({**about, **values})


def _about(request: PageRequest) -> Mapping[str, Any]:
    roles: tuple[ConsoleRole, ...] = request.grant.roles
    return {
        "who": request.grant.who,
        "roles": roles or ("viewer",),
        "csrf": request.sign_in.csrf,
        "may": request.may,
        "zone": zone(),
        "here": request.http.url.path.removeprefix("/console"),
    }


def byte_count(count: float) -> str:
    """A number of bytes as people read it."""
    power = 0 if count < 1000 else min(int(math.log10(count) // 3), len(_BYTE_UNITS) - 1)
    value = count / 1000**power
    return (
        f"{value:,.0f} {_BYTE_UNITS[power]}" if power == 0 else f"{value:,.1f} {_BYTE_UNITS[power]}"
    )


def duration(seconds: float | None) -> str:
    """A time span in its two largest units."""
    if seconds is None:
        return _NONE
    if seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def figure(value: float | None, digits: int = 5) -> str:
    """A number of a model; a dash where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return _NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def brief(value: float) -> str:
    """A number of a table in few digits."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def cell(value: Any) -> str:
    """Any value of a table."""
    if value is None:
        return _NONE
    if isinstance(value, float):
        return figure(value, 4) if abs(value) < 100 else figure(value, 1)
    return f"{value:,}" if isinstance(value, int) else str(value)


def breakable(name: str) -> Markup:
    """A name that may wrap after each underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))


def clock(at: str) -> str:
    """The time of day of an ISO 8601 instant, in the daemon's zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")


def day(at: str) -> str:
    """Day and time of an ISO 8601 instant, in the daemon's zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def zone() -> str:
    """The daemon's time zone, which `clock` and `day` tell times in: UTC, or UTC+01:00."""
    offset = datetime.now().astimezone().isoformat()[-6:]
    return "UTC" if offset == "+00:00" else f"UTC{offset}"


def lane_path(intervals: Sequence[tuple[float, float]], seconds: float) -> str:
    """Intervals (seconds before now) as boxes of an SVG path that is ``seconds`` wide, 10 high."""
    return "".join(
        f"M{seconds - start:.1f} 0h{max(start - end, 0.3):.1f}v10H{seconds - start:.1f}z"
        for start, end in intervals
    )


def busy_share(intervals: Sequence[tuple[float, float]], seconds: float) -> str:
    """The share of the last ``seconds`` that the intervals cover."""
    return f"{sum(start - end for start, end in intervals) / seconds:.0%}"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file; ``version`` changes with its content."""

    content: bytes
    media_type: str
    version: str


class StaticFiles:
    """The files by name, such as ``console.css``. Unknown names find nothing."""

    def __init__(self, folder: Path = _STATIC_FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.suffix in _SERVED_SUFFIXES
        }

    def find(self, name: str) -> StaticFile | None:
        """The file ``name``, or None."""
        return self._files.get(name)

    def address(self, name: str) -> str:
        """The address of the file ``name``."""
        return f"/console/static/{name}?v={self._files[name].version}"


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    kind = mimetypes.types_map[path.suffix]
    kind = "text/javascript" if path.suffix == ".js" else kind
    return StaticFile(content, f"{kind}; charset=utf-8", hashlib.sha256(content).hexdigest()[:12])
