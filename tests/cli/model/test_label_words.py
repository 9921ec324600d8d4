"""A label of words at real daemons: everything that is typed takes it as it takes 0 and 1."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.party.daemons import Daemon

FEDMQ = str(Path(sys.executable).with_name("fedmq"))
WORDS = ("nein", "ja")

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(400)]


def fedmq(*words: object, code: int = 0) -> str:
    done = subprocess.run(
        [FEDMQ, *map(str, words)], check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A federation without encryption, whose broker and daemons run; its label is a word."""
    folder, port = tmp_path_factory.mktemp("words") / "demo", str(free_port())
    parties = ("--active", "bank", "--passive", "telco")
    fedmq("init", folder, *parties, "--no-tls", "--broker", f"127.0.0.1:{port}", "--example")
    spell(folder / "bank" / "data.csv")
    for party in ("bank", "telco"):
        config = folder / party / "party.toml"
        text = config.read_text().replace('["lattice", "ou", "paillier"]', '["plain"]')
        config.write_text(text)
    job = folder / "bank" / "train.toml"
    text = job.read_text().replace('engine_options = { sums = "hidden" }\n', "")
    job.write_text(text.replace('"lattice"', '"plain"'))
    node = folder / "broker" / "node"
    subprocess.run([node, "start", node.parent, "--port", port], check=True, capture_output=True)
    daemons: list[Daemon] = []
    try:
        # Until somebody says what the words are, no table is read.
        refused = fedmq("data", "check", folder / "bank" / "party.toml", code=4)
        assert 'name its words: label_classes = ["no", "yes"]' in refused
        config = folder / "bank" / "party.toml"
        given = config.read_text()
        assert given.count('label = "label"\n') == 1
        classes = f"label_classes = {json.dumps(WORDS)}"
        config.write_text(given.replace('label = "label"\n', f'label = "label"\n{classes}\n'))
        fedmq("data", "check", config)
        daemons = [Daemon(folder / party / "party.toml") for party in ("bank", "telco")]
        for daemon in daemons:
            daemon.wait_until_says("is ready")
        yield folder
    finally:
        for daemon in daemons:
            daemon.discard()
        subprocess.run([node, "stop", node.parent], check=True, capture_output=True)


def spell(table: Path) -> None:
    """Write words for 0 and 1 in the label of ``table``."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": WORDS[int(float(row["label"]))]} for row in rows)


def test_a_training_with_other_settings_takes_words(folder: Path) -> None:
    job = folder / "bank" / "train.toml"
    settings = ("--set", "num_boost_round=3", "--set", "model=of-words", "--set", "max_depth=2")
    trained = json.loads(fedmq("train", job, *settings, "--json"))
    assert (trained["model"], trained["trees"]) == ("of-words", 3)
    assert trained["metrics"]["eval-auc"] > 0.9
    shown = json.loads(
        fedmq("models", "show", folder / "bank" / "party.toml", "of-words", "--json")
    )
    assert (shown["params"]["max_depth"], shown["params"]["num_boost_round"]) == (2, 3)

    wrong = fedmq("train", job, "--set", "max_dept=2", code=3)
    assert "max_dept: no such parameter; did you mean max_depth?" in wrong


def test_a_search_takes_words_and_leads_to_its_best(folder: Path) -> None:
    job = folder / "bank" / "train.toml"
    space = ("--over", "max_depth=1:3", "--set", "num_boost_round=2")
    found = json.loads(fedmq("search", job, *space, "--trials", "2", "--nfold", "3", "--json"))
    assert len(found["trials"]) == 2
    best = found["best"]["settings"]["max_depth"]
    trained = json.loads(fedmq("train", job, "--set", f"max_depth={best}", "--json"))
    assert trained["metrics"]["eval-auc"] > 0.9


def test_scores_and_an_evaluation_take_words(folder: Path) -> None:
    bank = folder / "bank"
    fedmq("train", bank / "train.toml", "--set", "model=scored")
    scores = folder / "scores.csv"
    fedmq("predict", bank / "party.toml", bank / "ids.csv", "--output", scores)
    with scores.open(newline="") as file:
        assert all(0 <= float(row["score"]) <= 1 for row in csv.DictReader(file))
    reports = [
        json.loads(fedmq("evaluate", *evaluated, "--samples", "0", "--json"))
        for evaluated in (
            (bank / "party.toml", "scored", "-o", folder / "held-out"),
            (bank / "party.toml", "scored", "-o", folder / "all", "--rows", bank / "data.csv"),
        )
    ]
    with (bank / "data.csv").open(newline="") as file:
        people = len(list(csv.DictReader(file)))
    assert 0 < reports[0]["rows"] < reports[1]["rows"] == people
    assert all(report["metrics"]["auc"]["value"] > 0.9 for report in reports)
