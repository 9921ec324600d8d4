"""Append-only files of the requests to this party and its answers.

Each line holds the SHA-256 of the line before it. Changing, removing or inserting a line means
rewriting all later lines. A copy of the last hash, kept elsewhere (``fedmq audit-log verify``
prints it), reveals that too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import itertools
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from fedmq.errors import ConfigError, DataError, FedmqError, Refused

__all__ = ["AuditLog", "AuditSearch", "QuestionLog", "audited", "now", "question_logs"]

log = logging.getLogger(__name__)

_FIRST_HASH = "0" * 64
_ENTRY_BYTES = 4096  # bytes; the longest entry takes a few hundred
_BLOCK_BYTES = 65536  # bytes that are read at once, from the end
_VERIFIED_AT_START = 1000  # entries that a daemon verifies when it starts

_MOST_SEARCHED = 200_000
"""Most entries that one search reads: a page must not wait for years of entries."""

_WRITE_SECONDS = 1.0  # between two writes of questions
_QUESTION_FOLDER = "audit"  # in the state folder
_QUESTION_PREFIX = "questions-"


class AuditLog:
    """The log in a party's state folder; one daemon writes it, any reader may verify it.

    Several threads may record at once.
    """

    def __init__(self, state: Path, name: str = "audit.jsonl") -> None:
        self.path = state / name
        self._number = 0
        self._previous = ""
        self._writing = threading.Lock()

    def check(self) -> None:
        """Raise ConfigError if the disk has no room for another entry."""
        try:
            # Unbuffered: closing the file would otherwise retry the failed write.
            with self._writing, self.path.open("ab", buffering=0) as file:
                end = file.tell()
                try:
                    if file.write(bytes(_ENTRY_BYTES)) < _ENTRY_BYTES:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                finally:
                    file.truncate(end)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def record(self, event: str, **details: Any) -> None:
        """Append ``event`` and sync it to disk.

        Raises:
            ConfigError: the disk refuses.
            DataError: the log was tampered with.
        """
        self.record_all([{"event": event, **details}])

    def record_all(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append ``entries`` with one sync to disk; errors as for ``record``.

        ``at`` defaults to the present.
        """
        with self._writing:
            self._append(entries)

    def _append(self, entries: Iterable[Mapping[str, Any]]) -> None:
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
            # Part of a line may be on disk; the next call cuts it off.
            self._previous = ""
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._number, self._previous = number, previous

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries, the oldest first.

        Raises:
            DataError: one of them does not follow from the one before it.
        """
        for entry, _ in self.chain():
            yield entry

    def latest(self) -> Iterator[dict[str, Any]]:
        """The unverified entries, the newest first; DataError for an invalid line."""
        for line in self._backwards():
            yield self._entry(line)

    def verified(self) -> tuple[int, str]:
        """How many entries there are, and the hash of the last; DataError as for ``entries``."""
        number, last = 0, _FIRST_HASH
        for entry, hashed in self.chain():
            number, last = entry["number"], hashed
        return number, last

    def chain(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Each entry with its hash; DataError as for ``entries``."""
        previous = _FIRST_HASH
        for number, line in enumerate(self._lines(), start=1):
            entry = self._entry(line)
            if (entry["number"], entry["previous"]) != (number, previous):
                raise self._changed(f"line {number}")
            previous = _hash(line)
            yield entry, previous

    def _continue(self) -> None:
        """Cut off the remains of a crash, find the end, and verify the newest entries.

        The owner's command verifies the others: there may be years of them.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                with self.path.open("rb+") as file:
                    # A crash cut this line off before the party answered.
                    file.truncate(file.seek(0, os.SEEK_END) - len(next(_backwards(file), b"")))
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be used: {error.strerror}") from None
        lines = self._backwards()
        line = next(lines, None)
        number = 0 if line is None else self._entry(line)["number"]
        end = number, _FIRST_HASH if line is None else _hash(line)
        for before in itertools.islice(itertools.chain(lines, [None]), _VERIFIED_AT_START):
            if line is None:
                break
            entry = self._entry(line)
            expected = (1, _FIRST_HASH) if before is None else (number, _hash(before))
            if (entry["number"], entry["previous"]) != expected:
                raise self._changed(f"entry {number}")
            line, number = before, number - 1
        self._number, self._previous = end

    def _lines(self) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                # A line without its newline is being written, or was cut off by a crash.
                if line.endswith(b"\n"):
                    yield _text(line[:-1])

    def _backwards(self) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in itertools.islice(_backwards(file), 1, None):
                yield _text(line)

    def _entry(self, line: str) -> dict[str, Any]:
        try:
            entry = json.loads(line)
            if {"number", "previous"} <= set(entry):
                return dict(entry)
        except (ValueError, TypeError):
            pass
        raise self._changed("a line")

    def _changed(self, what: str) -> DataError:
        return DataError(
            f"{self.path}: {what} does not follow from the previous entry: the log was changed"
        )


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """The pieces between newlines, the last first; empty if the file ends with a newline."""
    place, rest = file.seek(0, os.SEEK_END), b""
    while place:
        start = max(0, place - _BLOCK_BYTES)
        file.seek(start)
        rest, *lines = (file.read(place - start) + rest).split(b"\n")
        yield from reversed(lines)
        place = start
    yield rest


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def now() -> str:
    """The present in ISO 8601 with milliseconds and the local zone."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def _hash(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


async def audited(audit_log: AuditLog, party: str, event: str, /, **details: Any) -> None:
    """Record ``event`` of ``party`` in a thread, and sync it to disk.

    Raises:
        Refused: it cannot be recorded; the party's own log has the reason.
    """
    try:
        await asyncio.to_thread(audit_log.record, event, **details)
    except FedmqError as error:
        log.error("%s: %s", party, error)
        raise Refused(f"{party} cannot write its audit log") from error


@dataclass(frozen=True, slots=True)
class AuditSearch:
    """A filter of entries by ``event``, ``peer`` and words.

    An empty field matches every entry. ``before``: only entries with a smaller number.
    """

    event: str = ""
    peer: str = ""
    text: str = ""
    before: int | None = None

    def finds(self, entry: dict[str, Any]) -> bool:
        """Whether ``entry`` matches."""
        return (
            self.event in ("", entry.get("event", ""))
            and self.peer in ("", entry.get("peer", ""))
            and (self.before is None or entry["number"] < self.before)
            and (not self.text or self.text.lower() in _words(entry))
        )

    def entries(self, log: AuditLog, limit: int) -> list[dict[str, Any]]:
        """The last ``limit`` matching entries, the newest first; DataError for an invalid line."""
        return list(itertools.islice(filter(self.finds, self._read(log)), limit))

    def _read(self, log: AuditLog) -> Iterator[dict[str, Any]]:
        return itertools.islice(log.latest(), _MOST_SEARCHED)


def _words(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False).lower()


class QuestionLog:
    """Files by day in ``state/audit``. The key of the hashes stays beside them, with the owner.

    Looking up an id needs the key; the files alone name no person. Files of more than ``days``
    before today are deleted; without ``days`` all are kept.
    """

    def __init__(self, state: Path, days: int | None = None) -> None:
        self._folder = state / _QUESTION_FOLDER
        self._days = days
        self._log: AuditLog | None = None
        self._entries: list[dict[str, Any]] = []
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._key = self._read_key()
        except OSError as error:
            raise ConfigError(f"{self._folder}: cannot be used: {error.strerror}") from None

    def hashed(self, name: str) -> str:
        """The keyed hash that stands for ``name`` in the files."""
        return hmac.digest(self._key, name.encode(), "sha256").hex()[:32]

    def note(
        self, caller: str, session: str, model: str, mode: str, ids: Sequence[str], answer: str
    ) -> None:
        """Record a question within a second."""
        entry = {
            "at": now(),
            "event": "asked online",
            "peer": caller,
            "session": session,
            "model": model,
            "mode": mode,
            "ids": [self.hashed(name) for name in ids],
            "answer": answer,
        }
        self._entries.append(entry)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Write the remaining entries."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write_soon(self) -> None:
        # One writer at a time, never cancelled: each entry holds the hash of the one before.
        while self._entries:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _WRITE_SECONDS)
            await asyncio.to_thread(self._write, self._taken())
        self._writing = None

    def _taken(self) -> list[dict[str, Any]]:
        entries, self._entries = self._entries, []
        return entries

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if not entries:
            return
        today = datetime.now()
        name = _file_of(today)
        if self._log is None or self._log.path.name != name:
            self._log = AuditLog(self._folder, name)
            self._delete_older(today)
        try:
            self._log.record_all(entries)
        except FedmqError as error:
            log.error("%d questions are missing in the audit: %s", len(entries), error)

    def _delete_older(self, today: datetime) -> None:
        if self._days is None:
            return
        first = _file_of(today - timedelta(days=self._days))
        for path in self._folder.glob(f"{_QUESTION_PREFIX}*.jsonl"):
            if path.name < first:
                with contextlib.suppress(OSError):  # tomorrow it is tried again
                    path.unlink()

    def _read_key(self) -> bytes:
        path = self._folder / "key"
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(secrets.token_bytes(32))
        return path.read_bytes()


def _file_of(day: datetime) -> str:
    return f"{_QUESTION_PREFIX}{day:%Y-%m-%d}.jsonl"


def question_logs(state: Path) -> list[AuditLog]:
    """The logs in the state folder ``state`` of questions about ids, the oldest day first."""
    folder = state / _QUESTION_FOLDER
    return [
        AuditLog(folder, path.name) for path in sorted(folder.glob(f"{_QUESTION_PREFIX}*.jsonl"))
    ]
