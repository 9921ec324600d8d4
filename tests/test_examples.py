from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.transport.rabbitmq.definitions import password_hash
from tests.cli.command import fedmq as command
from tests.party.daemons import EXAMPLE, PARTIES, ExampleFederation
from tests.rabbitmq_node import BROKER

EXAMPLES = Path(__file__).parent.parent / "examples"


def ran(script: Path, *replacements: tuple[str, str]) -> str:
    """What ``script`` prints; nothing may go to standard error."""
    text = script.read_text()
    for before, after in replacements:
        assert before in text
        text = text.replace(before, after)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=text, check=False, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_trains_predicts_and_exports() -> None:
    out = ran(
        EXAMPLES / "simulate.py",
        ("num_boost_round=3", "num_boost_round=1"),
        ('engine="paillier"', 'engine="plain"'),
    )
    assert out.startswith("tree 1 of 1 {'train-auc': 0.9")
    assert float(re.findall(r"right: (.*)", out)[0]) > 0.9
    assert "telco to active: 1 session accept" in out
    assert re.search(r"0:\[(active|telco|retail)\.f\d<", out)


def test_the_script_has_no_guard() -> None:
    assert "if __name__" not in (EXAMPLES / "simulate.py").read_text().partition('"""\n')[2]


@pytest.mark.long
def test_credit_default_counts_loans_and_keeps_signs() -> None:
    out = ran(EXAMPLES / "credit_default.py")
    assert out.startswith("<SimulatedModel binary:logistic, ")
    assert float(re.findall(r"^auc: (.*)$", out, re.MULTILINE)[0]) > 0.68
    assert "nobody's risk falls with late bills: True" in out


@pytest.mark.long
def test_claims_are_expected_by_exposure() -> None:
    found = dict(re.findall(r"^(.*): ([\d.]+)$", ran(EXAMPLES / "claims.py"), re.MULTILINE))
    assert float(found["claims: 299 expected"]) == pytest.approx(299, rel=0.15)
    assert float(found["explained"]) > 0.1
    young, others = (float(found[f"{who} drivers, claims a year"]) for who in ("young", "other"))
    assert young > 1.8 * others


@pytest.mark.long
def test_four_classes_have_four_probabilities() -> None:
    out = ran(EXAMPLES / "four_classes.py")
    assert float(re.findall(r"right: (.*)", out)[0]) > 0.93
    assert "classes: all in basic data talk" in out


@pytest.mark.long
def test_a_search_of_thirty_lines_finds_good_parameters() -> None:
    lines = (EXAMPLES / "search.py").read_text().splitlines()
    assert len(lines) <= 30
    out = ran(EXAMPLES / "search.py", ("n_trials=20", "n_trials=8"))
    best = float(out.split()[-1])
    assert 0.98 < best <= 1
    assert "'max_depth': " in out


@pytest.mark.long
def test_the_notebook_runs_in_a_running_event_loop() -> None:
    body = (EXAMPLES / "notebook.py").read_text()
    cells = "\n".join(f"    {line}" for line in body.splitlines())
    inside = f"import asyncio\nasync def notebook():\n{cells}\nasyncio.run(notebook())\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=inside, check=False, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_a_notebook_goes_from_raw_tables_to_a_served_model(demo: ExampleFederation) -> None:
    text = (EXAMPLES / "daemons.py").read_text()
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) <= 30
    demo.job(
        'engine = "ou"\nevaluation = 0.2\n'
        'engine_options = { sums = "shown", key_bits = 1024, allow_weak_keys = true }\n'
        '[params]\nnum_boost_round = 3\neval_metric = "auc"\n'
    )
    done = subprocess.run(
        [sys.executable, "-"],
        input=text.replace("bank/train.toml", "bank/job.toml"),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=demo.folder,
    )
    assert done.returncode == 0, done.stderr
    [found] = re.findall(r"^illness-1 auc: ([\d.]+) scores: (\d+)$", done.stdout, re.MULTILINE)
    assert float(found[0]) > 0.9
    assert int(found[1]) > 100
    served = command("serving", demo.config("bank"), "--json").result
    assert served["models"]["production"]["model"] == "illness-1"


@pytest.mark.parametrize("party", PARTIES)
def test_the_passwords_of_the_example_are_those_of_the_brokers_files(party: str) -> None:
    config, _ = PartyFile.read(EXAMPLE / party / "party.toml")
    password = config.broker.split(":")[2].split("@")[0]
    users = json.loads((BROKER / "definitions.json").read_text())["users"]
    [stored] = [user["password_hash"] for user in users if user["name"] == party]
    assert password_hash(password, base64.b64decode(stored)[:4]) == stored


def test_the_example_hides_sums() -> None:
    job = TrainingJob.read(EXAMPLE / "bank" / "train.toml")
    assert (job.engine, job.engine_options) == ("lattice", {"sums": "hidden"})
