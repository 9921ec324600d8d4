"""Who asked about whom: one line of JSON per question, ids as keyed hashes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from fedmq.errors import ConfigError

__all__ = ["OnlineAudit"]

log = logging.getLogger(__name__)

_WRITE_EVERY = 1.0


class OnlineAudit:
    """Files by day in ``state/audit``. The key of the hashes stays beside them, with the owner.

    Whoever holds the key can look an id up; the files alone tell nobody's name.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "audit"
        self._lines: list[str] = []
        self._writing: asyncio.Task[None] | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._key = self._read_key()
        except OSError as error:
            raise ConfigError(f"{self._folder}: cannot be used: {error.strerror}") from None

    def hashed(self, name: str) -> str:
        """How ``name`` stands in the files."""
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()[:32]

    def note(self, caller: str, model: str, mode: str, ids: Sequence[str], answer: str) -> None:
        """Write down a question, within a second."""
        line = {
            "time": datetime.now().astimezone().isoformat(timespec="milliseconds"),
            "caller": caller,
            "model": model,
            "mode": mode,
            "ids": [self.hashed(each) for each in ids],
            "answer": answer,
        }
        self._lines.append(json.dumps(line, separators=(",", ":")))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon())

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
        self._write(self._taken())

    async def _write_soon(self) -> None:
        await asyncio.sleep(_WRITE_EVERY)
        self._writing = None
        await asyncio.to_thread(self._write, self._taken())

    def _taken(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        path = self._folder / f"online-{datetime.now():%Y-%m-%d}.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            log.error("%s: %d lines of the audit are lost: %s", path, len(lines), error.strerror)

    def _read_key(self) -> bytes:
        path = self._folder / "key"
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(secrets.token_bytes(32))
        return path.read_bytes()
