"""How do large arrays of a result come back? In a file in memory, of which nothing is copied again.

The owner makes the file, and a worker writes to it: whichever of them ends first, nothing is lost
or left behind. Where the system has no anonymous files, or lets them not grow, arrays travel with
the rest.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from typing import Any

import numpy as np

from fedmq.large_array import write_array

__all__ = ["Address", "ResultFile", "packed_result"]

_WORTH_SHARING = 256 * 1024  # bytes; below, a copy through the pipe costs less than a mapping
_ALIGNED = 64  # bytes: where any number may begin

Address = tuple[int, int] | None
"""Process and descriptor of a file; None without one."""


class ResultFile:
    """The file of one result; its arrays live on when it is closed."""

    def __init__(self) -> None:
        self._file = os.memfd_create("fedmq-result") if hasattr(os, "memfd_create") else None

    @property
    def address(self) -> Address:
        """Where a worker finds the file."""
        return None if self._file is None else (os.getpid(), self._file)

    def read(self, packed: bytes) -> Any:
        """The result that `packed_result` packed, with its arrays in place."""
        memory = None
        if self._file is not None and os.fstat(self._file).st_size:
            memory = mmap.mmap(self._file, 0)
        return _Unpickler(io.BytesIO(packed), memory).load()

    def close(self) -> None:
        """Give up the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def packed_result(result: Any, address: Address) -> bytes:
    """``result`` as bytes, and its large arrays in the file at ``address``."""
    if address is None:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    buffer = io.BytesIO()
    owner, file = address
    target = os.open(f"/proc/{owner}/fd/{file}", os.O_WRONLY)
    try:
        _Pickler(buffer, target).dump(result)
    except OSError:
        return packed_result(result, None)
    finally:
        os.close(target)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, file: int) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self._file = file
        self._end = 0

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        if (
            type(value) is not np.ndarray
            or value.nbytes < _WORTH_SHARING
            or value.dtype.hasobject
            or not (value.flags.c_contiguous or value.flags.f_contiguous)
        ):
            return None
        order = "C" if value.flags.c_contiguous else "F"
        start = self._end
        end = write_array(value, self._file, start)
        self._end = -(-end // _ALIGNED) * _ALIGNED
        return start, value.dtype.str, value.shape, order


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, memory: mmap.mmap | None) -> None:
        super().__init__(buffer)
        self._memory = memory

    def persistent_load(self, place: tuple[Any, ...]) -> Any:
        start, dtype, shape, order = place
        assert self._memory is not None
        return np.ndarray(shape, dtype, buffer=self._memory, offset=start, order=order)
