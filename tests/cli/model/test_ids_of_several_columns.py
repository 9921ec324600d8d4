"""Parties whose rows are named by two columns: aligned, trained and scored by both."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from tests.cli.command import fedmq
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


async def test_people_are_those_who_share_all_columns_of_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    for party in PARTIES:
        folder = federation.folder / party
        named, table = folder / "party.toml", folder / "data.csv"
        named.write_text(named.read_text().replace('id = "id"', 'id = ["branch", "customer"]'))
        with table.open() as file:
            rows = list(csv.DictReader(file))
        with table.open("w", newline="") as file:
            columns = ["branch", "customer", *(name for name in rows[0] if name != "id")]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            for number, row in enumerate(rows):
                # The first five customers are those of other branches at the bank.
                branch = number % 2 + (10 if party == "bank" and number < 5 else 0)
                writer.writerow({**row, "branch": branch, "customer": f"c{number // 2}"})
    (tmp_path / "ids.csv").write_text("customer,branch\nc3,0\nc3,1\nc0,0\n")
    output = tmp_path / "scores.csv"
    params = TrainParams(num_boost_round=1, max_depth=2)
    job = TrainingJob(model="m", engine="plain", alignment="a", params=params)
    async with federation:
        align = AlignmentJob(name="a").model_dump(mode="json")
        assert (await federation.ask("bank", "align", job=align))["rows"] == 35
        await federation.ask("bank", "train", job=job.model_dump(mode="json"))
        party = federation.folder / "bank" / "party.toml"
        words = ("predict", party, tmp_path / "ids.csv", "--output", output)
        done = await asyncio.to_thread(fedmq, *words)
        assert done.code == 0, done
    with output.open() as file:
        scored = [(row["branch"], row["customer"], row["reason"]) for row in csv.DictReader(file)]
    assert scored[:2] == [("0", "c3", ""), ("1", "c3", "")]
    assert scored[2] == ("0", "c0", "unknown at bank")
