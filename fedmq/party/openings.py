"""The sessions that were opened here, so that none is opened again by a recording of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.messages.envelope import Header
from fedmq.party.sealer import LONGEST_DELAY

__all__ = ["Openings"]

_DAY = 24 * 3600
_KEPT = LONGEST_DELAY + _DAY
"""Seconds after which an opening may be forgotten: its seal is too old by then."""


class Openings:
    """A file of one line per opened attempt at a session; it outlives the daemon.

    Once a day it is rewritten without its old lines.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = state / "openings.jsonl"
        self._clock = clock
        self._seen: dict[tuple[str, str, int], float] = {}
        self._loaded_at = float("-inf")

    def is_first(self, header: Header) -> bool:
        """Whether this attempt was never opened before; from now on it was.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        key = header.sender, header.session, header.attempt
        try:
            now = self._clock()
            if now - self._loaded_at > _DAY:
                self._seen, self._loaded_at = self._loaded(), now
            if key in self._seen:
                return False
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*key, now]) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be used: {error.strerror}") from None
        self._seen[key] = now
        return True

    def _loaded(self) -> dict[tuple[str, str, int], float]:
        seen: dict[tuple[str, str, int], float] = {}
        oldest = self._clock() - _KEPT
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                sender, session, attempt, at = json.loads(line)
            except ValueError:
                continue  # cut short when the machine went down, so its session never opened
            if at >= oldest:
                seen[sender, session, attempt] = at
        part = self._path.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(
            "".join(json.dumps([*key, at]) + "\n" for key, at in seen.items()), encoding="utf-8"
        )
        part.replace(self._path)
        return seen
