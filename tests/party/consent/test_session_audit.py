"""A slow disk holds up the answer, and nobody else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.store.documents import Deployments
from tests.party.consent.test_policy_consent import HEADER, consent, terms
from tests.party.daemons_in_memory import DaemonsInMemory

SLOW = 0.3


class LoopThread:
    """Notes which of some blocking calls were made on the event loop's own thread."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.elsewhere: list[str] = []
        self.blocked: list[str] = []

    def watch(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        done = getattr(owner, name)

        def watched(*args: Any, **more: Any) -> Any:
            on_loop = threading.get_ident() == self.loop
            (self.blocked if on_loop else self.elsewhere).append(f"{owner.__name__}.{name}")
            return done(*args, **more)

        patch.setattr(owner, name, watched)


async def test_no_record_is_written_on_the_event_loop(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = LoopThread()
    for owner, name in ((AuditLog, "record"), (AuditLog, "record_all"), (AuditLog, "check")):
        threads.watch(monkeypatch, owner, name)
    threads.watch(monkeypatch, Deployments, "put")

    await federation.train("m", 1)
    await federation.ask("bank", "align", job={"name": "people"})
    await federation.ask("bank", "activate", model="m", name="production")
    await federation.ask("bank", "predict", model="m", ids=["p01", "p02"])

    assert not threads.blocked
    assert {"AuditLog.record", "AuditLog.check", "Deployments.put"} <= set(threads.elsewhere)


async def test_a_session_is_accepted_once_its_consent_is_on_the_disk(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(federation.folder / "telco" / "state")
    events: list[list[str]] = []

    async def hold(sender: str, _: str, message: str) -> bool:
        if sender == "telco" and "session accept" in message:
            seen = [entry["event"] for entry in log.entries()]
            events.append([event for event in seen if event != "policy holds"])
        return False

    federation.hold = hold
    fsync = os.fsync

    def slow(file: int) -> None:
        time.sleep(SLOW / 10)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    await federation.train("m", 1)
    assert events == [["asked", "agreed", "foretold"]]


async def test_the_loop_runs_on_while_a_slow_disk_takes_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = consent(tmp_path)
    record = party.audit.log.record

    def slow(*args: Any, **more: Any) -> None:
        time.sleep(SLOW)
        record(*args, **more)

    monkeypatch.setattr(party.audit.log, "record", slow)
    asking = asyncio.ensure_future(party.training(HEADER, terms()))
    turns = 0
    while not asking.done():
        await asyncio.sleep(SLOW / 30)
        turns += 1
    assert (await asking).name == "paillier"
    assert turns > 5


async def test_ends_of_sessions_are_written_before_the_daemon_stops(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("m", 1)
    await federation.stop("telco")
    log = AuditLog(federation.folder / "telco" / "state")
    ended = [entry for entry in log.entries() if entry["event"] == "ended"]
    assert [entry["outcome"] for entry in ended] == ["finished"]
    assert log.verified()[0] == 5  # with the policy that holds


async def test_records_of_many_threads_stand_one_after_the_other(tmp_path: Path) -> None:
    party = consent(tmp_path)
    await asyncio.gather(*(party.training(HEADER, terms()) for _ in range(20)))
    assert party.audit.log.verified()[0] == 40
