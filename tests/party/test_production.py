"""What is in production counts: predictions use it, and a switch that waits for a party ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import ConfigError, DaemonError, DataError, PeerSilent
from fedmq.party.services import deployment
from fedmq.party.store.documents import Deployment, Deployments, chosen_model
from tests.party.daemons_in_memory import DaemonsInMemory


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    async with DaemonsInMemory(tmp_path, monkeypatch) as made:
        yield made


async def predicted(federation: DaemonsInMemory, **asked: Any) -> tuple[str, str | None, bool]:
    answer = await federation.ask("bank", "predict", ids=["p00"], strict=False, **asked)
    return answer["model"], answer["name"], answer["newest"]


async def test_predictions_use_what_is_in_production_and_the_newest_only_before(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("old", 1)
    with pytest.raises(DaemonError, match="no model is activated; activate one with"):
        await federation.ask("bank", "score", ids=["p00"])
    assert await predicted(federation) == ("old", None, True)
    await federation.ask("bank", "activate", name="main")
    await federation.train("new", 1)
    assert await predicted(federation) == ("old", "main", False)
    assert await predicted(federation, model="main") == ("old", "main", False)
    assert await predicted(federation, model="new") == ("new", None, False)
    answer = await federation.ask("bank", "score", ids=["p00"])
    assert (answer["model"], answer["name"]) == ("old", "main")

    await federation.ask("bank", "activate", model="new", name="trial")
    for command in ("predict", "score"):
        with pytest.raises(DaemonError, match="main is old, trial is new: say which") as refused:
            await federation.ask("bank", command, ids=["p00"])
        assert refused.value.exit_code == ConfigError.exit_code
    with pytest.raises(DaemonError, match="model 'trial' is a name under which new is activated"):
        await federation.train("trial", 1)


async def test_a_switch_that_waits_for_a_party_ends_and_never_completes_later(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("old", 1)
    await federation.train("new", 1)
    await federation.ask("bank", "activate", model="old")
    for kind in ("model deploy", "model switch"):
        let = asyncio.Event()

        async def hold(
            _: str, recipient: str, message: str, kind: str = kind, let: asyncio.Event = let
        ) -> bool:
            if recipient == "telco" and kind in message:
                await let.wait()
            return False

        federation.hold = hold
        with pytest.raises(
            DaemonError,
            match=r"not done within 0\.3 s: no answer from telco; production is still old",
        ) as late:
            await federation.ask("bank", "activate", model="new", seconds=0.3)
        assert late.value.exit_code == PeerSilent.exit_code
        let.set()
        with pytest.raises(DaemonError, match="no earlier model"):
            await federation.ask("bank", "rollback", seconds=5)
        answer = await federation.ask("bank", "score", ids=["p00"])
        assert (answer["model"], "degraded" in answer) == ("old", False)
    assert (await predicted(federation))[0] == "old"
    await federation.ask("bank", "activate", model="new", seconds=30)
    assert (await federation.ask("bank", "rollback", seconds=30))["model"] == "old"


async def test_a_reminder_to_serve_a_model_ends_at_the_usual_limit_and_another_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, "[online]\ndeadline = 0.3\n")
    heard = asyncio.Event()

    async def hold(_: str, recipient: str, message: str) -> bool:
        if recipient == "telco" and "model deploy" in message:
            await heard.wait()
        return False

    async def score() -> Any:
        return await demo.ask("bank", "score", ids=["p00"])

    async def late() -> bool:
        ended = (await demo.ask("bank", "status"))["ended"]
        return any(one["reason"] == "it was not done within 0.3 s" for one in ended)

    async def served() -> bool:
        with contextlib.suppress(DaemonError):
            return "degraded" not in await score()
        return False

    async with demo:
        await demo.train("m", 1)
        await demo.ask("bank", "activate", model="m")
        await demo.stop("telco")
        (tmp_path / "telco" / "state" / "deployments.json").unlink()
        await demo.start("telco")
        demo.hold = hold
        usual = deployment.LONGEST_WAIT
        monkeypatch.setattr(deployment, "LONGEST_WAIT", 0.3)
        with pytest.raises(DaemonError, match="waited for telco"):
            await score()
        await demo.until(late)
        monkeypatch.setattr(deployment, "LONGEST_WAIT", usual)
        heard.set()
        await demo.until(served)


def test_a_name_is_chosen_from_the_files_alone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no model yet"):
        chosen_model(tmp_path, None)
    deployments = Deployments.read(tmp_path)
    deployments.put("production", Deployment(model="m", mode="hop"))
    assert chosen_model(tmp_path, None).described() == {
        "model": "m",
        "name": "production",
        "newest": False,
    }
    assert chosen_model(tmp_path, "other").model == "other"
