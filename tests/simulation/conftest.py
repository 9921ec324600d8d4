"""Threads for tests that look at models alone: processes take a second to start."""

from __future__ import annotations

import pytest

from fedmq.party.compute.pool import ThreadPool
from fedmq.party.compute.processes import ProcessPool
from fedmq.simulation import simulate


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encryption and encrypted sums are computed by threads of this process."""
    monkeypatch.setattr(simulate, "ProcessPool", lambda _: ThreadPool())


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation starts its processes and ends them, as outside of the tests."""
    monkeypatch.setattr(simulate, "ProcessPool", ProcessPool)
