"""Daemons that were not told otherwise refuse engines that are known to leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import fedmq as command
from tests.party.daemons import ExampleFederation
from tests.party.daemons_in_memory import DaemonsInMemory

pytestmark = pytest.mark.xdist_group("broker")


@pytest.mark.parametrize("engine", ["smm1", "smm2"])
def test_a_careful_federation_refuses_leaky_engines_and_says_why(
    demo: ExampleFederation, engine: str
) -> None:
    outcome = command("train", demo.job(f'engine = "{engine}"'))
    assert outcome.code == 6
    assert "100 %" in outcome.error
    assert "allow_leaky_engines = true" in outcome.error


async def test_owners_of_files_of_before_are_warned_that_a_lattice_shows_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, engines=("plain", "lattice")) as daemons:
        warned = {
            party: [
                warning
                for warning in (await daemons.ask(party, "status"))["warnings"]
                if "lets lattice show sums" in warning
            ]
            for party in ("bank", "telco")
        }
    assert not warned["bank"]  # its columns are read by nobody
    assert len(warned["telco"]) == 1
