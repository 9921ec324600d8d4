"""Who asked about whom: an :class:`AuditLog` by day, with an entry per question.

Each day is a chain of its own, so that the owner can delete old days and still verify the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, FedmqError
from fedmq.party.consent.audit_log import AuditLog, now

__all__ = ["QuestionLog", "question_logs"]

log = logging.getLogger(__name__)

_WRITE_EVERY = 1.0
_FOLDER = "audit"
_PREFIX = "questions-"


class QuestionLog:
    """Files by day in ``state/audit``. The key of the hashes stays beside them, with the owner.

    Whoever holds the key can look an id up; the files alone name nobody.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER
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
        """Write down a question, within a second."""
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
        """Write what is left."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write_soon(self) -> None:
        # One writer at a time, never cancelled: each entry holds the hash of the one before.
        while self._entries:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _WRITE_EVERY)
            await asyncio.to_thread(self._write, self._taken())
        self._writing = None

    def _taken(self) -> list[dict[str, Any]]:
        entries, self._entries = self._entries, []
        return entries

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if not entries:
            return
        name = f"{_PREFIX}{datetime.now():%Y-%m-%d}.jsonl"
        if self._log is None or self._log.path.name != name:
            self._log = AuditLog(self._folder, name)
        try:
            self._log.record_all(entries)
        except FedmqError as error:
            log.error("%d questions are missing in the audit: %s", len(entries), error)

    def _read_key(self) -> bytes:
        path = self._folder / "key"
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(secrets.token_bytes(32))
        return path.read_bytes()


def question_logs(state: Path) -> list[AuditLog]:
    """The logs in the state folder ``state`` of who asked about whom, the oldest day first."""
    folder = state / _FOLDER
    return [AuditLog(folder, path.name) for path in sorted(folder.glob(f"{_PREFIX}*.jsonl"))]
