"""Large arrays in shared memory, and on disk beyond a limit.

Other processes of this machine read such arrays in place, without a copy. They lie in anonymous
memory-mapped files: in memory up to this process's limit, beyond it on disk. The system caches the
latter in free memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
import weakref
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = [
    "FILES",
    "LargeFiles",
    "allow_open_files",
    "descriptor_of",
    "large_zeros",
    "limit_memory",
    "too_many_files",
    "write_array",
]


class LargeFiles:
    """Anonymous files. ``limit`` bytes of them may lie in memory, None for no limit.

    The rest lies in ``folder``. ``in_memory`` and ``on_disk`` count the bytes in use.
    """

    def __init__(self, limit: int | None = None, folder: Path | None = None) -> None:
        self.limit = limit
        self.folder = folder
        self.in_memory = 0
        self.on_disk = 0
        self._lock = threading.Lock()

    def create(self, size: int) -> tuple[int, bool]:
        """The descriptor of a new file of ``size`` zero bytes, and whether it lies in memory.

        Raises:
            OSError: the system refuses so many bytes.
        """
        with self._lock:
            in_memory = hasattr(os, "memfd_create") and (
                self.limit is None or self.in_memory + size <= self.limit
            )
            self._count(size, in_memory)
        if in_memory:
            file = os.memfd_create("fedmq-array")
        else:
            file, name = tempfile.mkstemp(prefix="fedmq-array-", dir=self.folder)
            Path(name).unlink()  # the descriptor keeps the file alive, and no file remains
        try:
            os.ftruncate(file, size)
            if not in_memory and hasattr(os, "posix_fallocate"):
                # Detect a full disk here: writing to a mapping on a full disk kills the process.
                os.posix_fallocate(file, 0, size)
        except OSError:
            self.close(file, size, in_memory)
            raise
        return file, in_memory

    def extend(self, file: int, size: int, more: int, in_memory: bool) -> bool:
        """Let a file of ``size`` bytes grow by ``more``; False where only the disk has room for it.

        Raises:
            OSError: the system refuses so many bytes.
        """
        with self._lock:
            if in_memory and self.limit is not None and self.in_memory + more > self.limit:
                return False
            self._count(more, in_memory)
        try:
            os.ftruncate(file, size + more)
            if not in_memory and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, size, more)
        except OSError:
            with self._lock:
                self._count(-more, in_memory)
            raise
        return True

    def adopt(self, size: int) -> bool:
        """Count a file in memory of so many bytes that exists; False beyond the limit."""
        with self._lock:
            if self.limit is not None and self.in_memory + size > self.limit:
                return False
            self._count(size, True)
        return True

    def close(self, file: int, size: int, in_memory: bool) -> None:
        """Close a file, which frees its ``size`` bytes."""
        os.close(file)
        with self._lock:
            self._count(-size, in_memory)

    def _count(self, size: int, in_memory: bool) -> None:
        if in_memory:
            self.in_memory += size
        else:
            self.on_disk += size


_NEARLY = 0.8
_OPEN_FILES = Path("/proc/self/fd")


def allow_open_files() -> None:
    """Let this process and its children open as many files as the system lets them at all."""
    import resource  # Windows has none, and no daemons

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Refused where the limit is "unlimited" and the kernel has one of its own.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def too_many_files(needed: int | None = None) -> str:
    """Why the next files may be refused; empty as long as many are left.

    ``needed``: how many there will be, in place of those that are open now.
    """
    import resource

    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed is None:
        needed = len(list(_OPEN_FILES.iterdir())) if _OPEN_FILES.exists() else 0
        what = "are"
    else:
        limit, what = most, "will be"
    if limit == resource.RLIM_INFINITY or needed < _NEARLY * limit:
        return ""
    return (
        f"too many open files: {needed:,} {what} open, and the system lets this process have "
        f"{limit:,}; raise the limit: LimitNOFILE in the systemd unit, or ulimit -n"
    )


FILES = LargeFiles()
"""The files of this process: one party's, or all parties' of a simulation."""

_DESCRIPTORS: dict[int, int] = {}


def limit_memory(limit: int | None, folder: Path | None = None) -> None:
    """Limit this process's large arrays to ``limit`` bytes of memory; the rest: in ``folder``."""
    FILES.limit, FILES.folder = limit, folder


def large_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """A writable array of zeros; processes that share it see each other's writes.

    Its memory or disk space is freed with the last reference.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    file, in_memory = FILES.create(size)
    array: NDArray[Any] = np.ndarray(shape, dtype, buffer=mmap.mmap(file, size))
    _DESCRIPTORS[id(array)] = file
    weakref.finalize(array, _free, id(array), file, size, in_memory)
    return array


def descriptor_of(array: NDArray[Any]) -> int | None:
    """The file behind an array of `large_zeros`, None for any other array."""
    return _DESCRIPTORS.get(id(array))


def write_array(array: NDArray[Any], file: int, start: int = 0) -> int:
    """Write a contiguous ``array`` to ``file`` from byte ``start`` on; returns the end.

    A mapping would be slower: the system allocates it page by page.

    Raises:
        OSError: there is no room.
    """
    left = array.ravel(order="K").view(np.uint8).data
    while left:
        written = os.pwrite(file, left, start)
        start, left = start + written, left[written:]
    return start


def _free(key: int, file: int, size: int, in_memory: bool) -> None:
    del _DESCRIPTORS[key]
    FILES.close(file, size, in_memory)
