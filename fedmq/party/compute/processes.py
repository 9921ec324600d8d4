"""Worker processes on this machine, with large arrays in shared memory.

`ProcessPool` takes the most urgent computation first. An array is copied into shared memory when a
computation first refers to it, and stays there as long as the array lives: data that every level
of a tree reads are copied once, and an array from `fedmq.large_array` is already there. The arrays
of a result come back in a file in memory, which the owner makes and a worker fills: whichever of
them ends first, nothing is lost or left behind. A computation that reads a long one finds it there.
If the system has no anonymous shared files, or refuses one, arrays travel inside the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import heapq
import io
import logging
import mmap
import os
import pickle
import re
import signal
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import loky
import numpy as np
from loky.backend.context import LokyContext
from loky.process_executor import BrokenProcessPool
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import FedmqError
from fedmq.large_array import FILES, descriptor_of, too_many_files, write_array
from fedmq.party.compute.freed_memory import keep_freed_memory, return_freed_memory
from fedmq.party.compute.pool import ComputePool, OnDone, ThreadPool, run_pickled
from fedmq.party.telemetry.timeline import Span

__all__ = [
    "Address",
    "PriorityQueue",
    "ProcessPool",
    "ResultFile",
    "SharedArrays",
    "cores",
    "packed_result",
    "remove_orphaned_semaphores",
]

log = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_NICENESS = 19  # of workers: a score served beside a training then hardly waits for it


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessPool(ComputePool):
    """Worker processes, which need no guarded ``__main__``. A worker that dies is replaced."""

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or cores()
        self._arrays = SharedArrays()
        # One computation running and one ready for each worker; more urgent ones overtake the rest.
        self._queue = PriorityQueue(2 * self.parallelism)
        if removed := remove_orphaned_semaphores():
            log.info("%d semaphores of killed processes removed", removed)
        self._executor = self._started()
        self._own = ThreadPool()

    def workers(self) -> list[int]:
        """The numbers of the worker processes."""
        return list(self._executor._processes)

    def _started(self) -> loky.ProcessPoolExecutor:
        # Idle workers stay: their tables of powers are worth more than their memory.
        # The context is given as an object: for its name, joblib's copy of loky would answer.
        return loky.ProcessPoolExecutor(
            self.parallelism,
            timeout=None,
            context=LokyContext(),
            initializer=_start_worker,
            initargs=(os.getpid(),),
        )

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        if self._stays(computation):
            return await self._own.run(computation, on_done)
        await self._queue.acquire(getattr(computation, "urgency", 0))
        try:
            result, span = await self._run(computation)
        finally:
            self._queue.release()
        on_done(span)
        return result

    async def _run(self, computation: Computation) -> Any:
        gives_way = self._priority_gate is not None
        if self._priority_gate is not None:
            # Small computations end in quick succession, and each end costs this process time.
            await self._priority_gate.wait()
        work = await asyncio.to_thread(self._arrays.pickled, computation)
        executor = self._executor
        try:
            return await self._submitted(work, gives_way)
        except BrokenProcessPool:
            log.warning("a compute worker died; the pool repeats its work")
        if executor is self._executor:
            self._executor = self._started()
        try:
            return await self._submitted(work, gives_way)
        except BrokenProcessPool:
            raise FedmqError(
                f"{computation.label}: compute workers die again and again; is there enough memory?"
            ) from None

    async def _submitted(self, work: bytes, gives_way: bool) -> tuple[Any, Span]:
        file = ResultFile()
        try:
            submitted = self._executor.submit(_run_work, work, gives_way, file.address)
            packed, span = await asyncio.wrap_future(submitted)
            result = file.read(packed, self._arrays)
            if file.is_taken_over:
                # It replaces others, and messages, of which as much memory is left.
                await asyncio.to_thread(return_freed_memory)
            return result, span
        finally:
            file.close()

    async def close(self) -> None:
        await self._own.close()
        await asyncio.to_thread(self._executor.shutdown, wait=True, kill_workers=True)


def _start_worker(owner: int) -> None:
    """Start a worker. It gives way to event loops: people wait for their answers."""
    # Ctrl-C in a terminal reaches all processes. A worker that dies from it may hold a lock of the
    # queue that all others read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    keep_freed_memory()
    _die_with(owner)


def _die_with(owner: int) -> None:
    """End this worker when its owner is killed: no other process would stop it."""

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="fedmq-watch", daemon=True).start()


def _run_work(work: bytes, gives_way: bool, results: Address) -> tuple[bytes, Span]:
    # An event loop that wakes up still waits some milliseconds for a core with a worker of low
    # priority, but not for one with an idle task.
    if gives_way and hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(0) != os.SCHED_IDLE:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    result, span = run_pickled(work)
    return_freed_memory()  # a result that is packed lies in memory twice
    packed = packed_result(result, results)
    del result
    return_freed_memory()  # the next computation may be another worker's
    return packed, span


class PriorityQueue:
    """Admits ``places`` computations at once; the others wait in order of urgency."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    async def acquire(self, urgency: int) -> None:
        """Wait for a place: the most urgent first, and among equals in order of arrival."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-urgency, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place was handed over just before
            raise

    def release(self) -> None:
        """Hand the place to the next computation."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


_WORTH_SHARING = 256 * 1024  # bytes; below, a copy through the pipe is cheaper than a mapping
_OWN_FILE = 8 * 2**20  # bytes: a longer array is alone in its file, which ends with it
_PAGE = mmap.ALLOCATIONGRANULARITY


@dataclass(eq=False)
class _Segment:
    """A file with arrays one behind the other; its last array closes it."""

    file: int
    in_memory: bool
    size: int
    arrays: int = 0

    def __reduce__(self) -> Any:
        # Pickled once per computation, however many of its arrays lie here: a mapping keeps a
        # descriptor of its own in the other process.
        return _mapped, (os.getpid(), self.file)


def _mapped(owner: int, file: int) -> mmap.mmap:
    """The file behind the descriptor ``file`` of process ``owner``, mapped and read-only."""
    with open(f"/proc/{owner}/fd/{file}", "rb") as source:  # noqa: PTH123 (no path on disk)
        return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)


class SharedArrays:
    """Pickles computations for other processes of this user on this machine.

    An array that a computation reads must not change afterwards. The arrays that a computation is
    the first to read share a file, but for long ones.
    """

    def __init__(self) -> None:
        self._places: dict[int, tuple[_Segment, int]] = {}
        """By array, where its bytes begin."""
        self._lock = threading.RLock()  # computations are pickled by several threads

    def pickled(self, computation: Any) -> bytes:
        """``computation`` as bytes that ``pickle.loads`` understands in another process."""
        segments: list[_Segment] = []
        """The files of the arrays that this computation is the first to read."""
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        # A table: `reducer_override` is called for every number of a list of ciphertexts. It knows
        # nothing of the pickler, which holds all that it has pickled: a cycle would keep it.
        reduced = partial(_reduced, self, segments)
        pickler.dispatch_table = {**copyreg.dispatch_table, np.ndarray: reduced}
        pickler.dump(computation)
        return buffer.getvalue()

    def share(
        self, array: NDArray[Any], segments: list[_Segment] | None = None
    ) -> tuple[_Segment, int] | None:
        """The file that holds ``array``, and from which byte on; None if a copy is cheaper.

        A new array joins the last of ``segments``, those of this computation, if it is not long.
        """
        if (
            array.nbytes < _WORTH_SHARING
            or array.dtype.hasobject
            or not (array.flags.c_contiguous or array.flags.f_contiguous)
            or not hasattr(os, "memfd_create")
        ):
            return None
        file = descriptor_of(array)
        if file is not None:
            return _Segment(file, True, array.nbytes), 0
        key = id(array)
        with self._lock:
            if key not in self._places:
                try:
                    self._places[key] = self._written(array, [] if segments is None else segments)
                except OSError:
                    return None
                weakref.finalize(array, self._forget, key)
            return self._places[key]

    def adopt(self, file: int, size: int, arrays: Sequence[tuple[NDArray[Any], int]]) -> bool:
        """Take over a result's ``file`` with its ``arrays``, each with the place where it begins.

        False, and it stays the caller's, where none of them is long, or memory is used up.
        """
        long = [(array, start) for array, start in arrays if array.nbytes >= _OWN_FILE]
        if not long or not FILES.adopt(size):
            return False
        segment = _Segment(file, True, size, arrays=len(long))
        with self._lock:
            for array, start in long:
                self._places[id(array)] = segment, start
                weakref.finalize(array, self._forget, id(array))
        return True

    def _written(self, array: NDArray[Any], segments: list[_Segment]) -> tuple[_Segment, int]:
        """Write ``array`` into a file. Raises OSError without room for it, and leaves nothing."""
        size = -(-array.nbytes // _PAGE) * _PAGE
        short = array.nbytes < _OWN_FILE
        if short and segments:
            segment, start = segments[-1], segments[-1].size
            if FILES.extend(segment.file, start, size, segment.in_memory):
                segment.size += size
                write_array(array, segment.file, start)
                segment.arrays += 1
                return segment, start
        file, in_memory = FILES.create(size)
        try:
            write_array(array, file)
        except OSError:
            FILES.close(file, size, in_memory)
            raise
        segment = _Segment(file, in_memory, size, arrays=1)
        if short:
            segments.append(segment)
        return segment, 0

    def _forget(self, key: int) -> None:
        with self._lock:
            segment, _ = self._places.pop(key)
            segment.arrays -= 1
            if not segment.arrays:
                FILES.close(segment.file, segment.size, segment.in_memory)


def _reduced(shared: SharedArrays, segments: list[_Segment], array: NDArray[Any]) -> Any:
    place = shared.share(array, segments)
    if place is None:
        return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    segment, start = place
    order = "C" if array.flags.c_contiguous else "F"
    return _attached, (segment, start, array.dtype.str, array.shape, order)


def _attached(
    memory: mmap.mmap, start: int, dtype: str, shape: tuple[int, ...], order: Any
) -> NDArray[Any]:
    """The array that begins at byte ``start`` of a mapped file."""
    return np.ndarray(shape, dtype=dtype, buffer=memory, offset=start, order=order)


_ALIGNED = 64  # bytes: an alignment that fits every dtype

Address = tuple[int, int] | None
"""Process and descriptor of a file; None without one."""


class ResultFile:
    """The file of one result; its arrays outlive its closing."""

    def __init__(self) -> None:
        self._file: int | None = None
        self.is_taken_over = False
        """Whether long arrays of the result lie here, and the file ends with them."""
        if hasattr(os, "memfd_create"):
            try:
                self._file = os.memfd_create("fedmq-result")
            except OSError as error:  # the arrays then travel inside the bytes
                log.warning("%s", too_many_files() or f"no file for a result: {error.strerror}")

    @property
    def address(self) -> Address:
        """The address under which a worker finds the file."""
        return None if self._file is None else (os.getpid(), self._file)

    def read(self, packed: bytes, shared: SharedArrays | None = None) -> Any:
        """Unpack a result of `packed_result`, with its arrays in place.

        ``shared`` takes over long arrays, so that computations read them in this file.
        """
        size = 0 if self._file is None else os.fstat(self._file).st_size
        if self._file is None or not size:
            return _ResultUnpickler(io.BytesIO(packed), None).load()
        unpickler = _ResultUnpickler(io.BytesIO(packed), mmap.mmap(self._file, 0))
        result = unpickler.load()
        if shared is not None and shared.adopt(self._file, size, unpickler.arrays):
            self._file, self.is_taken_over = None, True
        return result

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def packed_result(result: Any, address: Address) -> bytes:
    """Pack ``result`` as bytes, and its large arrays into the file at ``address``."""
    if address is None:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    buffer = io.BytesIO()
    owner, file = address
    target = os.open(f"/proc/{owner}/fd/{file}", os.O_WRONLY)
    try:
        _ResultPickler(buffer, target).dump(result)
    except OSError:
        return packed_result(result, None)
    finally:
        os.close(target)
    return buffer.getvalue()


class _ResultPickler(pickle.Pickler):
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


class _ResultUnpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, memory: mmap.mmap | None) -> None:
        super().__init__(buffer)
        self._memory = memory
        self.arrays: list[tuple[NDArray[Any], int]] = []
        """Each array in the file, and where it begins."""

    def persistent_load(self, place: tuple[Any, ...]) -> Any:
        start, dtype, shape, order = place
        assert self._memory is not None
        array: NDArray[Any] = np.ndarray(
            shape, dtype, buffer=self._memory, offset=start, order=order
        )
        self.arrays.append((array, start))
        return array


_SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"sem\.loky-(\d+)-\w+")


def remove_orphaned_semaphores(folder: Path = _SHARED_MEMORY) -> int:
    """Remove semaphores of this user's dead pools in ``folder``; returns their number.

    Processes that share this memory must share process ids too, as containers do by default: a
    semaphore is orphaned if the process that its name begins with is gone.
    """
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found = _NAME.fullmatch(entry.name)
            if found is None or Path("/proc", found[1]).exists():
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    Path(entry.path).unlink()
                    removed += 1
    return removed
