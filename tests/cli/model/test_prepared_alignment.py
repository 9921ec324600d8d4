"""Two daemons over RabbitMQ align again and again, and the longer list is blinded once."""

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


@pytest.mark.long
def test_a_long_list_is_blinded_once_and_the_alignment_is_trained_on(parties: Parties) -> None:
    few, many = [f"p{number}" for number in range(300)], [f"p{n}" for n in range(100, 3000)]
    stand(parties, {"bank": few, "telco": many})
    parties.configure("bank", 'path = "bank.csv"')
    parties.configure("telco", 'path = "telco.csv"')
    parties.run()
    prepare = ("align", "bank.align.toml", "--prepare", "--json")
    line = one_line(parties.fedmq(*prepare), 6)
    assert "kept_blinding_days = 30 in its [policy] would allow it" in line
    assert not list(parties.folder.glob("*/kept_blindings/*"))
    parties.stop()

    policy = "smallest_alignment = 1\nkept_blinding_days = 30"
    parties.configure("telco", 'path = "telco.csv"', policy)
    parties.run()
    results = []
    for names in (many, many, [*many, "new", "p0"], many):
        stand(parties, {"telco": names})
        done = parties.fedmq(*prepare)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
        assert set(parties.aligned("bank")) == set(few) & set(names)
        assert parties.aligned("bank") == parties.aligned("telco")
    assert [result["reused"] for result in results] == [0, 2900, 2900, 0]
    first, again, *_ = results
    assert again["bytes_sent"] <= first["bytes_sent"]
    assert parties.train().returncode == 0

    ordinary = parties.align()
    assert ordinary.returncode == 0 and json.loads(ordinary.stdout)["reused"] is None
    assert set(parties.aligned("bank")) == set(few) & set(many)
    line = one_line(parties.fedmq("align", "bank.align.toml", "--prepare", "--count"), 3)
    assert "leave out either --count or --prepare" in line
