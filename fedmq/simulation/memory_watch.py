"""The memory of a process and of all that it started, sampled while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Self

__all__ = ["MemoryWatch"]

_WATCH_SECONDS = 0.1  # seconds
_NONE: Mapping[str, Callable[[], Collection[int]]] = MappingProxyType({})


class MemoryWatch:
    """Samples memory until the ``with`` block ends: private memory per process, shared memory once.

    ``process``: its number; this one by default. ``workers``: by name, what says which processes
    are whose workers now. ``peak`` is in bytes, and so are its parts: ``of_workers`` what each
    one's workers have for themselves, ``grown`` by how much more all other processes came to have,
    ``code`` files that processes share, most of which are libraries. ``files``: the most that one
    of them has open. All are 0 where the system has no /proc, which is Linux's.
    """

    def __init__(
        self,
        process: int | None = None,
        workers: Mapping[str, Callable[[], Collection[int]]] = _NONE,
    ) -> None:
        self.peak = 0
        self.grown = 0
        self.code = 0
        self.of_workers = dict.fromkeys(workers, 0)
        self.files = 0
        self._process = "self" if process is None else str(process)
        self._workers = workers
        self._before: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            over = self._stop.wait(_WATCH_SECONDS)
            self._sample()

    def _sample(self) -> None:
        family = _family(self._process)
        self.files = max(self.files, *map(_open_files, family))
        sizes = {process: _sizes(process) for process in family}
        private = {process: size.get("RssAnon", 0) for process, size in sizes.items()}
        shared = max(size.get("RssShmem", 0) + size.get("RssFile", 0) for size in sizes.values())
        self.peak = max(self.peak, sum(private.values()) + shared)
        self.code = max(self.code, *(size.get("RssFile", 0) for size in sizes.values()))
        workers = {name: list(map(str, numbers())) for name, numbers in self._workers.items()}
        for name, numbers in workers.items():
            theirs = sum(private.get(number, 0) for number in numbers)
            self.of_workers[name] = max(self.of_workers[name], theirs)
        others = private.keys() - set(chain.from_iterable(workers.values()))
        own = sum(private[process] for process in others)
        if self._before is None:
            self._before = own
        self.grown = max(self.grown, own - self._before)


def _family(process: str) -> list[str]:
    """A process and its descendants, by number."""
    found = [process]
    for member in found:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found += children.read_text().split()
            except OSError:  # it has just ended
                continue
    return found


def _open_files(process: str) -> int:
    try:
        return len(list(Path(f"/proc/{process}/fd").iterdir()))
    except OSError:
        return 0


def _sizes(process: str) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith("Rss"))
    return {name.rstrip(":"): 1024 * int(size) for name, size, *_ in fields}
