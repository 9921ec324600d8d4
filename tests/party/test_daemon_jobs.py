"""A training that was asked for is on disk before anything is read, and is asked for once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError, DataError, FedmqError, Refused
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.data.loading import LoadActiveTable
from fedmq.party.operations.control import send_request
from fedmq.party.sessions.sessions import attempt_after_restart
from fedmq.workbench.daemon import LocalDaemon
from fedmq.workbench.run import follow_to_the_end
from tests.party.daemons_in_memory import DaemonsInMemory

Run = Callable[..., Awaitable[Any]]


def job(trees: int = 3, **changes: Any) -> dict[str, Any]:
    params = TrainParams(num_boost_round=trees, max_depth=2, max_bin=8)
    wanted = TrainingJob.model_validate({"model": "m", "engine": "plain", "params": params})
    return wanted.model_copy(update=changes).model_dump(mode="json")


class Opened:
    """A training that is asked for, and its session's id as soon as the owner has it."""

    def __init__(self, federation: DaemonsInMemory, wanted: dict[str, Any]) -> None:
        self.session: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.result = asyncio.create_task(self._watch(federation.folder / "bank" / "state", wanted))

    async def _watch(self, state: Path, wanted: dict[str, Any]) -> Any:
        async for event in send_request(state, {"do": "train", "job": wanted}):
            if event["event"] == "opened":
                self.session.set_result(event["session"])
        return event["result"]


def hold_tables(federation: DaemonsInMemory, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """The bank's table is read once the event is set."""
    let = asyncio.Event()
    pool = federation.daemons["bank"].parts.context.pool
    run = pool.run

    async def slowly(computation: Any, *more: Any) -> Any:
        if isinstance(computation, LoadActiveTable):
            await let.wait()
        return await run(computation, *more)

    patch.setattr(pool, "run", slowly)
    return let


async def crash(federation: DaemonsInMemory) -> None:
    """The bank's daemon stops, and hangs up on whoever waits, as a process that ends does."""
    await federation.stop("bank")
    serving = [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "ControlServer._serve"
    ]
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


async def stored_state(federation: DaemonsInMemory, session: str) -> str:
    stored = await federation.daemons["bank"].parts.context.session_store.find(session)
    return stored.state if stored is not None else ""


async def test_the_owner_has_the_id_before_a_table_is_read_and_a_crash_loses_nothing(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_tables(federation, monkeypatch)
    opened = Opened(federation, job())
    async with asyncio.timeout(30):
        session = await opened.session
    assert await stored_state(federation, session) == "running"

    await crash(federation)
    with pytest.raises(DaemonError):
        await opened.result
    await federation.start("bank")

    async def finished() -> bool:
        return await stored_state(federation, session) == "finished"

    await federation.until(finished)
    assert federation.models()["bank"] == ["m"]


async def test_the_same_job_asked_twice_is_one_training(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    let = hold_tables(federation, monkeypatch)
    first = Opened(federation, job())
    session = await first.session
    second = Opened(federation, job())
    assert await second.session == session
    other = Opened(federation, job(trees=4))
    with pytest.raises(DaemonError, match="is already in training by another job") as refused:
        await other.result
    assert refused.value.exit_code == ConfigError.exit_code
    let.set()
    assert (await first.result)["model"] == (await second.result)["model"] == "m"
    with pytest.raises(DaemonError, match="'m' exists already"):
        await Opened(federation, job()).result


async def test_a_table_that_cannot_be_read_ends_the_session_that_was_stored_for_it(
    federation: DaemonsInMemory,
) -> None:
    (federation.folder / "bank" / "data.csv").write_text("id,label\n")
    opened = Opened(federation, job())
    session = await opened.session
    with pytest.raises(DaemonError) as failed:
        await opened.result
    assert failed.value.exit_code == DataError.exit_code
    assert await stored_state(federation, session) == "failed"

    federation.write_table("bank")
    assert (await Opened(federation, job()).result)["model"] == "m"


async def test_the_command_watches_on_when_the_daemon_is_back(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_tables(federation, monkeypatch)
    opened: list[str] = []

    def show(event: Any) -> None:
        if event["event"] == "opened":
            opened.append(event["session"])

    state = federation.folder / "bank" / "state"
    request = {"do": "train", "job": job(), "trace": False}
    watching = asyncio.create_task(
        asyncio.to_thread(follow_to_the_end, LocalDaemon(state), request, show, opened)
    )

    async def has_opened() -> list[str]:
        return opened

    await federation.until(has_opened)
    await crash(federation)
    await federation.start("bank")
    async with asyncio.timeout(60):
        result = await watching
    assert (result["model"], result["trees"]) == ("m", 3)


async def test_a_daemon_with_an_old_copy_of_its_state_uses_no_number_again(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    asking = Opened(federation, job(trees=400))
    session = await asking.session
    await federation.session()
    used: list[int] = []

    def attempt() -> int:
        running = federation.daemons["bank"].parts.context.sessions.running[session]
        return running.runner.session.mailbox.address.attempt

    async def runs() -> bool:
        return session in federation.daemons["bank"].parts.context.sessions.running

    used.append(attempt())
    await crash(federation)
    with pytest.raises(FedmqError):
        await asking.result
    copy = tmp_path / "copy"
    shutil.copytree(federation.folder / "bank" / "state", copy)
    for _ in range(3):
        await federation.start("bank")
        await federation.until(runs)
        used.append(attempt())
        await federation.stop("bank")
        shutil.rmtree(federation.folder / "bank" / "state")
        shutil.copytree(copy, federation.folder / "bank" / "state")
    assert used == sorted(set(used))
    await federation.start("bank")


@pytest.mark.parametrize(
    ("last", "elapsed", "number"),
    [(1, 0.0, 2), (7, -5.0, 8), (1, 10.0, 401), (500, 10.0, 501)],
)
def test_numbers_after_a_restart_follow_the_clock(last: int, elapsed: float, number: int) -> None:
    assert attempt_after_restart(last, elapsed) == number


async def test_a_session_that_ended_shows_when_and_why(federation: DaemonsInMemory) -> None:
    with pytest.raises(DaemonError, match="does not take part with engine 'lattice'"):
        await federation.ask("bank", "train", job=job(engine="lattice"))
    result = await federation.ask("bank", "train", job=job())
    for party in ("bank", "telco"):
        refused, finished = (await federation.ask(party, "status"))["ended"]
        assert "does not take part with engine 'lattice'" in refused["reason"]
        assert (finished["model"], finished["reason"]) == (result["model"], "")
        assert refused["ended"] <= finished["ended"]
    await federation.stop("bank")
    await federation.start("bank")
    ended = (await federation.ask("bank", "status"))["ended"]
    assert [session["model"] for session in ended][-1] == "m"


async def test_a_model_of_a_party_that_left_is_refused_at_once(federation: DaemonsInMemory) -> None:
    await federation.train("m", 3)
    asked = federation.daemons["bank"].parts.context.model_store.active("m").asked
    await federation.stop()
    (federation.folder / "federation.toml").write_text(
        f'name = "demo"\nactive = "bank"\npassive = ["{asked[0]}"]\n'
    )
    await federation.start("bank", asked[0])
    for do, more in (("predict", {"ids": ["p01"]}), ("activate", {}), ("verify", {})):
        with pytest.raises(DaemonError) as refused:
            await federation.ask("bank", do, model="m", **more)
        assert refused.value.exit_code == Refused.exit_code
        assert str(refused.value).startswith(f"model m cannot be used without {asked[1]}, which")


async def test_a_daemon_without_its_table_stays_up_and_says_so(
    federation: DaemonsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    await federation.stop("telco")
    table = federation.folder / "telco" / "data.csv"
    aside = table.rename(table.with_suffix(".aside"))
    await federation.start("telco")
    line = f"telco: {table}: there is no such file"
    modes = [*federation.daemons["telco"].parts.context.config.online.warnings()]
    assert (await federation.ask("telco", "status"))["warnings"] == [line, *modes]
    health = await federation.ask("telco", "health")
    assert (health["ready"], health["warnings"]) == (True, [line, *modes])
    assert caplog.messages.count(line) == 1

    aside.rename(table)
    federation.daemons["telco"].parts.file_check._looked = None
    assert (await federation.ask("telco", "status"))["warnings"] == modes
