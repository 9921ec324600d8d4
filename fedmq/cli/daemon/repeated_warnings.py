"""How often may one warning be written? Without a limit, whoever causes it fills the disk."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["RepeatedWarnings"]

_MOST = 20
_SECONDS = 60.0
_KINDS = 1000  # warnings told apart; beyond, the oldest is forgotten


class _Window:
    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0


class RepeatedWarnings(logging.Filter):
    """Lets through 20 warnings a minute of one kind: of one logger, level and first line.

    Values that a line is filled with make no new kind. The next one that is written says how many
    were left out. ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: OrderedDict[tuple[str, int, str], _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is written."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        window = self._window(
            (record.name, record.levelno, str(record.msg).partition("\n")[0]), now
        )
        if now - window.since > _SECONDS:
            if window.left_out:
                record.msg = f"{record.getMessage()} (and {window.left_out} more like it before)"
                record.args = None
            window.since, window.written, window.left_out = now, 0, 0
        if window.written == _MOST:
            window.left_out += 1
            return False
        window.written += 1
        return True

    def _window(self, kind: tuple[str, int, str], now: float) -> _Window:
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(now)
            if len(self._windows) > _KINDS:
                self._windows.popitem(last=False)
        return window
