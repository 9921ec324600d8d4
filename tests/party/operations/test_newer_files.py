"""What the owner reads of files newer than what holds, and of what ended before a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.party.configuration.job import AlignmentJob
from tests.party.daemons_in_memory import DaemonsInMemory


async def test_a_policy_that_does_not_hold_yet_is_told_of_and_an_alignment_stays_in_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as federation:
        job = AlignmentJob(name="people").model_dump(mode="json")
        await federation.ask("bank", "align", job=job)
        await federation.train("m", 1)
        await federation.ask("bank", "activate", name="main")
        [model] = await federation.ask("bank", "models")
        assert (model["engine"], model["rows"], model["names"]) == ("plain", 40, ["main"])
        assert (await federation.ask("telco", "models"))[0]["names"] == ["main"]
        await federation.stop("bank", "telco")
        await federation.start("bank", "telco")
        for party in ("bank", "telco"):
            ended = await federation.ask(party, "history")
            assert [(entry["purpose"], entry["model"]) for entry in ended] == [
                ("alignment", "people"),
                ("training", "m"),
            ]
        own = tmp_path / "telco" / "party.toml"
        own.write_text(own.read_text().replace("smallest_alignment = 1", "smallest_alignment = 7"))
        reload = federation.daemons["telco"].parts.reload
        [warning] = reload.stale()
        assert "policy.smallest_alignment changed, and what was there before holds" in warning
        assert "kill -HUP" in warning
        await federation.ask("telco", "reload")
        assert reload.stale() == ()
