"""Templates, and how numbers and times read in them.

Everything that a template is given is escaped: names and reasons come from other parties too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from fedmq.party.configuration.http import ConsoleRole
from fedmq.party.console.navigation import PAGES
from fedmq.party.console.static_files import StaticFiles
from fedmq.party.services.service import PartyContext

if TYPE_CHECKING:
    from fedmq.party.console.visit import Visit

__all__ = ["Rendering", "byte_count", "duration"]

_NONE = "\N{EN DASH}"
_UNITS = ("B", "kB", "MB", "GB", "TB")


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

    def render(self, template: str, visit: Visit | None = None, **values: Any) -> str:
        """``template`` with ``values``, for whoever ``visit``s, or for somebody unknown."""
        about = {} if visit is None else _about(visit)
        return self._environment.get_template(template).render({**about, **values})


def _about(visit: Visit) -> Mapping[str, Any]:
    roles: tuple[ConsoleRole, ...] = visit.grant.roles
    return {
        "who": visit.grant.who,
        "roles": roles or ("viewer",),
        "csrf": visit.sign_in.csrf,
        "may": visit.may,
        "here": visit.request.url.path.removeprefix("/console"),
    }


def byte_count(count: float) -> str:
    """A number of bytes as people read it."""
    power = 0 if count < 1000 else min(int(math.log10(count) // 3), len(_UNITS) - 1)
    value = count / 1000**power
    return f"{value:,.0f} {_UNITS[power]}" if power == 0 else f"{value:,.1f} {_UNITS[power]}"


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
    """Whatever stands in a table."""
    if value is None:
        return _NONE
    if isinstance(value, float):
        return figure(value, 4) if abs(value) < 100 else figure(value, 1)
    return f"{value:,}" if isinstance(value, int) else str(value)


def breakable(name: str) -> Markup:
    """A name that may go on in the next line after each of its underscores."""
    return escape(name).replace("_", Markup("_<wbr>"))


def clock(at: str) -> str:
    """The time of day of an ISO 8601 instant."""
    return datetime.fromisoformat(at).strftime("%H:%M:%S")


def day(at: str) -> str:
    """Day and time of an ISO 8601 instant."""
    return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")


def lane_path(intervals: Sequence[tuple[float, float]], seconds: float) -> str:
    """Intervals (seconds before now) as boxes of an SVG path that is ``seconds`` wide, 10 high."""
    return "".join(
        f"M{seconds - start:.1f} 0h{max(start - end, 0.3):.1f}v10H{seconds - start:.1f}z"
        for start, end in intervals
    )


def busy_share(intervals: Sequence[tuple[float, float]], seconds: float) -> str:
    """How much of the last ``seconds`` the intervals take."""
    return f"{sum(start - end for start, end in intervals) / seconds:.0%}"
