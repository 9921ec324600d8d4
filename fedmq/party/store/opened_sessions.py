"""The sessions that were opened here, so that none is opened again by a recording of it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.messages.envelope import Header
from fedmq.party.atomic_file import write_atomically

__all__ = ["OpenedSessions"]

_DAY = 24 * 3600
_KEPT = 8 * _DAY
"""Seconds after which an opening may be forgotten: nobody sends it again by then."""

_Key = tuple[str, str, int]


class OpenedSessions:
    """A file of one line per opened attempt at a session; it outlives the daemon.

    Once a day it is rewritten without its old lines, and whenever a line may have been cut short.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = state / "openings.jsonl"
        self._clock = clock
        self._seen: dict[_Key, float] | None = None
        self._rewritten_at = float("-inf")
        self._writing = threading.Lock()

    async def record_opening(self, header: Header) -> bool:
        """Record that this attempt is opened; whether it never was before. The disk has it then.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        key = header.sender, header.session, header.attempt
        return await asyncio.to_thread(self._record, key)

    def _record(self, key: _Key) -> bool:
        # One after the other, so that of two openings of the same attempt only one is the first.
        with self._writing:
            return self._append(key)

    def _append(self, key: _Key) -> bool:
        try:
            now = self._clock()
            if self._seen is None:
                self._seen = self._read()
            if now - self._rewritten_at > _DAY:
                self._rewrite(self._seen, now)
            first = key not in self._seen
            # A repetition too may have been sealed just now, and is good for as long.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(key, now))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._rewritten_at = float("-inf")
            raise ConfigError(f"{self._path}: cannot be used: {error.strerror}") from None
        self._seen[key] = now
        return first

    def _read(self) -> dict[_Key, float]:
        seen: dict[_Key, float] = {}
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                sender, session, attempt, at = json.loads(line)
            except ValueError:
                continue  # cut short when the machine went down, so its session never opened
            seen[sender, session, attempt] = at
        return seen

    def _rewrite(self, seen: dict[_Key, float], now: float) -> None:
        for key in [key for key, at in seen.items() if at < now - _KEPT]:
            del seen[key]
        write_atomically(self._path, "".join(_line(key, at) for key, at in seen.items()))
        self._rewritten_at = now


def _line(key: _Key, at: float) -> str:
    return json.dumps([*key, at]) + "\n"
