"""Worker processes that the simulations of a test run hand on, for to start one takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import loky
import pytest

from fedmq.party.compute.processes import ProcessPool
from fedmq.simulation import estimate, simulate

_idle: dict[int, loky.ProcessPoolExecutor] = {}
"""Processes that no pool has, by their number."""


class KeptProcesses(ProcessPool):
    """A pool that takes the processes of an earlier one, and leaves its own behind."""

    def _started(self) -> loky.ProcessPoolExecutor:
        return _idle.pop(self.parallelism, None) or super()._started()

    async def close(self) -> None:
        if self.parallelism in _idle:
            await super().close()
        else:
            _idle[self.parallelism] = self._executor


@contextmanager
def kept_processes() -> Iterator[None]:
    """Simulations and estimates hand on their processes; the last are ended here."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (simulate, estimate):
            patch.setattr(module, "ProcessPool", KeptProcesses)
        yield
    for executor in _idle.values():
        executor.shutdown(wait=True, kill_workers=True)
    _idle.clear()
