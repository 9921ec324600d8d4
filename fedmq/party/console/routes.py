"""Which address is answered by what: the parts of a page's table of routes. Data only.

An address stands below ``/console`` and may hold parameters, as in ``/models/{model}``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from fedmq.party.console.visit import Change, Visit

__all__ = ["Changes", "Route", "Shows"]


@dataclass(frozen=True, slots=True)
class Shows:
    """GET: somebody who is signed in looks at something."""

    path: str
    answer: Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Changes:
    """POST: somebody who is signed in does something, by a form of the console's own."""

    path: str
    answer: Callable[[Change], Awaitable[Response]]


Route = Shows | Changes
