"""Daemons look for the smallest change that would have moved a person's score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmq.errors import FedmqError
from tests.party.daemons_in_memory import DaemonsInMemory

TOLD = 'changes = "told"\nmost_changes_per_day = 2\n'


def log(daemons: DaemonsInMemory, party: str) -> list[dict[str, object]]:
    path = daemons.folder / party / "state" / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_owners_tell_changes_where_their_policies_say_so_and_as_often_as_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = DaemonsInMemory(tmp_path, monkeypatch, TOLD)
    retail = tmp_path / "retail" / "party.toml"
    retail.write_text(retail.read_text().replace('"told"', '"refuse"'))
    telco = tmp_path / "telco" / "party.toml"
    telco.write_text(
        telco.read_text().replace("[policy]", 'changes = { fixed = ["x0"] }\n[policy]')
    )
    async with daemons:
        await daemons.train("first", trees=6)
        people = [f"p{row:02}" for row in range(2)]
        for person in people:
            found = await daemons.ask("bank", "changes", id=person, above=0.99, below=None)
            assert [party["party"] for party in found["parties"]] == ["bank", "telco", "retail"]
            assert [party["tells"] for party in found["parties"]] == [True, True, False]
            assert not found["parties"][2]["changes"]
        with pytest.raises(
            FedmqError, match="telco refused the session: it takes part in 2 changes a day at most"
        ):
            await daemons.ask("bank", "changes", id="p03", above=0.9)
        with pytest.raises(FedmqError, match="either above or below"):
            await daemons.ask("bank", "changes", id="p03")
        with pytest.raises(FedmqError, match="nobody"):
            await daemons.ask("bank", "changes", id="nobody", above=0.9)
    agreed = [entry for entry in log(daemons, "telco") if entry["event"] == "agreed"]
    assert [entry["changes"] for entry in agreed if "changes" in entry] == ["told", "told"]
    async with daemons:  # the day's count outlives a restart
        with pytest.raises(
            FedmqError, match="telco refused the session: it takes part in 2 changes a day at most"
        ):
            await daemons.ask("bank", "changes", id="p03", above=0.9)


async def test_a_told_change_names_no_column_that_its_owner_has_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'changes = "told"\nmost_changes_per_day = 100\n'
    daemons = DaemonsInMemory(tmp_path, monkeypatch, settings)
    for party in ("telco", "bank"):
        path = tmp_path / party / "party.toml"
        path.write_text(
            path.read_text().replace(
                "[policy]", 'changes = { fixed = ["x0"] }\nreasons = { x1 = "usage" }\n[policy]'
            )
        )
    told: dict[str, set[str]] = {}
    async with daemons:
        await daemons.train("first", trees=6)
        for row in range(12):
            person = f"p{row:02}"
            first = await daemons.ask("bank", "changes", id=person, above=2.0)
            for wanted in ({"above": first["score"] + 0.02}, {"below": first["score"] - 0.02}):
                found = await daemons.ask("bank", "changes", id=person, **wanted)
                for party in found["parties"]:
                    columns = {change["column"] for change in party["changes"]}
                    told.setdefault(party["party"], set()).update(columns)
    assert told["bank"] == told["telco"] == {"usage"}
    assert told["retail"] == {"x0", "x1"}


async def test_a_column_that_is_not_there_cannot_be_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = DaemonsInMemory(tmp_path, monkeypatch, TOLD)
    path = tmp_path / "telco" / "party.toml"
    path.write_text(
        path.read_text().replace("[policy]", 'changes = { fixed = ["agee"] }\n[policy]')
    )
    async with daemons:
        with pytest.raises(
            FedmqError, match="telco refused the session: its own data could not be loaded"
        ):
            await daemons.train("first", trees=1)
