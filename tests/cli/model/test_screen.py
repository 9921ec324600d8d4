"""``fedmq screen`` over RabbitMQ: a table, a page, and what is wrong in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.model.test_align import Parties, one_line, stand
from tests.rabbitmq_node import RabbitNode


@pytest.fixture
def parties(tmp_path: Path, node: RabbitNode) -> Iterator[Parties]:
    made = Parties(tmp_path, node, ("bank", "telco"))
    yield made
    made.stop()


def test_columns_are_looked_at_and_written_as_a_page(parties: Parties) -> None:
    stand(parties, {"bank": range(60), "telco": range(60)})
    parties.configure("bank", 'path = "bank.csv"')
    policy = 'screen = "measured"\nsmallest_group = 10'
    parties.configure("telco", 'path = "telco.csv"', policy)
    job = parties.folder / "screen.toml"
    job.write_text('party = "bank.toml"\nname = "look"\nbins = 4\n[select]\ntop = 1\n')
    parties.run()
    done = parties.fedmq("screen", "screen.toml", "--output", "look")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("60 of 60 people, 30 with label 1")
    assert "column 1" in done.stdout
    assert "of bank: 1 selected" in done.stdout and "of telco: 0 selected" in done.stdout
    assert "telco: column 1" in (parties.folder / "look" / "screen.html").read_text()
    found = json.loads((parties.folder / "look" / "screen.json").read_text())
    assert sum(one["people"] for one in found["parties"]["telco"]["columns"][0]["bins"]) == 60

    job.write_text('party = "bank.toml"\nname = "look"\nbins = 99\n')
    assert "screen.toml: bins" in one_line(parties.fedmq("screen", "screen.toml"), 3)
    job.write_text('party = "bank.toml"\nname = "look"\nalignment = "none"\n')
    assert "no alignment 'none'" in one_line(parties.fedmq("screen", "screen.toml"), 6)
