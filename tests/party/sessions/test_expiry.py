"""A training that its active party has left holds neither sums nor room for ever."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fedmq.boosting.model.tree import LookupTable
from fedmq.party.store import transcripts
from fedmq.party.store.journal import AnsweredSumsStore, SessionStore, StoredSession
from fedmq.protocol.session_records import PassiveTree
from tests.party.daemons_in_memory import DaemonsInMemory
from tests.party.sessions.recovery import RestartedParty

DAY = 24 * 3600.0


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    async with DaemonsInMemory(tmp_path, monkeypatch, "most_equations_per_row = 700\n") as daemons:
        yield daemons


def store_of(federation: DaemonsInMemory, party: str) -> SessionStore:
    return federation.daemons[party].parts.context.session_store


async def reserved(federation: DaemonsInMemory, party: str) -> float:
    trainings = await AnsweredSumsStore(store_of(federation, party).database).trainings()
    return sum(training.reserved for training in trainings)


async def days_later(federation: DaemonsInMemory, party: str, days: float) -> None:
    """Let ``party`` look at its trainings when so many days have passed."""
    expiry = federation.daemons[party].parts.expiry
    expiry._clock = lambda: time.monotonic() + days * DAY
    await expiry.give_up()


async def abandoned(federation: DaemonsInMemory) -> str:
    """A training that the bank has left in the middle: its session."""
    asking = asyncio.create_task(federation.train("m", 600))
    session = await federation.session("telco")
    await federation.until(lambda: store_of(federation, "telco").checkpoints(session))
    asking.cancel()
    await federation.stop("bank")
    return session


@pytest.mark.parametrize("restarted", [False, True], ids=["attempt waits", "none waits"])
async def test_what_an_abandoned_training_reserved_is_free_again(
    restarted: bool, federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "_KEPT_SESSIONS", 1)
    session = await abandoned(federation)
    if restarted:
        await federation.stop("telco")
        await federation.start("telco")
    folder = transcripts.session_folder(federation.folder / "telco" / "state", session)
    later = folder.with_name("later")
    later.mkdir()
    os.utime(later, (time.time() + DAY, time.time() + DAY))
    held = await reserved(federation, "telco")
    await days_later(federation, "telco", 29)
    assert await reserved(federation, "telco") == held > 500
    assert folder.is_dir()

    await days_later(federation, "telco", 31)

    async def given_back() -> Any:
        return not await reserved(federation, "telco") and not folder.exists()

    await federation.until(given_back)
    ended = await store_of(federation, "telco").find(session)
    assert ended is not None
    assert (ended.state, "made no progress for 30 days" in ended.reason) == ("failed", True)

    # The active party is told once it is back, and a new training has all the room.
    await federation.start("bank")

    async def heard() -> Any:
        stored = await store_of(federation, "bank").find(session)
        return stored is not None and stored.state == "failed" and stored.reason

    assert "made no progress for 30 days" in await federation.until(heard)
    await federation.train("another", 2)


async def test_a_clock_that_steps_by_a_month_ends_no_training(federation: DaemonsInMemory) -> None:
    session = await abandoned(federation)
    store, expiry = store_of(federation, "telco"), federation.daemons["telco"].parts.expiry
    store._clock = lambda: time.time() + 31 * DAY
    await expiry.give_up()
    store._clock = time.time
    await expiry.give_up()
    kept = await store.find(session)
    assert kept is not None
    assert kept.state == "running"


async def test_an_active_party_waits_for_as_long_as_it_likes(federation: DaemonsInMemory) -> None:
    session = await abandoned(federation)
    await federation.stop("telco")
    await federation.start("bank")
    await days_later(federation, "bank", 10_000)
    kept = await store_of(federation, "bank").find(session)
    assert kept is not None
    assert kept.state == "running"


async def test_a_training_that_grows_trees_is_not_idle_and_days_count_through_restarts(
    tmp_path: Path,
) -> None:
    party = RestartedParty(tmp_path, "telco")
    await party.database.open()
    store = SessionStore(party.database)
    await store.begin(StoredSession("0123", "m", 1))
    await store.live_through(0.6 * DAY)
    assert not await store.unchanged(DAY)
    await party.database.close()
    party = RestartedParty(tmp_path, "telco")
    await party.database.open()
    store = SessionStore(party.database)
    await store.live_through(0.6 * DAY)
    assert [session.id for session in await store.unchanged(DAY)] == ["0123"]
    await store.save("0123", PassiveTree(0, LookupTable.empty(("x",))))
    assert not await store.unchanged(DAY)
    await store.live_through(2 * DAY)
    await store.begin(StoredSession("0123", "m", 2))
    assert not await store.unchanged(DAY)
    await store.live_through(2 * DAY)
    await store.end("0123", "finished")
    await store.live_through(2 * DAY)
    assert not await store.unchanged(DAY)
    await party.database.close()
