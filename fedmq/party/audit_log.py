"""What was asked of this party and what it answered: a file that is only ever appended to.

Each line holds the SHA-256 of the line before it. Whoever changes, removes or inserts a line must
rewrite all that follow; who keeps a copy of the last hash elsewhere (``fedmq audit-log verify``
prints it) notices that too.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, DataError

__all__ = ["AuditLog", "now"]

_BEGINNING = "0" * 64
_ROOM = 4096  # bytes; the longest entry takes a few hundred


class AuditLog:
    """The log in a party's state folder; one daemon writes it, anybody may verify it."""

    def __init__(self, state: Path, name: str = "audit.jsonl") -> None:
        self.path = state / name
        self._number = 0
        self._previous = ""

    def check(self) -> None:
        """Raises ConfigError where the disk would not take another entry."""
        try:
            # Unbuffered: closing the file would try once more to write what did not fit.
            with self.path.open("ab", buffering=0) as file:
                end = file.tell()
                try:
                    if file.write(bytes(_ROOM)) < _ROOM:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                finally:
                    file.truncate(end)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def record(self, event: str, **details: Any) -> None:
        """Append ``event``; it is on the disk when this returns.

        Raises:
            ConfigError: the disk refuses.
            DataError: the log was tampered with.
        """
        self.record_all([{"event": event, **details}])

    def record_all(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append ``entries``, with one wait for the disk; errors as for ``record``.

        ``at`` is the present unless an entry says otherwise.
        """
        if not self._previous:
            self._continue()
        number, previous, lines = self._number, self._previous, []
        for number, entry in enumerate(entries, start=self._number + 1):
            content = {"number": number, "at": now(), **entry, "previous": previous}
            lines.append(json.dumps(content))
            previous = _hash(lines[-1])
        try:
            with self.path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # Part of a line may be there; what is recorded next begins by cutting it off.
            self._previous = ""
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._number, self._previous = number, previous

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
        text = self.path.read_text(encoding="utf-8", errors="replace")
        # What has no end yet is being written, or was cut off by a crash: it is no entry.
        return text[: text.rfind("\n") + 1].splitlines()


def now() -> str:
    """The present as entries have it: ISO 8601, milliseconds, local zone."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
