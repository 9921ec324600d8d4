"""Owners who ask, and parties that come back, between two steps of a daemon."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import ConfigError, DaemonError
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.data.loading import LoadActiveTable
from fedmq.party.operations.control import socket_path
from fedmq.party.store.documents import Deployments
from fedmq.party.store.journal import SessionStore
from fedmq.protocol.session_records import Checkpoint
from tests.party.daemons_in_memory import DaemonsInMemory

LONG = 400  # trees: more than a test waits for


class SlowStore:
    """Reading the saved trees of a session at ``party`` waits for ``let``."""

    def __init__(self, patch: pytest.MonkeyPatch, party: str) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        read = SessionStore.checkpoints

        async def checkpoints(store: SessionStore, session: str) -> list[Checkpoint]:
            found = await read(store, session)
            if f"/{party}/" in str(store.database._path):
                self.asked.set()
                await self.let.wait()
            return found

        patch.setattr(SessionStore, "checkpoints", checkpoints)


async def state_of(federation: DaemonsInMemory, party: str, session: str) -> str:
    stored = await federation.daemons[party].parts.context.session_store.find(session)
    return stored.state if stored is not None else ""


async def begun(federation: DaemonsInMemory) -> tuple[str, asyncio.Task[Any]]:
    """A long training, after its first trees."""
    asking = asyncio.create_task(federation.train("m", LONG))
    return await federation.session(), asking


async def asked(federation: DaemonsInMemory, **request: Any) -> asyncio.StreamWriter:
    """An owner who has asked the bank; to close it is Ctrl-C."""
    path = socket_path(federation.folder / "bank" / "state")
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(json.dumps(request).encode() + b"\n")
    await writer.drain()
    return writer


async def test_what_is_cancelled_while_it_is_joined_again_does_not_go_on(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, asking = await begun(federation)
    asking.cancel()
    await federation.stop("bank", "telco")
    store = SlowStore(monkeypatch, "telco")
    await federation.start("telco", "bank")
    await store.asked.wait()

    await federation.ask("telco", "cancel", session=session)
    store.let.set()

    async def over() -> bool:
        return await state_of(federation, "bank", session) == "failed"

    await federation.until(over)
    assert await state_of(federation, "telco", session) == "failed"
    telco = federation.daemons["telco"].parts.context
    assert await telco.session_store.checkpoints(session) == []
    assert not any(federation.models().values())


async def test_a_pause_between_two_attempts_holds(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, asking = await begun(federation)
    store = SlowStore(monkeypatch, "bank")
    await federation.stop("telco")
    await federation.start("telco")
    await store.asked.wait()
    await federation.ask("bank", "pause", session=session)
    store.let.set()

    async def rests() -> bool:
        sessions = (await federation.ask("bank", "status"))["sessions"]
        return [session["state"] for session in sessions] == ["paused"]

    await federation.until(rests)
    await federation.ask("bank", "cancel", session=session)
    with pytest.raises(DaemonError, match="bank cancelled the session"):
        await asking


async def test_a_party_that_gives_up_before_it_has_its_share_is_told_of(
    federation: DaemonsInMemory,
) -> None:
    held, let = asyncio.Event(), asyncio.Event()

    async def hold(_: str, recipient: str, message: str) -> bool:
        if recipient == "telco" and "session finished" in message:
            held.set()
            await let.wait()
        return False

    federation.hold = hold
    asking = asyncio.create_task(federation.train("m", 2))
    await held.wait()
    session = await federation.session("telco")
    await federation.ask("telco", "cancel", session=session)
    let.set()
    with pytest.raises(DaemonError, match="telco gave up: telco cancelled the session"):
        await asking
    assert federation.models()["telco"] == []


async def test_a_party_that_never_confirms_its_share_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = "[retry]\nfirst = 0.05\nceiling = 0.05\nresends = 3\n"
    federation = DaemonsInMemory(tmp_path, monkeypatch, impatient)
    await federation.start()

    async def lose(_: str, recipient: str, message: str) -> bool:
        return recipient == "telco" and "session finished" in message

    federation.hold = lose
    with pytest.raises(DaemonError, match="telco did not confirm the end"):
        await federation.train("m", 2)
    assert federation.models() == {"bank": ["m"], "telco": [], "retail": ["m"]}
    await federation.stop()


async def test_who_goes_away_before_a_training_begins_has_one_nevertheless(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, let = asyncio.Event(), asyncio.Event()
    pool = federation.daemons["bank"].parts.context.pool
    run = pool.run

    async def slowly(computation: Any, *more: Any) -> Any:
        if isinstance(computation, LoadActiveTable):
            reading.set()
            await let.wait()
        return await run(computation, *more)

    monkeypatch.setattr(pool, "run", slowly)
    job = TrainingJob(model="m", engine="plain").model_dump(mode="json")
    writer = await asked(federation, do="train", job=job)
    await reading.wait()
    writer.close()  # Ctrl-C
    await writer.wait_closed()
    let.set()

    async def kept() -> bool:
        return all(found == ["m"] for found in federation.models().values())

    await federation.until(kept)


async def test_an_interrupted_session_that_is_given_up_leaves_nothing_behind(
    federation: DaemonsInMemory,
) -> None:
    session, asking = await begun(federation)
    asking.cancel()
    await federation.stop("bank")
    federation.write_table("bank", seed=2)
    await federation.start("bank")

    async def failed() -> bool:
        states = [await state_of(federation, party, session) for party in ("telco", "retail")]
        return states == ["failed", "failed"]

    await federation.until(failed)
    for party in ("telco", "retail"):
        counters = federation.daemons[party].parts.inbox.counters
        assert counters.sessions_ended["training", "Aborted"] == 1


async def test_an_activation_is_told_once_every_party_keeps_it(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await federation.train("m", 2)
    full = True
    put = Deployments.put

    def refuse(deployments: Deployments, name: str, deployment: Any) -> None:
        if full and "telco" in str(deployments.path):
            raise ConfigError("no space left on device")
        put(deployments, name, deployment)

    monkeypatch.setattr(Deployments, "put", refuse)
    asking = asyncio.create_task(federation.ask("bank", "activate", model="m", name="production"))
    done, _ = await asyncio.wait([asking], timeout=1)
    assert not done
    full = False
    await asking
    assert (await federation.ask("telco", "serving"))["models"]


class Held:
    """Holds back messages of one kind to telco until ``let``."""

    def __init__(self, federation: DaemonsInMemory, kind: str) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

        async def hold(_: str, recipient: str, message: str) -> bool:
            if recipient == "telco" and kind in message:
                self.asked.set()
                await self.let.wait()
            return False

        federation.hold = hold


async def test_an_activation_whose_asker_has_gone_is_finished_at_all_parties(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("m", 2)
    held = Held(federation, "model switch")
    writer = await asked(federation, do="activate", model="m")
    await held.asked.wait()
    writer.close()
    await writer.wait_closed()
    with pytest.raises(DaemonError, match="another activation is under way"):
        await federation.ask("bank", "activate", model="m")
    held.let.set()

    async def served() -> bool:
        return "production" in (await federation.ask("bank", "serving"))["models"]

    await federation.until(served)


async def test_rows_that_are_replaced_during_an_activation_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch, "[online]\nmax_age = 0.2\n")
    await federation.start()
    await federation.train("m", 2)
    held = Held(federation, "model deploy")
    asking = asyncio.create_task(federation.ask("bank", "activate", model="m"))
    await held.asked.wait()
    federation.write_table("bank", seed=5)
    await asyncio.sleep(0.5)  # more than max_age
    held.let.set()
    await asking
    bank = federation.daemons["bank"].parts.online

    async def fresh() -> bool:
        return bank.loader.is_fresh("m")

    await federation.until(fresh)
    await federation.stop()


async def test_an_alignment_that_is_being_made_is_not_made_twice(
    federation: DaemonsInMemory,
) -> None:
    held = Held(federation, "alignment open")
    job = {"name": "people"}
    asking = asyncio.create_task(federation.ask("bank", "align", job=job))
    await held.asked.wait()
    with pytest.raises(DaemonError, match="alignment 'people' is being made already"):
        await federation.ask("bank", "align", job=job)
    held.let.set()
    assert (await asking)["rows"] == (await federation.ask("bank", "align", job=job))["rows"]
