"""Who is told how far a session is while somebody waits for its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__all__ = ["OnProgress"]

OnProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes one event of the kind that the command line shows, such as a finished tree."""
