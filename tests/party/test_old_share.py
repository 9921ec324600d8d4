"""A model is trained anew under an old name, and one party's old state is put back: no score is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedmq.errors import DaemonError
from fedmq.party.store import documents
from tests.party.daemons_in_memory import DaemonsInMemory

IDS = [f"p{row:02}" for row in range(10)]


async def test_shares_of_two_trainings_of_one_name_give_no_score_in_files_nor_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    demo = DaemonsInMemory(
        tmp_path, monkeypatch, "delete_models = true\n[online]\ndeadline = 0.5\n"
    )
    kept = {party: tmp_path / f"{party}-of-old" for party in ("telco", "retail")}
    async with demo:
        await demo.train("m", 2)
        await demo.ask("bank", "activate", model="m")
        old = (await demo.ask("bank", "predict", model="m", ids=IDS))["scores"]
        await demo.stop(*kept)
        for party, folder in kept.items():
            shutil.copytree(tmp_path / party / "state", folder)
        await demo.start(*kept)
        monkeypatch.setattr(documents, "FORMER_MODELS", 1)  # so no rollback reaches m
        await demo.train("other", 2)
        await demo.ask("bank", "activate", model="other")
        await demo.ask("bank", "delete_everywhere", model="m")
        await demo.train("m", 2)  # the same people and columns: trees of one shape
        await demo.ask("bank", "activate", model="m")
        assert (await demo.ask("bank", "predict", model="m", ids=IDS))["scores"] == old

        for party, folder in kept.items():
            await demo.stop(party)
            shutil.rmtree(tmp_path / party / "state")
            shutil.copytree(folder, tmp_path / party / "state")
            await demo.start(party)
        with pytest.raises(DaemonError):
            await demo.ask("bank", "score", name="production", ids=IDS)
        assert "no longer serves m; asking it" in caplog.text
        of_another = "its share is of another training than the active party's share of this model"
        with pytest.raises(DaemonError, match=of_another):
            await demo.ask("bank", "predict", model="m", ids=IDS)
        with pytest.raises(DaemonError, match=of_another):
            await demo.ask("bank", "activate", model="m")
