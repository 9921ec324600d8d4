"""Computations as bytes for another process, with their large arrays in shared memory.

An array is copied into shared memory when a computation first refers to it, and stays there as
long as the array lives. What every level of a tree reads is so copied once; an array made by
`fedmq.large_array` is there already. Where the system has no anonymous shared files, or refuses
one, arrays travel inside the bytes of the computation.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.large_array import FILES, descriptor_of, write_array

__all__ = ["SharedArrays"]

_WORTH_SHARING = 256 * 1024  # bytes; below, a copy through the pipe costs less than a mapping


class SharedArrays:
    """Pickles computations for other processes of this user on this machine.

    An array that a computation reads must not change afterwards.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._lock = threading.RLock()  # computations are pickled by several threads

    def pickled(self, computation: Any) -> bytes:
        """``computation`` as bytes that ``pickle.loads`` understands in another process."""
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(computation)
        return buffer.getvalue()

    def share(self, array: NDArray[Any]) -> int | None:
        """The descriptor of the file that holds ``array``; None for one that is better copied."""
        if (
            array.nbytes < _WORTH_SHARING
            or array.dtype.hasobject
            or not (array.flags.c_contiguous or array.flags.f_contiguous)
            or not hasattr(os, "memfd_create")
        ):
            return None
        file = descriptor_of(array)
        if file is not None:
            return file
        key = id(array)
        with self._lock:
            if key not in self._files:
                try:
                    file, in_memory = FILES.create(array.nbytes)
                except OSError:
                    return None
                try:
                    write_array(array, file)
                except OSError:
                    FILES.close(file, array.nbytes, in_memory)
                    return None
                self._files[key] = file
                weakref.finalize(array, self._forget, key, array.nbytes, in_memory)
            return self._files[key]

    def _forget(self, key: int, size: int, in_memory: bool) -> None:
        with self._lock:
            FILES.close(self._files.pop(key), size, in_memory)


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, shared: SharedArrays) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def reducer_override(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | Any:
        if type(value) is np.ndarray:
            file = self._shared.share(value)
            if file is not None:
                order = "C" if value.flags.c_contiguous else "F"
                return _attached, (os.getpid(), file, value.dtype.str, value.shape, order)
        return NotImplemented


def _attached(
    owner: int, file: int, dtype: str, shape: tuple[int, ...], order: Any
) -> NDArray[Any]:
    """The array behind the descriptor ``file`` of process ``owner``, mapped and read-only."""
    with open(f"/proc/{owner}/fd/{file}", "rb") as source:  # noqa: PTH123 (no path on disk)
        memory = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    return np.ndarray(shape, dtype=dtype, buffer=memory, order=order)
