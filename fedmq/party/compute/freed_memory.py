"""How is the memory that arithmetic frees kept for its next arrays?

glibc gives the memory of an array back to the system when it is freed, and the next array of that
size is new memory, page by page. That takes longer than the arithmetic on a ciphertext. But of what
the columns of a wide table leave behind, it would keep hundreds of megabytes for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["keep_freed_memory", "return_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST = 32 * 1024 * 1024
"""Of one array: glibc takes no larger threshold."""
_KEPT = 128 * 1024 * 1024


def keep_freed_memory() -> None:
    """Keep up to 64 MiB of what this process frees, in arrays of up to 32 MiB.

    That is as far as glibc's thresholds grow by themselves, but where the environment sets them, as
    Dask does of its workers. Other libraries have rules of their own.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)


def return_freed_memory() -> bool:
    """Give the system what this process has freed and keeps, if that is 128 MiB or more.

    False where it is less, or the C library is not glibc 2.33 or later.
    """
    library = _library()
    if library is None or (resident := _resident()) < _KEPT:  # to look at the heap takes longer
        return False
    heap = library.mallinfo2()
    if heap.fordblks < _KEPT or resident - heap.uordblks - heap.hblkhd < _KEPT:
        return False
    library.malloc_trim(0)
    return True


def _resident() -> int:
    """Bytes of this process's own memory: what was given back is free, too, but not resident."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h: of the heap ``uordblks`` bytes are used."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _MallInfo
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (AttributeError, OSError, TypeError):
        return None
    return library
