"""The tutorial of three organisations, as written: a folder for each, daemons and a broker.

Its first half also with a network for each, that leads to the broker alone.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.network_namespaces import Namespace, network_namespaces
from tests.party.daemons import Daemon

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parent.parent / "docs" / "tutorial" / "three-organisations.md"
BIN = str(Path(sys.executable).parent)
PEOPLE = {
    "bank": range(200),
    "telco": range(40, 240),
    "retail": range(20, 220),
    "shop": range(210),
}
MEMBERS = ("bank", "telco", "retail")
BROKER = "mq.example.org:5671"
TRAINED = re.compile(r"model (\S+): 3 trees")


class Organisation:
    """A machine: a folder with what this organisation made or was sent, and its daemon.

    ``prefix`` stands before each command; with it the machine has a network of its own.
    """

    def __init__(self, name: str, folder: Path, prefix: Sequence[str] = ()) -> None:
        self.name = name
        self.prefix = prefix
        self.folder = folder / name
        self.folder.mkdir()
        self.daemon: Daemon | None = None

    def type(self, line: str, heard: str = "") -> str:
        """What the command ``line`` prints; ``heard`` is typed where it asks."""
        done = subprocess.run(
            [*self.prefix, *shlex.split(line)],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            input=f"{heard}\n",
            timeout=240,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        )
        assert done.returncode == 0, (self.name, line, done.stderr)
        return done.stdout

    def run(self, config: str) -> None:
        self.daemon = Daemon(self.folder / config, prefix=self.prefix)
        self.daemon.wait_until_says("is ready", 60)


class Tutorial:
    """Does what the rows of a section's table say, from left to right and from top to bottom.

    ``broker`` is where the organisations reach it; on one network that is not where the page says.
    """

    def __init__(self, organisations: Iterable[Organisation], broker: str = BROKER) -> None:
        self.broker = broker
        self.organisations = {found.name: found for found in organisations}
        self.fingerprints: dict[str, str] = {}
        self.key = ""
        self.models: list[str] = []

    def follow(self, section: int) -> None:
        text = PAGE.read_text().split("\n## ")[section]
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
        names = [name.strip() for name in rows[0]]
        for row in rows[2:]:
            for name, cell in zip(names, row, strict=True):
                if cell.strip():
                    self._do(self.organisations[name], cell.strip())

    def _do(self, who: Organisation, cell: str) -> None:
        sent = re.fullmatch(r"sends `(.*)` to (.*)", cell)
        if sent is not None:
            for other in sent[2].split(" and "):
                shutil.copy(who.folder / sent[1], self.organisations[other].folder)
            return
        line = cell.strip("`").replace(BROKER, self.broker).replace("KEY", self.key)
        for word, ours in zip(BROKER.split(":"), self.broker.split(":"), strict=True):
            line = line.replace(f" {word}", f" {ours}")
        if line.startswith(("fedmq data check", "fedmq run")):
            self._give_table(who)
        if line.endswith("&"):
            who.run(line.split()[2])
            return
        heard = re.search(r"party add \S+ (\w+)\.request", line)
        printed = who.type(line, self.fingerprints[heard[1]] if heard else "")
        if "fedmq join" in line and "--party" in line:
            self.fingerprints[who.name] = printed.splitlines()[0].removeprefix(f"{who.name}: ")
        if line.endswith("rotate telco/party.toml"):
            self.key = printed.splitlines()[0].split()[-1]
        if trained := TRAINED.match(printed):
            self.models.append(trained[1])

    def _give_table(self, who: Organisation) -> None:
        """What every organisation has before it begins: data of its own."""
        path = who.folder / who.name / "data.csv"
        if not path.exists():
            seed = list(PEOPLE).index(who.name)
            write_table(path, PEOPLE[who.name], who.name == "bank", seed)

    def let_everybody_in(self) -> None:
        for section in (1, 2, 3):
            self.follow(section)

    def train_and_predict(self) -> None:
        for section in (4, 5):
            self.follow(section)
        with (self.organisations["bank"].folder / "scores.csv").open(newline="") as file:
            scores = list(csv.DictReader(file))
        assert len(scores) == 160
        assert all(row["score"] and not row["reason"] for row in scores)

    def end(self) -> None:
        for organisation in self.organisations.values():
            if organisation.daemon is not None:
                organisation.daemon.discard()
        operator = self.organisations["operator"]
        if (operator.folder / "broker" / "node").exists():
            operator.type("broker/node stop broker")

    def status(self, name: str) -> dict[str, object]:
        shown = self.organisations[name].type(f"fedmq status {name}/party.toml --json")
        found: dict[str, object] = json.loads(shown)
        return found


def write_table(path: Path, people: range, label: bool, seed: int) -> None:
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(["label"] if label else []), "x0", "x1"])
        for person in people:
            cells = [draw.gauss(0, 1), draw.gauss(0, 1)]
            writer.writerow([f"P{person}", *([int(sum(cells) > 0)] if label else []), *cells])


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    """On one network, with a port that is free there."""
    names = ("operator", *MEMBERS, "shop")
    tutorial = Tutorial(
        (Organisation(name, tmp_path) for name in names), f"127.0.0.1:{free_port()}"
    )
    yield tutorial
    tutorial.end()


@pytest.fixture
def machines() -> Iterator[Mapping[str, Namespace]]:
    host_name, _, _ = BROKER.partition(":")
    with network_namespaces("operator", host_name, MEMBERS) as machines:
        yield machines


@pytest.fixture
def tutorial_on_machines(tmp_path: Path, machines: Mapping[str, Namespace]) -> Iterator[Tutorial]:
    """Everybody reaches the broker where the page says, and nobody else."""
    tutorial = Tutorial(
        Organisation(name, tmp_path, machine.prefix) for name, machine in machines.items()
    )
    yield tutorial
    tutorial.end()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tutorial_holds_as_it_is_written(tutorial: Tutorial) -> None:
    at = tutorial.organisations
    tutorial.let_everybody_in()
    for name in MEMBERS:
        shown = at[name].type(f"fedmq party list {name}/party.toml --json")
        listed = {found["party"]: found["fingerprints"] for found in json.loads(shown)["parties"]}
        assert listed == {party: [tutorial.fingerprints[party]] for party in listed}
        assert list(listed) == [*MEMBERS]
        # Each folder has its own private keys, and nobody else's.
        assert {path.name for path in at[name].folder.rglob("keys.json")} == {"keys.json"}
        assert len(list(at[name].folder.rglob("party.key"))) == 1
    assert not list(at["operator"].folder.rglob("keys.json"))
    assert not list(at["operator"].folder.rglob("party.key"))

    tutorial.train_and_predict()
    pids = {
        name: organisation.daemon.process.pid
        for name, organisation in at.items()
        if organisation.daemon
    }

    tutorial.follow(6)
    assert tutorial.status("telco")["parties"] == ["bank", "telco", "retail", "shop"]
    assert len(tutorial.models) == 2

    tutorial.follow(7)
    assert tutorial.status("bank")["parties"] == ["bank", "telco", "shop"]
    assert len(tutorial.models) == 3
    retail = at["retail"].daemon
    assert retail is not None
    retail.wait_until_says("broker", 30)

    before = tutorial.status("telco")["certificate_until"]
    tutorial.follow(8)
    after = tutorial.status("telco")["certificate_until"]
    assert str(after) > str(before)
    assert len(set(tutorial.models)) == 4
    for name in ("bank", "telco"):
        daemon = at[name].daemon
        assert daemon is not None
        assert daemon.process.pid == pids[name]
        assert daemon.process.poll() is None


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_broker_is_all_that_an_organisation_needs_to_reach(
    tutorial_on_machines: Tutorial, machines: Mapping[str, Namespace]
) -> None:
    tutorial_on_machines.let_everybody_in()
    tutorial_on_machines.train_and_predict()
    assert len(tutorial_on_machines.models) == 1
    broker = f"{machines['operator'].address}:{BROKER.partition(':')[2]}"
    for name in MEMBERS:
        organisation = tutorial_on_machines.organisations[name]
        assert organisation.type("ss --tcp --listening --no-header") == ""
        # Local address and port, then the peer's.
        connections = organisation.type("ss --tcp --numeric --no-header state established")
        assert {line.split()[3] for line in connections.splitlines()} == {broker}
