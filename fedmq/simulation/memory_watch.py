"""How much memory a process and its workers take together, at most."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["MemoryWatch"]

_EVERY = 0.1  # seconds


class MemoryWatch:
    """Samples until the ``with`` block ends: the private memory of each, and what they share once.

    ``process``: its number; this one by default. ``peak`` is in bytes; 0 where the system has
    no /proc, which is Linux's.
    """

    def __init__(self, process: int | None = None) -> None:
        self.peak = 0
        self._process = "self" if process is None else str(process)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            over = self._stop.wait(_EVERY)
            sizes = [_sizes(process) for process in _family(self._process)]
            private = sum(size.get("RssAnon", 0) for size in sizes)
            shared = max(size.get("RssShmem", 0) + size.get("RssFile", 0) for size in sizes)
            self.peak = max(self.peak, private + shared)


def _family(process: str) -> list[str]:
    """A process and all that descend from it, by number."""
    found = [process]
    for member in found:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found += children.read_text().split()
            except OSError:  # it has just ended
                continue
    return found


def _sizes(process: str) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith("Rss"))
    return {name.rstrip(":"): 1024 * int(size) for name, size, *_ in fields}
