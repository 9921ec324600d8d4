"""A session over all its attempts."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import Aborted, FedmqError
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.sessions.sessions import AttemptLoop, OnChange, RunningSession, Status
from fedmq.party.store.journal import Journal
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.protocol.session_records import Record
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.terms import ActiveTable


class SlowDisk(Journal):
    """Keeps an end only when it is let."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def begin(self) -> None: ...

    async def write(self, record: Record) -> None: ...

    async def finish(self, result: Any) -> None: ...

    async def fail(self, reason: str, own_reason: str) -> None:
        self.asked.set()
        await self.let.wait()


async def nowhere(
    recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
) -> None: ...


async def test_whoever_waits_is_told_of_a_fault_of_ours() -> None:
    async def opened(_: int, __: OnChange) -> RunningSession:
        raise OSError("the disk is gone")

    attempts = AttemptLoop(opened)
    await attempts.run()

    assert attempts.ended.done()
    with pytest.raises(FedmqError, match="internal error: OSError"):
        await attempts.result


async def test_a_failure_is_told_once_it_is_written_down_so_that_its_name_is_free() -> None:
    journal, pool = SlowDisk(), ThreadPool()
    column = np.arange(4, dtype=np.float32)
    table = ActiveTable(column[:, None], ("a",), column % 2, np.zeros(4, bool), "the same ids")
    machine = ActiveTraining("m", "bank", (), table, TrainParams(), Plain())
    mailbox = Mailbox(
        Address("demo", "0123", 1, "bank"), (), RetryPolicy(), np.random.default_rng(0)
    )
    runner = SessionRunner(Session(machine, mailbox), publish=nowhere, pool=pool, journal=journal)

    async def opened(_: int, __: OnChange) -> RunningSession:
        return RunningSession("0123", "training", "m", runner, Status("0123", "bank"))

    attempts = AttemptLoop(opened, everywhere=True)
    running = asyncio.create_task(attempts.run())
    await asyncio.sleep(0)
    runner.cancel("enough")
    await journal.asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not attempts.result.done()

    journal.let.set()
    await running
    with pytest.raises(Aborted, match="enough"):
        await attempts.result
    await pool.close()
