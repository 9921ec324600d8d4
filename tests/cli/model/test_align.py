"""Daemons of three parties over RabbitMQ: they align, train on it, and fail in one clear line."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import ModelStore
from tests.forked_command import forks
from tests.party.daemons import Daemon
from tests.rabbitmq_node import RabbitNode

FEDMQ = [sys.executable, "-c", "from fedmq.cli.main import main; main()"]
DATA = Path(__file__).parents[4] / "shared" / "data"
PARAMS = {"num_boost_round": 3, "max_depth": 3, "max_bin": 16}
RETRY = "[retry]\nfirst = 0.2\nfactor = 1.0\nresends = 100\nprobe = 1.0\n"


class Parties:
    """Daemons in processes of their own, and their owners' command line."""

    def __init__(self, folder: Path, node: RabbitNode, names: Sequence[str]) -> None:
        self.folder = folder
        self._node = node
        self.names = tuple(names)
        self._daemons: dict[str, Daemon] = {}
        (folder / "federation.toml").write_text(
            f'name = "demo"\nactive = "bank"\npassive = {json.dumps(list(names[1:]))}\n'
        )
        (folder / "bank.align.toml").write_text('party = "bank.toml"\nname = "customers"\n')
        (folder / "bank.train.toml").write_text(
            'party = "bank.toml"\nmodel = "m"\nalignment = "customers"\nengine = "plain"\n'
            "[params]\n" + "".join(f"{key} = {value}\n" for key, value in PARAMS.items())
        )

    def configure(self, party: str, data: str, policy: str = "") -> None:
        label = 'label = "y"\n' if party == "bank" else ""
        (self.folder / f"{party}.toml").write_text(
            f'party = "{party}"\nfederation = "federation.toml"\n'
            f'broker = "{self._node.url(party)}"\nstate = "{party}"\n'
            f'[data]\nid = "id"\n{label}{data}\n'
            f'[compute]\nworkers = 1\n{RETRY}[policy]\nengines = ["plain"]\n'
            f"allow_unsealed = true\n{policy or 'smallest_alignment = 1'}\n"
        )

    def run(self, *parties: str) -> None:
        begun = parties or self.names
        for party in begun:
            self._daemons[party] = Daemon(self.folder / f"{party}.toml")
        for party in begun:
            self._daemons[party].wait_until_says("is ready")

    def kill(self, party: str) -> None:
        self._daemons.pop(party).kill()

    def stop(self) -> None:
        for daemon in self._daemons.values():
            daemon.process.terminate()
        for daemon in self._daemons.values():
            daemon.process.wait(timeout=60)

    def fedmq(self, *command: str) -> subprocess.CompletedProcess[str]:
        return forks().run(command, self.folder, timeout=280)

    def align(self) -> subprocess.CompletedProcess[str]:
        return self.fedmq("align", "bank.align.toml", "--json")

    def train(self) -> subprocess.CompletedProcess[str]:
        return self.fedmq("train", "bank.train.toml", "--json")

    def begin_to_align(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*FEDMQ, "align", "bank.align.toml"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def aligned(self, party: str) -> tuple[str, ...]:
        return AlignmentStore(self.folder / party).load("customers").ids

    def stored(self) -> list[Path]:
        return list(self.folder.glob("*/alignments/*"))


@pytest.fixture
def parties(tmp_path: Path, node: RabbitNode) -> Iterator[Parties]:
    made = Parties(tmp_path, node, ("bank", "telco", "retail"))
    yield made
    made.stop()


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def one_line(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert done.returncode == exit_code, done.stderr
    [line] = [text for text in done.stderr.splitlines() if text.startswith("fedmq:")]
    return line


def stand(parties: Parties, ids: Mapping[str, Sequence[Any]]) -> None:
    """Each party holds one number per id."""
    for party, held in ids.items():
        header = ("id", "x", "y") if party == "bank" else ("id", "x")
        rows = [(name, number, number % 2)[: len(header)] for number, name in enumerate(held)]
        write_csv(parties.folder / f"{party}.csv", header, rows)


@pytest.mark.long
def test_three_parties_align_from_three_kinds_of_source_and_train_like_xgboost(
    parties: Parties,
) -> None:
    random = np.random.default_rng(7)
    people = [f"P{number:04d}" for number in range(900)]
    x = random.normal(size=(900, 4)).round(3)
    colour = random.choice(["red", "green", "blue"], 900)
    label = (x[:, 0] + x[:, 1] + (colour == "red") + random.normal(size=900) > 0).astype(int)
    rows = {party: random.permutation(900)[:600] for party in parties.names}

    write_csv(
        parties.folder / "bank.csv",
        ("id", "y", "a", "b"),
        [(f" {people[r].lower()} ", label[r], x[r, 0], x[r, 1]) for r in rows["bank"]],
    )
    table = {"id": [people[r] for r in rows["telco"]], "c": x[rows["telco"], 2]}
    parquet.write_table(arrow.table(table), parties.folder / "telco.parquet")
    database = sqlite3.connect(parties.folder / "retail.sqlite")
    with database:
        database.execute("CREATE TABLE people (id TEXT, colour TEXT, d REAL)")
        database.executemany(
            "INSERT INTO people VALUES (?, ?, ?)",
            [(people[r], str(colour[r]), float(x[r, 3])) for r in rows["retail"]],
        )
    database.close()
    rule = 'normalise = ["trim", "upper"]\n'
    parties.configure("bank", rule + 'path = "bank.csv"')
    parties.configure("telco", rule + 'type = "parquet"\npath = "telco.parquet"')
    parties.configure(
        "retail",
        rule + 'type = "sql"\nurl = "sqlite:///retail.sqlite"\nquery = "SELECT * FROM people"',
    )
    parties.run()

    done = parties.align()
    assert done.returncode == 0, done.stderr
    common = set.intersection(*(set(own.tolist()) for own in rows.values()))
    assert json.loads(done.stdout)["rows"] == len(common)
    orders = {parties.aligned(party) for party in parties.names}
    assert len(orders) == 1
    order = orders.pop()
    assert set(order) == {people[r] for r in common}

    shown = parties.fedmq("status", "bank.toml")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"alignment +customers +[0-9: -]+ +finished$", shown.stdout, re.MULTILINE)
    estimated = parties.fedmq("estimate", "bank.train.toml")
    assert f"on {len(common)} rows of alignment 'customers'" in estimated.stdout, estimated.stderr

    trained = parties.train()
    assert trained.returncode == 0, trained.stderr
    chosen = [people.index(name) for name in order]
    encoded = np.column_stack(
        [x[:, 0], x[:, 1], x[:, 2], *(colour == name for name in ("blue", "green", "red")), x[:, 3]]
    ).astype(np.float32)[chosen]
    assert_lossless(parties, encoded, label[chosen])
    share = ModelStore(parties.folder / "retail").passive("m")
    assert share.lookup_table.feature_names == ("colour=blue", "colour=green", "colour=red", "d")

    # Somebody in all three tables is scored, by an id that is spelt as another party spells it.
    write_csv(parties.folder / "ids.csv", ("id",), [(f"{people[min(common)].lower()} ",)])
    scored = parties.fedmq("predict", "bank.toml", "ids.csv", "-o", "scores.csv", "--json")
    assert scored.returncode == 0, scored.stderr
    everybody = parties.fedmq("predict", "bank.toml", "--all-aligned", "-o", "all.csv", "--json")
    assert everybody.returncode == 0, everybody.stderr
    assert json.loads(everybody.stdout)["rows"] == len(common)
    with (parties.folder / "all.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == list(order)

    # A table that changed since is not trained on.
    with sqlite3.connect(parties.folder / "retail.sqlite") as database:
        database.execute("UPDATE people SET d = d + 1")
    database.close()
    parties.folder.joinpath("bank.train.toml").write_text(
        parties.folder.joinpath("bank.train.toml").read_text().replace('"m"', '"m2"')
    )
    line = one_line(parties.train(), 6)
    assert (
        "retail: its data, or what [data] reads of it, changed since alignment 'customers' was made"
        in line
    )
    assert not (parties.folder / "bank" / "models" / "m2.json").exists()


@pytest.mark.long
def test_a_training_on_an_alignment_can_be_audited(parties: Parties) -> None:
    random = np.random.default_rng(3)
    held = {"bank": range(400), "telco": range(100, 500), "retail": range(600)}
    x = random.normal(size=(600, 3)).round(3)
    label = (x.sum(axis=1) > 0).astype(int)
    for place, (party, rows) in enumerate(held.items()):
        header = ("id", "x", "y") if party == "bank" else ("id", "x")
        shuffled = random.permutation(list(rows))
        lines = [(f"p{r}", x[r, place], label[r])[: len(header)] for r in shuffled]
        write_csv(parties.folder / f"{party}.csv", header, lines)
        parties.configure(party, f'path = "{party}.csv"')
        file = parties.folder / f"{party}.toml"
        file.write_text(f'recordings = "recordings"\n{file.read_text()}')
    parties.run()
    assert parties.align().returncode == 0
    assert parties.train().returncode == 0
    parties.stop()

    def recording(party: str) -> str:
        name = f"recordings/*.{party}.recording"
        return str(max(parties.folder.glob(name), key=lambda path: path.stat().st_mtime_ns))

    labels = [(f"p{r}", label[r]) for r in random.permutation(600)]
    write_csv(parties.folder / "labels.csv", ("id", "y"), labels)
    by_labels = ("--labels", "labels.csv", "--label-column", "y", "--json")
    passive = parties.fedmq("audit", recording("telco"), "--state", "telco", *by_labels)
    assert passive.returncode == 0, passive.stderr
    found = {finding["attack"]: finding for finding in json.loads(passive.stdout)["findings"]}
    assert found["gradients told"]["value"] == 1  # plain tells all, if the rows are the right ones
    features = ("--features", "telco=telco.csv", "--json")
    active = parties.fedmq("audit", recording("bank"), "--state", "bank", *features)
    assert active.returncode == 0, active.stderr
    assert any(finding["succeeds"] for finding in json.loads(active.stdout)["findings"])

    of_scores = ("--labels", "bank.csv", "--label-column", "y", "--model", "m", "--state", "bank")
    tables = ("--features", "telco=telco.csv", "--features", "retail=retail.csv")
    asked = ("audit", recording("bank"), *tables, *of_scores, "--json", "--share", "retail=retail")
    scores = parties.fedmq(*asked, "--share", "telco=telco")
    assert scores.returncode == 0, scores.stderr
    attacks = {finding["attack"] for finding in json.loads(scores.stdout)["findings"]}
    assert {"leaves from scores", "leaves by lies"} <= attacks
    assert "the lookup table of telco" in one_line(parties.fedmq(*asked), 3)
    assert "write PARTY=STATE" in one_line(parties.fedmq(*asked, "--share", "telco"), 3)

    line = one_line(parties.fedmq("audit", recording("telco"), *by_labels), 3)
    assert "on the alignment 'customers': give the state folder" in line
    write_csv(parties.folder / "labels.csv", ("id", "y"), labels[:10])
    line = one_line(parties.fedmq("audit", recording("telco"), "--state", "telco", *by_labels), 4)
    assert "--labels: there is no row of" in line


def assert_lossless(parties: Parties, encoded: NDArray[np.float32], label: NDArray[Any]) -> None:
    active = ModelStore(parties.folder / "bank").active("m")
    tables = [active.lookup_table]
    tables += [
        ModelStore(parties.folder / party).passive("m").lookup_table for party in parties.names[1:]
    ]
    params = TrainParams.model_validate(PARAMS)
    bins = BinMatrix.of(encoded, Cuts.of(encoded, params.max_bin))
    reference = train_reference(bins, label.astype(np.float32), params)
    joined = [PooledTree.of(tree, tables) for tree in active.trees]
    parity = compare(reference, joined, bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total > 20


def begun_among(parties: Parties, count: int) -> subprocess.Popen[str]:
    """An alignment of ``count`` ids that has begun."""
    stand(parties, {party: [f"p{number}" for number in range(count)] for party in parties.names})
    for party in parties.names:
        parties.configure(party, f'path = "{party}.csv"')
    parties.run()
    asking = parties.begin_to_align()
    assert asking.stderr is not None
    while not re.search("aligning, ids [1-9]", line := asking.stderr.readline()):
        assert line, "the alignment ended before it began"
    return asking


@pytest.mark.long
@pytest.mark.parametrize("victim", ["telco", "retail"])
def test_a_party_that_dies_in_mid_alignment_comes_back_and_it_begins_anew(
    parties: Parties, victim: str
) -> None:
    asking = begun_among(parties, 6_000)
    parties.kill(victim)
    assert parties.stored() == []
    parties.run(victim)

    err = asking.communicate(timeout=90)[1]
    assert asking.returncode == 0, err
    assert (
        f"{victim} was restarted, a new attempt is due" in (parties.folder / "bank.log").read_text()
    )
    deadline = time.monotonic() + 60
    while len(parties.stored()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert parties.aligned("bank") == parties.aligned("telco") == parties.aligned("retail")
    assert len(parties.aligned("bank")) == 6_000
    assert parties.train().returncode == 0


@pytest.mark.long
def test_when_the_asking_party_dies_the_alignment_ends_and_says_what_to_do(
    parties: Parties,
) -> None:
    asking = begun_among(parties, 6_000)
    parties.kill("bank")
    err = asking.communicate(timeout=60)[1]
    assert asking.returncode == 7
    assert "repeat any other request" in err.splitlines()[-1]
    parties.run("bank")
    assert parties.stored() == []

    stand(parties, {party: [f"p{number}" for number in range(500)] for party in parties.names})
    done = parties.align()
    assert done.returncode == 0, done.stderr
    assert len(parties.aligned("retail")) == 500

    stand(parties, {"bank": ["a", "b"], "telco": ["c"], "retail": ["a", "c"]})
    assert "no id in common" in one_line(parties.align(), 4)


def test_what_is_wrong_is_one_line_with_an_exit_code_and_nothing_is_written(
    parties: Parties,
) -> None:
    for party in parties.names:
        policy = "smallest_alignment = 3" if party == "retail" else ""
        parties.configure(party, f'path = "{party}.csv"', policy)
    parties.run()

    stand(parties, {"bank": ["a", "b", "d"], "telco": ["c", "e", "f"], "retail": ["a", "c", "e"]})
    nothing_common = one_line(parties.align(), 4)

    stand(parties, {party: ["a", "b", f"only {party}"] for party in parties.names})
    line = one_line(parties.align(), 4)
    assert "fewer ids in common than the 3 that retail wants" in line
    assert line == nothing_common

    stand(parties, {"bank": ["a", "b"], "telco": ["a", "b", "c"], "retail": ["a", "b", "c"]})
    assert "retail aligns with lists of 3 to 10000000 ids" in one_line(parties.align(), 6)

    stand(parties, {"bank": ["a", "a"], "telco": ["a"], "retail": ["a"]})
    assert "1 ids are repeated, such as 'a' in line 3" in one_line(parties.align(), 4)

    stand(parties, {"bank": ["a"], "telco": ["a", "", "b"], "retail": ["a"]})
    line = one_line(parties.align(), 6)
    assert "telco refused: its own ids could not be read; its log says why" in line
    assert "the id is empty" in (parties.folder / "telco.log").read_text()

    assert parties.stored() == []
    assert "has no alignment 'customers'" in one_line(parties.train(), 6)
    line = one_line(parties.fedmq("align", "telco.align.toml"), 3)
    assert "telco.align.toml: there is no such file" in line
    (parties.folder / "telco.align.toml").write_text('party = "telco.toml"\nname = "x"\n')
    assert "ask the daemon of bank" in one_line(parties.fedmq("align", "telco.align.toml"), 7)


@pytest.mark.long
def test_rules_that_differ_and_a_database_that_is_away_are_refused(parties: Parties) -> None:
    stand(parties, {party: ["a"] for party in parties.names})
    parties.configure("bank", 'path = "bank.csv"')
    parties.configure("telco", 'path = "telco.csv"\nnormalise = ["digits"]')
    parties.configure("retail", 'path = "retail.csv"')
    parties.run()
    line = one_line(parties.align(), 6)
    assert "telco refused: telco normalises ids by digits, bank by trim" in line

    parties.kill("bank")
    url = "postgresql+psycopg://fedmq:secret@127.0.0.1:1/db"
    parties.configure("bank", f'type = "sql"\nurl = "{url}"\nquery = "SELECT 1 AS id"')
    parties.run("bank")
    line = one_line(parties.align(), 4)
    assert "no connection" in line and "secret" not in line
    assert parties.stored() == []


@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here")
@pytest.mark.long
@pytest.mark.parametrize("rule", ["first", "last"])
def test_repeated_ids_of_the_overlap_fixture_align_under_either_rule(
    tmp_path: Path, node: RabbitNode, rule: str
) -> None:
    parties = Parties(tmp_path, node, ("bank", "telco"))
    section = f'path = "{DATA}/overlap_active.csv"\nignore = ["mock_id"]\n'
    parties.configure("bank", section + f'duplicates = "{rule}"')
    telco = f'path = "{DATA}/overlap_passive.csv"\nignore = ["sample_id"]\n'
    parties.configure("telco", telco + f'duplicates = "{rule}"')
    try:
        parties.run()
        done = parties.align()
        assert done.returncode == 0, done.stderr
        with (DATA / "overlap_active.csv").open() as file:
            bank = {row["id"] for row in csv.DictReader(file)}
        with (DATA / "overlap_passive.csv").open() as file:
            telco_ids = {row["id"] for row in csv.DictReader(file)}
        assert set(parties.aligned("bank")) == bank & telco_ids
        assert parties.aligned("bank") == parties.aligned("telco")
        assert json.loads(done.stdout)["own_ids"] == len(bank)
        trained = parties.train()
        assert trained.returncode == 0, trained.stderr
    finally:
        parties.stop()


@pytest.mark.long
@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here")
def test_credit_2_shuffled_and_a_third_removed_on_each_side_equals_xgboost_node_by_node(
    tmp_path: Path, node: RabbitNode
) -> None:
    parties = Parties(tmp_path, node, ("bank", "telco"))
    random = np.random.default_rng(0)
    tables = {}
    for party, name in (("bank", "active"), ("telco", "passive")):
        with (DATA / f"credit2_{name}.csv").open() as file:
            header, *rows = list(csv.reader(file))
        tables[party] = {row[0]: row[1:] for row in rows}
        kept = random.permutation(len(rows))[: len(rows) * 2 // 3]
        names = ["y" if name == "default.payment.next.month" else name for name in header]
        write_csv(parties.folder / f"{party}.csv", names, [rows[row] for row in kept])
        parties.configure(party, f'path = "{party}.csv"')
    try:
        parties.run()
        done = parties.align()
        assert done.returncode == 0, done.stderr
        order = parties.aligned("bank")
        assert order == parties.aligned("telco") and 12_000 < len(order) < 15_000
        trained = parties.train()
        assert trained.returncode == 0, trained.stderr
        bank = np.array([tables["bank"][person] for person in order], dtype=np.float64)
        telco = np.array([tables["telco"][person] for person in order], dtype=np.float64)
        joined = np.hstack([bank[:, 1:], telco]).astype(np.float32)
        assert_lossless(parties, joined, bank[:, 0])
    finally:
        parties.stop()


def test_shared_people_are_counted_before_anybody_aligns(parties: Parties) -> None:
    stand(parties, {"bank": range(60), "telco": range(20, 90), "retail": range(30, 99)})
    parties.configure("bank", 'path = "bank.csv"')
    for party in ("telco", "retail"):
        policy = 'smallest_alignment = 25\noverlap = "exact"'
        parties.configure(party, f'path = "{party}.csv"', policy)
    parties.run()
    done = parties.fedmq("align", "bank.align.toml", "--count")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 people are shared by bank, telco, retail; 60 are here")
    assert parties.stored() == []
