"""``fedmq screen`` over RabbitMQ: a table, a page, and what is wrong in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedmq.cli.main import cli
from fedmq.cli.screen import _in_words
from fedmq.errors import ConfigError
from fedmq.evaluation.screening import screen_report
from tests.cli.model.test_align import Parties, one_line, stand
from tests.rabbitmq_node import RabbitNode


@pytest.fixture
def parties(tmp_path: Path, node: RabbitNode) -> Iterator[Parties]:
    made = Parties(tmp_path, node, ("bank", "telco"))
    yield made
    made.stop()


def looked_at(
    parties: Parties, policy: str, keys: str
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A screen of 60 people with ``keys``, under a ``policy``: its job, and the command's end."""
    stand(parties, {"bank": range(60), "telco": range(60)})
    parties.configure("bank", 'path = "bank.csv"')
    allowed = f'screen = "{policy}"\nsmallest_group = 10'
    parties.configure("telco", 'path = "telco.csv"', allowed)
    job = parties.folder / "screen.toml"
    job.write_text(f'party = "bank.toml"\nname = "look"\nbins = 4\n{keys}')
    parties.run()
    done = parties.fedmq("screen", "screen.toml", "--output", "look")
    assert done.returncode == 0, done.stderr
    return job, done


def test_columns_are_looked_at_and_written_as_a_page(parties: Parties) -> None:
    job, done = looked_at(parties, "measured", "[select]\ntop = 1\n")
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


def test_where_no_page_can_be_written_no_daemon_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmq.evaluation.page.find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "screen.toml").write_text('party = "bank.toml"\nname = "look"\n')
    done = CliRunner().invoke(cli, ["screen", "screen.toml", "--output", "look"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "jinja2 is not installed; run: pip install 'fedmq[report]'"
    assert not (tmp_path / "look").exists()


def test_sums_that_are_hidden_tell_steps_alone(parties: Parties) -> None:
    job, done = looked_at(parties, "hidden", 'sums = "hidden"\n')
    found = json.loads((parties.folder / "look" / "screen.json").read_text())
    [column] = found["parties"]["telco"]["columns"]
    assert column.keys().isdisjoint({"bins", "ks", "auc", "chi2"})
    assert f"{column['iv']:.2f} to {column['iv_below']:.2f}" in done.stdout
    assert found["sums"] == "hidden"
    job.write_text('party = "bank.toml"\nname = "look"\nbins = 4\n')
    done = parties.fedmq("screen", "screen.toml")
    assert 'telco does not show sums of a label; a screen with sums = "hidden"' in " ".join(
        done.stdout.split()
    )
    job.write_text('party = "bank.toml"\nname = "look"\niv_from = 0.1\n')
    assert 'iv_from goes with sums = "hidden"' in one_line(
        parties.fedmq("screen", "screen.toml"), 3
    )


@pytest.mark.long
def test_a_pair_of_others_that_one_refuses_is_named() -> None:
    among = {"retail": {"refused": "telco does not correlate its columns with those of others"}}
    found = {
        **{"screen": "look", "looked_at": 60, "rows": 60, "ones": 9, "bins": 4, "selected": None},
        **{"select": None, "seconds": 1.0, "bytes_sent": 9},
        "parties": {"bank": {"columns": []}, "telco": {"columns": [], "among": among}},
    }
    assert among["retail"]["refused"] in str(_in_words(found))
    assert screen_report(found).facts["telco beside retail"] == among["retail"]["refused"]


def test_a_training_selects_columns_by_the_last_screen_and_says_so(parties: Parties) -> None:
    stand(parties, {"bank": range(60), "telco": range(60)})
    parties.configure("bank", 'path = "bank.csv"')
    policy = 'screen = "measured"\nsmallest_group = 10'
    parties.configure("telco", 'path = "telco.csv"', policy)
    job = parties.folder / "screen.toml"
    job.write_text('party = "bank.toml"\nname = "look"\nbins = 4\n')
    parties.run()
    done = parties.fedmq("screen", "screen.toml")
    assert done.returncode == 0, done.stderr
    train = parties.folder / "train.toml"
    selecting = 'party = "bank.toml"\nmodel = "few"\nengine = "plain"\nevaluation = 0.3\n'
    train.write_text(f"{selecting}params = {{ num_boost_round = 2 }}\n[select]\niv = 0.0\n")
    done = parties.fedmq("train", "train.toml")
    assert done.returncode == 0, done.stderr
    assert "columns were selected once, by screen look: where it looked at" in done.stdout
    done = parties.fedmq("models", "show", "telco.toml", "few")
    assert "trained with 1 of 1 columns of telco, selected by screen look" in done.stdout
    assert done.stdout.splitlines()[1].endswith("the own ones: x")
    shown = json.loads(parties.fedmq("models", "show", "bank.toml", "few", "--json").stdout)
    assert shown["selected"]["columns"] == {"bank": [1, 1], "telco": [1, 1]}
    done = parties.fedmq("models", "card", "bank.toml", "few", "--no-evaluation")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 of bank, 1 of 1 of telco" in (parties.folder / "few.card.md").read_text()
    done = parties.fedmq("cv", "train.toml", "--nfold", "2")
    assert "at people of the folds, the figures are better than" in done.stdout, done.stderr
    too_many = parties.fedmq("train", "train.toml", "--set", "select.iv=9", "--set", "model=none")
    assert "no column of bank is selected by iv = 9" in one_line(too_many, 3)
