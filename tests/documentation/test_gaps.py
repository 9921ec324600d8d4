"""The first tutorial with tables in which people and numbers are missing at every party."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.documentation.shell import Shell
from tests.documentation.test_commands import Federation

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(600)]

PARTIES = ("bank", "telco", "retail")
HOME = "my-federation"


def leave_out(table: Path, random: np.random.Generator) -> set[str]:
    """A tenth of the people, and a tenth of the numbers of the others; who stays."""
    with table.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    own = [place for place, name in enumerate(header) if name not in ("id", "label")]
    kept = [row for row in rows if random.random() > 0.1]
    for row in kept:
        for place in own:
            if random.random() < 0.1:
                row[place] = ""
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([header, *kept])
    return {row[0] for row in kept}


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """The tutorial until daemons run, on such tables."""
    folder = tmp_path_factory.mktemp("gaps")
    federation = Federation(Shell(folder), folder / HOME)
    random = np.random.default_rng(3)
    try:
        federation.section(2)
        for party in PARTIES:
            for name in ("data.csv", "serving.csv"):
                leave_out(federation.folder / party / name, random)
        bank = federation.folder / "bank" / "party.toml"
        text = bank.read_text()
        assert "[online]\n" in text
        bank.write_text(text.replace("[online]\n", '[online]\nunknown = "fallback"\n'))
        federation.section(3)
        federation.shell.wait_until_says("is ready in", 60, times=3)
        yield federation
        federation.section(7)
    finally:
        node = federation.folder / "broker" / "node"
        if node.exists():
            subprocess.run([node, "stop", node.parent], check=False, capture_output=True)
        federation.shell.close()


def held(federation: Federation, party: str, name: str) -> set[str]:
    with (federation.folder / party / name).open(newline="") as file:
        return {row["id"] for row in csv.DictReader(file)}


def test_the_tutorial_is_walked_with_gaps_in_every_table(gaps: Federation) -> None:
    shell = gaps.shell
    refused = shell.type(f"fedmq train {HOME}/bank/train.toml || true")
    assert "fedmq align" in refused, refused

    job = gaps.folder / "bank" / "align.toml"
    job.write_text(job.read_text() + 'join = "left"\n')
    shell.type(f"fedmq align {job}")
    wanted = "--set alignment=customers --set fallback=true"
    printed = shell.type(f"fedmq train {HOME}/bank/train.toml {wanted}")
    assert "without-telco" in printed and "yes, node by node" in printed
    gaps.section(5)
    gaps.section(6)

    with (gaps.folder.parent / "scores.csv").open(newline="") as file:
        scored = {row["id"]: row for row in csv.DictReader(file)}
    here = {party: held(gaps, party, "serving.csv") for party in PARTIES}
    assert any(name not in here["telco"] for name in scored)
    for name, row in scored.items():
        assert bool(row["score"]) == (name in here["bank"]), row
        lacked = [party for party in ("telco", "retail") if name not in here[party]]
        assert ("without" in row["reason"] or "alone" in row["reason"]) == (
            bool(lacked) and name in here["bank"]
        ), row
    shell.type(f"fedmq activate {HOME}/bank/party.toml")
    known = min(name for name in scored if all(name in people for people in here.values()))
    lacking = min(name for name in scored if name in here["bank"] and name not in here["telco"])
    for name in (known, lacking):
        shell.type(f"fedmq score {HOME}/bank/party.toml {name}")
    shell.type(f"fedmq evaluate {HOME}/bank/party.toml --output report.html")
    shell.type(f"fedmq serving {HOME}/bank/party.toml && fedmq status {HOME}/telco/party.toml")
