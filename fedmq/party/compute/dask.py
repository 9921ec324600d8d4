"""A Dask cluster for computations of a party whose rows outgrow one machine.

The cluster belongs to the party: its private key travels to the workers. Workers should have one
thread each (``dask worker --nthreads 1 --nworkers auto``): big integers hold Python's lock.

Each worker has one actor of Dask's, a `Keeper`, which this process asks without the scheduler in
between. Large arrays live there: bins for a session, gradients for a tree. One is sent once and
stays as long as it lives here; arrays of a result stay where they were made, for the next
computation that reads them. A computation over rows is done in parts, and each worker has its own
rows; sums of integers are the same in any parts. If a worker dies, another is sent what it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from fedmq.computation import Computation
from fedmq.errors import ConfigError, FedmqError, LinkError
from fedmq.party.compute.placed_arrays import (
    ArrayGone,
    Keeper,
    PlacedArrays,
    Result,
    Token,
    Wanted,
    opened,
    pickled,
)
from fedmq.party.compute.pool import ComputePool, OnDone, ThreadPool
from fedmq.party.compute.processes import PriorityQueue
from fedmq.party.configuration.party import dask_address
from fedmq.party.telemetry.timeline import Span

__all__ = ["DaskPool"]

log = logging.getLogger(__name__)

_CONNECT = 10.0  # seconds
_WATCH_SECONDS = 1.0
_MISTRUSTED = 5.0  # seconds for which a worker that did not answer is not asked
_WITHOUT_WORKERS = 300.0  # seconds, until a cluster that has lost all its workers is given up
_ATTEMPTS = 4  # at a computation whose worker dies


class DaskPool(ComputePool):
    """Workers of the scheduler at ``url``; the work of a lost worker is done again.

    Raises:
        ConfigError: the extra ``fedmq[dask]`` is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import distributed
        except ImportError:
            raise ConfigError(
                "compute: Dask is not installed; install it with: pip install 'fedmq[dask]'"
            ) from None
        self._dask: Any = distributed
        self._url = url
        self._client: Any = None
        self._own = ThreadPool()
        self._direct = True
        self._workers: dict[str, int] = {}
        """Threads of each worker, by its address."""
        self._seen = 0.0
        self._mistrusted: dict[str, float] = {}
        self._keepers: dict[str, asyncio.Future[Any]] = {}
        self._running: Counter[str] = Counter()
        self.parallelism = self._parts = 0
        # One computation running and one ready for each thread; more urgent ones overtake the rest.
        self._queue = PriorityQueue(0)
        self._homes: dict[int, str] = {}
        """The worker of each part of the rows."""

    async def start(self) -> None:
        """Connect, and count the workers.

        Raises:
            LinkError: no scheduler answers, or it has no workers.
        """
        self._arrays = PlacedArrays(self._drop)
        try:
            self._client = await self._dask.Client(
                dask_address(self._url), asynchronous=True, timeout=_CONNECT, set_as_default=False
            )
            await self._client.wait_for_workers(1, timeout=_CONNECT)
            await self._look()
        except (OSError, TimeoutError, LinkError):
            await self.close()
            raise LinkError(
                f"compute: no Dask scheduler with workers answers at {self._url}"
            ) from None
        self._direct = await self._reaches_workers()

    async def _reaches_workers(self) -> bool:
        """Whether any worker answers this machine, and not only the scheduler."""
        for address in self._workers:
            with contextlib.suppress(OSError, TimeoutError):
                async with self._client.rpc(address) as worker:
                    await asyncio.wait_for(worker.identity(), _CONNECT)
                return True
        log.warning("no Dask worker answers this machine: all goes through the scheduler")
        return False

    async def _look(self) -> None:
        """See which workers there are, unless that was seen a moment ago.

        Raises:
            LinkError: the scheduler is gone.
        """
        if time.monotonic() < self._seen + _WATCH_SECONDS:
            return
        try:
            self._workers = dict(await self._client.scheduler.ncores(workers=None))
        except OSError:
            raise LinkError(f"compute: the Dask scheduler at {self._url} is gone") from None
        self._seen = time.monotonic()
        # More workers get their part. One that is lost keeps its own, for whoever comes instead:
        # other parts would be other rows, which all workers would have to be sent.
        self._parts = max(self._parts, len(self._workers))
        for _ in range(2 * (sum(self._workers.values()) - self.parallelism)):
            self._queue.release()
        self.parallelism = max(self.parallelism, sum(self._workers.values()))

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        if self._stays(computation):
            return await self._own.run(computation, on_done)
        parts, parted = None, getattr(computation, "parted", None)
        if parted and self._parts > 1:
            parts = await asyncio.to_thread(parted, self._parts)
        if parts is None:
            return await self._queued(computation, None, on_done)
        done = await asyncio.gather(
            *(self._queued(part, number, on_done) for number, part in enumerate(parts.computations))
        )
        return await asyncio.to_thread(parts.join, done)

    async def _queued(self, computation: Computation, part: int | None, on_done: OnDone) -> Any:
        """The result of ``computation``, over rows of ``part`` alone if that is given."""
        await self._queue.acquire(getattr(computation, "urgency", 0))
        try:
            result, span = await self._run(computation, part)
        finally:
            self._queue.release()
        on_done(span)
        return result

    async def _run(self, computation: Computation, part: int | None) -> tuple[Any, Span]:
        detached = getattr(computation, "detached", None)
        if detached:
            computation = await asyncio.to_thread(detached)
        work, wanted = await asyncio.to_thread(pickled, computation)
        for _ in range(_ATTEMPTS):
            worker = await self._chosen(wanted, part)
            self._running[worker] += 1
            try:
                return await self._watched(work, wanted, worker)
            except ArrayGone:
                self._arrays.forget(worker)
            except _WorkerLost:
                log.warning("Dask worker %s is lost; its part of the work is done again", worker)
                self._mistrusted[worker] = time.monotonic() + _MISTRUSTED
                self._arrays.forget(worker)
                if keeper := self._keepers.pop(worker, None):
                    keeper.cancel()
            finally:
                self._running[worker] -= 1
        raise FedmqError(
            f"{computation.label}: Dask workers die again and again; have they enough memory?"
        )

    async def _chosen(self, wanted: Sequence[Wanted], part: int | None) -> str:
        """The worker for a computation: the part's own, else an idle one that has most arrays.

        Raises:
            FedmqError: there are no workers any more.
        """
        deadline = time.monotonic() + _WITHOUT_WORKERS
        while not (there := await self._trusted()):
            if time.monotonic() > deadline:
                raise FedmqError(f"compute: the Dask cluster at {self._url} has no workers")
            await asyncio.sleep(_WATCH_SECONDS)
        if part is None:
            return min(
                there,
                key=lambda worker: (
                    self._running[worker] // self._workers[worker],
                    self._arrays.missing_bytes(wanted, worker),
                    worker,
                ),
            )
        others = Counter(home for number, home in self._homes.items() if number != part)
        home = self._homes.get(part)
        if home not in there or others[home] > min(others[worker] for worker in there):
            home = self._homes[part] = min(there, key=lambda worker: (others[worker], worker))
        return home

    async def _trusted(self) -> list[str]:
        """The workers that the scheduler knows and that answered when they were last asked."""
        await self._look()
        now = time.monotonic()
        return [worker for worker in self._workers if self._mistrusted.get(worker, 0) < now]

    async def _watched(
        self, work: bytes, wanted: Sequence[Wanted], worker: str
    ) -> tuple[Any, Span]:
        """What ``worker`` found; raises `_WorkerLost` if it, or its machine, has gone meanwhile."""
        running = asyncio.ensure_future(self._asked(work, wanted, worker))
        try:
            while not (await asyncio.wait([running], timeout=_WATCH_SECONDS))[0]:
                await self._look()
                if worker not in self._workers:
                    raise _WorkerLost
            result = running.result()
        finally:
            running.cancel()
        found = await asyncio.to_thread(opened, result)
        self._arrays.keep(result, worker)
        return found, result.span

    async def _asked(self, work: bytes, wanted: Sequence[Wanted], worker: str) -> Result:
        async with self._arrays.order(work, wanted, worker) as order:
            answer = await self._answer(worker, "run", order=order)
        if answer["status"] != "OK":
            raise answer["exception"]  # of the computation: the worker has its arrays
        found: Result = answer["result"]
        return found

    async def _drop(self, tokens: Sequence[Token], worker: str) -> None:
        if worker in self._keepers:
            with contextlib.suppress(_WorkerLost):
                await self._answer(worker, "drop", tokens=tokens)

    async def _answer(self, worker: str, method: str, **arguments: Any) -> dict[str, Any]:
        """What a method of the worker's keeper returns or raises, as Dask says it.

        Raises:
            _WorkerLost: the worker does not answer.
        """
        if worker not in self._keepers:
            self._keepers[worker] = asyncio.ensure_future(self._with_keeper(worker))
        serialized = self._dask.protocol.to_serialize
        try:
            keeper = await asyncio.shield(self._keepers[worker])
            message = {
                "actor": keeper.key,
                "function": method,
                "kwargs": {name: serialized(value) for name, value in arguments.items()},
            }
            if self._direct:
                answer = await self._client.rpc(worker).actor_execute(**message)
            else:
                asked = {"op": "actor_execute", **message}
                answer = await self._client.scheduler.proxy(worker=worker, msg=asked)
        except (OSError, TimeoutError, KeyError):  # KeyError: the worker began anew
            raise _WorkerLost from None
        answered: dict[str, Any] = answer
        return answered

    async def _with_keeper(self, worker: str) -> Any:
        """The future of a new keeper on ``worker``, which never comes if that is gone."""
        made = self._client.submit(
            Keeper, actor=True, workers=[worker], pure=False, key=f"fedmq-{uuid4().hex}"
        )
        await made
        return made

    async def close(self) -> None:
        client, self._client = self._client, None
        await self._own.close()
        self._keepers.clear()
        if client is not None:
            self._arrays.clear()
            await client.close()


class _WorkerLost(Exception):
    """A worker does not answer."""
