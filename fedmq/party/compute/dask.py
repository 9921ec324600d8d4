"""A Dask cluster for computations of a party whose rows outgrow one machine.

The cluster belongs to the party: its private key travels to the workers. Workers should have one
thread each (``dask worker --nthreads 1 --nworkers auto``): big integers hold Python's lock.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import ConfigError, FedmqError, LinkError
from fedmq.party.compute.pool import ComputePool, OnDone, run_pickled
from fedmq.party.configuration.party import dask_address

__all__ = ["DaskPool"]

_CONNECT = 10.0  # seconds


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

    async def start(self) -> None:
        """Connect, and count the workers.

        Raises:
            LinkError: no scheduler answers, or it has no workers.
        """
        try:
            self._client = await self._dask.Client(
                dask_address(self._url), asynchronous=True, timeout=_CONNECT, set_as_default=False
            )
            await self._client.wait_for_workers(1, timeout=_CONNECT)
        except (OSError, TimeoutError):
            await self.close()
            raise LinkError(
                f"compute: no Dask scheduler with workers answers at {self._url}"
            ) from None
        self.parallelism = sum((await self._client.nthreads()).values())

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        detached = getattr(computation, "detached", None)
        work = await asyncio.to_thread(
            pickle.dumps, detached() if detached else computation, pickle.HIGHEST_PROTOCOL
        )
        future = self._client.submit(
            run_pickled,
            work,
            pure=False,
            priority=getattr(computation, "urgency", 0),
            retries=1,
        )
        try:
            result, span = await future
        except self._dask.KilledWorker:
            raise FedmqError(
                f"{computation.label}: Dask workers die again and again; have they enough memory?"
            ) from None
        finally:
            future.release()
        on_done(span)
        return result

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
