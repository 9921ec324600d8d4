"""Nothing leaves before what preceded it is on the disk, and nothing at all where it cannot be."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.errors import Aborted, Refused
from fedmq.messages import training
from fedmq.messages.codec import decode
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.store.journal import NullJournal
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.events import Transmit
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.states import PassiveTrainingState
from fedmq.protocol.training.terms import ActiveTable


class RefusingDisk(NullJournal):
    def __init__(self) -> None:
        self.let = asyncio.Event()

    async def begin(self) -> None:
        await self.let.wait()
        raise Refused("it cannot be written")


async def test_what_waits_for_a_write_that_is_refused_never_leaves() -> None:
    disk, pool = RefusingDisk(), ThreadPool()
    left: asyncio.Queue[str] = asyncio.Queue()

    async def publish(_: str, body: bytes, *, message_id: str, in_bulk: bool = False) -> None:
        left.put_nowait(decode(body).header.kind)

    column = np.arange(4, dtype=np.float32)
    table = ActiveTable(column[:, None], ("a",), column % 2, np.zeros(4, bool), "the same ids")
    machine = ActiveTraining("m", "bank", ("telco",), table, TrainParams(), Plain())
    mailbox = Mailbox(
        Address("demo", "0123", 1, "bank"), ("telco",), RetryPolicy(), np.random.default_rng(0)
    )
    runner = SessionRunner(Session(machine, mailbox), publish=publish, pool=pool, journal=disk)
    runner.start()
    for _ in range(1000):
        if not mailbox.idle:  # it opens the session
            break
        await asyncio.sleep(0.001)
    disk.let.set()

    # In its place something does, or what follows would never be next.
    assert {await left.get(), await left.get()} == {"probe", "abort"}
    with pytest.raises(Aborted, match="it cannot be written"):
        await runner.outcome
    runner.stop()
    await pool.close()
    assert left.empty()


async def test_a_runner_that_was_stopped_takes_nothing_more() -> None:
    """As SIGTERM stops one: what still comes is for the daemon that goes on with the session."""
    pool = ThreadPool()
    left: list[str] = []

    async def publish(_: str, body: bytes, *, message_id: str, in_bulk: bool = False) -> None:
        left.append(decode(body).header.kind)

    failed: list[str] = []

    class Disk(NullJournal):
        async def fail(self, reason: str) -> None:
            failed.append(reason)

    machine = PassiveTraining("telco", "bank", Given(None), lambda _: Plain(), 1)
    address = Address("demo", "0123", 1, "telco")
    mailbox = Mailbox(address, ("bank",), RetryPolicy(), np.random.default_rng(0))
    runner = SessionRunner(Session(machine, mailbox), publish=publish, pool=pool, journal=Disk())
    peer = Mailbox(
        Address("demo", "0123", 1, "bank"), ("telco",), RetryPolicy(), np.random.default_rng(0)
    )
    late, *_ = [
        effect.envelope
        for effect in peer.send("telco", training.TreeStarted(tree=0, pieces=0))
        if isinstance(effect, Transmit)
    ]
    runner.stop()
    runner.deliver(late)  # out of place: it would end a session that runs
    runner.cancel("a timer, or a write that was refused")
    await asyncio.sleep(0.05)
    await pool.close()

    assert runner.outcome.cancelled()
    assert machine.state is PassiveTrainingState.READY
    assert (left, failed) == ([], [])
