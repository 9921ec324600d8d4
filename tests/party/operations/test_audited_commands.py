"""Commands that change something stand in the audit log: who gave them, and how they ended."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any

import pytest

from fedmq.cli.party_daemon import noted
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import ScreenJob
from fedmq.party.consent.audit_log import AuditLog
from tests.party.daemons_in_memory import DaemonsInMemory


def entries(state: Path, event: str) -> list[dict[str, Any]]:
    return [entry for entry in AuditLog(state).entries() if entry["event"] == event]


async def test_who_changed_something_and_how_it_ended_is_on_record_at_every_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as federation:
        state = tmp_path / "bank" / "state"
        await federation.train("m", 1)
        await federation.ask("bank", "activate", model="m", name="main")
        with pytest.raises(DaemonError):
            await federation.ask("bank", "rollback", name="main")
        look = ScreenJob(name="look", bins=4).model_dump(mode="json")
        await federation.ask("bank", "screen", job=look)
        await federation.ask("bank", "status")
        await federation.ask("bank", "verify", model="m")
        given, ended = entries(state, "command"), entries(state, "command ended")
        assert [entry["what"] for entry in given] == ["train", "activate", "rollback", "screen"]
        assert {entry["by"] for entry in given} == {getpass.getuser()}
        assert given[0]["model"] == given[1]["model"] == "m"
        assert given[3]["name"] == "look"
        assert [entry["outcome"] for entry in ended] == [
            "done",
            "done",
            "main has no earlier model to go back to",
            "done",
        ]
        history = await federation.ask("bank", "history")
        assert [entry["purpose"] for entry in history] == [
            "training",
            "activation",
            "screen",
            "screen",
            "check",
        ]

        telco = tmp_path / "telco" / "state"
        own = tmp_path / "telco" / "party.toml"
        own.write_text(own.read_text().replace("smallest_alignment = 1", "smallest_alignment = 7"))
        await federation.ask("telco", "reload", did="by hand")
        first, second = entries(telco, "policy holds")
        assert "changed" not in first and second["changed"] == ["smallest_alignment"]
        [reloaded] = entries(telco, "command")
        assert (reloaded["what"], reloaded["did"]) == ("reload", "by hand")
        await federation.stop("telco")
        assert len(entries(telco, "ended")) >= 2  # the training, and the activation
        # Without a daemon the command line writes the line itself, into the same chain.
        await asyncio.to_thread(noted, telco, "share deleted", model="m")
        assert entries(telco, "command")[-1]["model"] == "m"
        await federation.start("telco")


async def test_what_cannot_be_recorded_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as federation:
        (tmp_path / "bank" / "state" / "audit.jsonl").unlink()
        (tmp_path / "bank" / "state" / "audit.jsonl").mkdir()
        with pytest.raises(DaemonError, match="bank cannot write its audit log"):
            await federation.train("m", 1)
        assert (await federation.ask("bank", "status"))["sessions"] == []
        with pytest.raises(DaemonError, match="12ab"):  # it is obeyed: there is no such session
            await federation.ask("bank", "cancel", session="12ab")
