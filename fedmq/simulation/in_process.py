"""One session of all its parties in this process, over a broker in memory or a real one."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedmq.errors import ConfigError
from fedmq.messages.envelope import Header
from fedmq.party.compute.pool import ComputePool
from fedmq.party.identity.sealer import HandshakeSender, Sealer
from fedmq.party.sessions.observe import Observer, Recorder, TimelineObserver
from fedmq.party.sessions.runner import Inbox, SessionLane, SessionRunner
from fedmq.party.store.journal import NULL_JOURNAL, Journal
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Timeline
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.transport.link import Lane, Link
from fedmq.transport.memory import MemoryBroker, MemoryLink
from fedmq.transport.rabbitmq.link import RabbitMQLink, TemporaryTopology

__all__ = ["MEMORY", "in_own_loop", "run_machines"]

MEMORY = "memory://"

_RETRY = RetryPolicy(resends=8)  # a party in this process is never restarted

_END_SECONDS = 5.0

T = TypeVar("T")


class _Told(Observer):
    """Counts sent messages in ``traffic``, and calls ``on_report`` after each tree."""

    def __init__(self, traffic: Traffic, on_report: Callable[[Report], None] | None) -> None:
        self._traffic = traffic
        self._on_report = on_report

    def leaving(self, header: Header, size: int) -> None:
        self._traffic.count(header, size)

    def reported(self, report: Report) -> None:
        if self._on_report is not None:
            self._on_report(report)


async def run_machines(
    machines: Mapping[str, Machine],
    pool: ComputePool | Mapping[str, ComputePool],
    broker: str,
    lane: Lane,
    traffic: Traffic,
    on_report: Callable[[Report], None] = lambda _: None,
    trace: Timeline | None = None,
    sealers: Mapping[str, Sealer] | None = None,
    record: Path | None = None,
    journals: Mapping[str, Journal] | None = None,
) -> list[Any]:
    """Run one session of all ``machines``, the first of which begins; their results in order.

    ``pool``: one for all, which is closed at the end, or each party's own, which stay open.
    Without ``sealers``, one for each party, messages travel in the clear. ``record``: a folder for
    a recording of each party. ``journals`` save each party's progress; without them nothing is
    saved.
    """
    federation, session = f"sim-{secrets.token_hex(6)}", secrets.token_hex(8)
    first = next(iter(machines))
    runners: list[SessionRunner] = []
    async with AsyncExitStack() as stack:
        if isinstance(pool, ComputePool):
            stack.push_async_callback(pool.close)
            pools: Mapping[str, ComputePool] = dict.fromkeys(machines, pool)
        else:
            pools = pool
        links = await _opened_links(stack, broker, federation, tuple(machines))
        for party, machine in machines.items():
            if sealers:
                sealers[party].connect_by(HandshakeSender(links[party]).send)
                stack.push_async_callback(sealers[party].close)
            inbox = Inbox(federation, party, sealer=sealers[party] if sealers else None)
            await links[party].open(inbox.on_delivery)
            stack.push_async_callback(links[party].close)
            address = Address(federation, session, 1, party)
            mailbox = Mailbox(address, machine.peers, _RETRY, np.random.default_rng())
            observers: list[Observer] = [_Told(traffic, on_report if party == first else None)]
            if trace is not None:
                observers.append(TimelineObserver(party, trace))
            if record is not None:
                path = record / f"{party}.recording"
                observers.append(stack.enter_context(Recorder(path, party)))
            runner = SessionRunner(
                Session(machine, mailbox),
                publish=SessionLane(links[party], lane).publish,
                pool=pools[party],
                sealer=sealers[party] if sealers else None,
                journal=(journals or {}).get(party, NULL_JOURNAL),
                observers=observers,
            )
            stack.callback(runner.stop)
            runners.append(runner)
            inbox.add(runner)
        runners[0].start()
        outcomes = [runner.outcome for runner in runners]
        for outcome in outcomes:  # else asyncio prints the error of each party once more
            outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait(outcomes, return_when=asyncio.FIRST_EXCEPTION)
        # The first party's error is the most specific: the others learned of it from a message.
        failed = [outcome for outcome in outcomes if outcome.done() and outcome.exception()]
        if failed:
            await asyncio.wait(outcomes[:1], timeout=10)
            raise (outcomes[0] if outcomes[0].done() else failed[0]).exception() or AssertionError
        return [outcome.result() for outcome in outcomes]


async def _opened_links(
    stack: AsyncExitStack, broker: str, federation: str, parties: Sequence[str]
) -> dict[str, Link]:
    if broker == MEMORY:
        memory = MemoryBroker()
        for party in parties:
            memory.declare(party)
        return {party: MemoryLink(memory, party) for party in parties}
    if not broker.startswith(("amqp://", "amqps://")):
        raise ConfigError(f"broker: {broker!r} is unknown; use {MEMORY} or an amqp:// URL")
    await stack.enter_async_context(TemporaryTopology(broker, federation, parties))
    return {party: RabbitMQLink(broker, federation, party) for party in parties}


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on an event loop in its own thread, because a loop may already run here."""
    outcome: list[T] = []
    failure: list[BaseException] = []
    cancels: list[Callable[[], object]] = []

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        cancels.append(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        return await work

    def run() -> None:
        try:
            outcome.append(asyncio.run(watched()))
        except BaseException as error:  # it is raised again below, in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="fedmq-simulation", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # Ctrl-C: the work must not outlive its caller
        with suppress(RuntimeError):  # it ended meanwhile
            for cancel in cancels:
                cancel()
        thread.join(_END_SECONDS)
        raise
    if failure:
        raise failure[0]
    return outcome[0]
