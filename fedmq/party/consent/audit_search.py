"""Which entries of an audit log somebody looks for, the newest first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedmq.party.consent.audit_log import AuditLog

__all__ = ["AuditSearch"]

_MOST_READ = 200_000
"""Entries that one search reads: a page must not wait for years of them."""


@dataclass(frozen=True, slots=True)
class AuditSearch:
    """What an entry must have: this ``event``, this ``peer``, these words somewhere in it.

    What is empty holds for all. ``before``: its number is smaller.
    """

    event: str = ""
    peer: str = ""
    text: str = ""
    before: int | None = None

    def finds(self, entry: dict[str, Any]) -> bool:
        """Whether ``entry`` is looked for."""
        return (
            self.event in ("", entry.get("event", ""))
            and self.peer in ("", entry.get("peer", ""))
            and (self.before is None or entry["number"] < self.before)
            and (not self.text or self.text.lower() in _words(entry))
        )

    def entries(self, log: AuditLog, most: int) -> list[dict[str, Any]]:
        """The last ``most`` of them, the newest first; DataError for a line that is no entry."""
        return list(itertools.islice(filter(self.finds, self._read(log)), most))

    def _read(self, log: AuditLog) -> Iterator[dict[str, Any]]:
        return itertools.islice(log.latest(), _MOST_READ)


def _words(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False).lower()
