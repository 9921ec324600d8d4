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


@pytest.mark.parametrize(
    ("online", "warned"),
    [("", True), ('[online]\nmodes = ["hop"]\n', False), ('[online]\nmodes = ["sealed"]\n', False)],
    ids=["nothing", "hop", "sealed"],
)
async def test_owners_who_do_not_say_which_modes_they_answer_are_warned_of_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: str, warned: bool
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, online) as daemons:
        for party in ("bank", "telco"):
            warnings = (await daemons.ask(party, "status"))["warnings"]
            told = any(
                "on which side of thresholds each person stands" in line for line in warnings
            )
            assert told == (warned and party == "telco")  # the bank answers nobody
