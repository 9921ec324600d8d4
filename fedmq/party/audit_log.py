"""What was asked of this party and what it answered: a file that is only ever appended to.

Each line holds the SHA-256 of the line before it. Whoever changes, removes or inserts a line must
rewrite all that follow; who keeps a copy of the last hash elsewhere (``fedmq audit-log verify``
prints it) notices that too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, DataError

__all__ = ["AuditLog"]

_BEGINNING = "0" * 64


class AuditLog:
    """The log in a party's state folder; one daemon writes it, anybody may verify it."""

    def __init__(self, state: Path) -> None:
        self.path = state / "audit.jsonl"
        self._number = 0
        self._previous = ""

    def record(self, event: str, **details: Any) -> None:
        """Append ``event``; it is on the disk when this returns.

        Raises:
            ConfigError: the disk refuses.
            DataError: the log was tampered with.
        """
        if not self._previous:
            self._continue()
        line = json.dumps(
            {
                "number": self._number + 1,
                "at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
                "event": event,
                **details,
                "previous": self._previous,
            }
        )
        try:
            with self.path.open("ab") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # Part of the line may be there; what is recorded next begins by cutting it off.
            self._previous = ""
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._number += 1
        self._previous = _hash(line)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries, the oldest first.

        Raises:
            DataError: one of them does not follow from the one before it.
        """
        previous = _BEGINNING
        for number, line in enumerate(self._lines(), start=1):
            try:
                entry = json.loads(line)
                right = entry["previous"] == previous and entry["number"] == number
            except (ValueError, TypeError, KeyError):
                right = False
            if not right:
                raise DataError(
                    f"{self.path}: line {number} does not follow from the one before it: "
                    "the log was changed"
                )
            yield entry
            previous = _hash(line)

    def last_hash(self) -> str:
        """The hash of the last line; DataError as for ``entries``."""
        for _ in self.entries():
            pass
        lines = self._lines()
        return _hash(lines[-1]) if lines else _BEGINNING

    def _continue(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                with self.path.open("rb+") as file:
                    # A line without its end was cut off by a crash, before anything came of it.
                    file.truncate(file.read().rfind(b"\n") + 1)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be used: {error.strerror}") from None
        self._number = sum(1 for _ in self.entries())
        self._previous = self.last_hash()

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8", errors="replace").splitlines()


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
