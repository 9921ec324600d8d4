"""Local processes that compute."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from typing import Any

import loky
from loky.backend.context import LokyContext
from loky.process_executor import BrokenProcessPool

from fedmq.computation import Computation
from fedmq.errors import FedmqError
from fedmq.party.compute.orphaned_semaphores import remove_orphaned_semaphores
from fedmq.party.compute.pool import ComputePool, OnDone
from fedmq.party.compute.priority_queue import PriorityQueue
from fedmq.party.compute.shared_arrays import SharedArrays
from fedmq.party.compute.shared_results import Address, ResultFile, packed_result
from fedmq.party.compute.worker import run_pickled
from fedmq.party.telemetry.timeline import Span
from fedmq.transport.priority import PriorityGate

__all__ = ["ProcessPool", "cores"]

log = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_NICENESS = 19  # of workers; a score served beside a training then hardly waits for it


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessPool(ComputePool):
    """Worker processes, which need no guarded ``__main__``. A worker that dies is replaced."""

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or cores()
        self._arrays = SharedArrays()
        self._priority_gate: PriorityGate | None = None
        # One computation running and one ready for each worker; the rest can be overtaken.
        self._queue = PriorityQueue(2 * self.parallelism)
        if removed := remove_orphaned_semaphores():
            log.info("%d semaphores of killed processes removed", removed)
        self._executor = self._started()

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
        await self._queue.acquire(getattr(computation, "urgency", 0))
        try:
            result, span = await self._run(computation)
        finally:
            self._queue.release()
        on_done(span)
        return result

    def give_way(self, to: PriorityGate) -> None:
        self._priority_gate = to

    async def _run(self, computation: Computation) -> Any:
        gives_way = self._priority_gate is not None
        if self._priority_gate is not None:
            # Small computations end in quick succession, and each end is work for this process.
            await self._priority_gate.wait()
        work = await asyncio.to_thread(self._arrays.pickled, computation)
        executor = self._executor
        try:
            return await self._submitted(work, gives_way)
        except BrokenProcessPool:
            log.warning("a compute worker died; its work is done again")
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
            return file.read(packed), span
        finally:
            file.close()

    async def close(self) -> None:
        await asyncio.to_thread(self._executor.shutdown, wait=True, kill_workers=True)


def _start_worker(owner: int) -> None:
    """What a worker does first. It gives way to event loops: people wait for their answers."""
    # Ctrl-C in a terminal reaches all processes. A worker that ends on it may hold a lock of the
    # queue that all others read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    _die_with(owner)


def _die_with(owner: int) -> None:
    """Let this worker end when its owner was killed: nobody else would stop it."""

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
    return packed_result(result, results), span
