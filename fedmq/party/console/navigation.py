"""The pages of the console, in the order in which the navigation shows them. Data only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAGES", "Page"]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the navigation: its address below ``/console``, and what it is called."""

    path: str
    title: str
    only_active: bool = False
    """Whether only the label holder has it."""


PAGES = (
    Page("/now", "Now"),
    Page("/inbox", "Inbox"),
    Page("/models", "Models"),
    Page("/data", "Data"),
    Page("/people", "People and keys"),
    Page("/records", "Records"),
    Page("/score", "Try a score", only_active=True),
)
