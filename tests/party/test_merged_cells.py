"""A party's policy merges cells of few rows, and all who hold the model know of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.boosting.model.share import departures_in_words
from fedmq.cli.models import _models_in_words
from fedmq.party.configuration.party import PartyFile
from tests.cli.command import fedmq
from tests.party.daemons_in_memory import DaemonsInMemory

MERGED = "telco merged cells of fewer than 7 rows"


async def test_a_model_says_whose_cells_were_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = DaemonsInMemory(tmp_path, monkeypatch)
    telco = tmp_path / "telco" / "party.toml"
    telco.write_text(telco.read_text() + "smallest_cell = 7\n")
    await daemons.start()
    result = await daemons.train("careful", 2)
    assert result["departures"] == [MERGED]
    [model] = await daemons.ask("bank", "models")
    assert model["departures"] == [MERGED]
    assert f"no: {MERGED}" in str(_models_in_words([model]))
    [own] = await daemons.ask("telco", "models")
    assert own["departures"] == [MERGED]
    assert MERGED in str(_models_in_words([own]))
    [other] = await daemons.ask("retail", "models")
    assert other["departures"] == []
    await daemons.stop()


def test_a_model_without_departures_is_xgboosts() -> None:
    assert departures_in_words([]) == "yes, node by node"


def test_files_of_init_merge_no_cells_as_they_show_no_sums_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert fedmq("init", folder, "--active", "bank", "--passive", "telco").code == 0
    for party in ("bank", "telco"):
        config, _ = PartyFile.read(folder / party / "party.toml")
        assert config.policy.smallest_cell == 0
        assert all(
            config.policy.engine_options[engine]["sums"] == "hidden"
            for engine in config.policy.engines
        )
