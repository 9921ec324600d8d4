"""What the benchmark beside SecretFlow asks of fedmq's parties, and prints."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.estimate import Job, Parties
from benchmarks.secretflow import (
    FASTER,
    WIDE_BINS,
    WIDE_DEPTH,
    Row,
    files_of,
    table_of,
    told_by_alice,
)
from benchmarks.wide_area_link import Link
from benchmarks.wide_memory import Shape, write_tables
from fedmq import TrainParams
from fedmq.boosting.params import OLDEST

FAILING = """
import sys, time
if sys.argv[1] == "bob":
    sys.exit(1)
time.sleep(60)
"""
PORTS = """
import contextlib, json, socket, sys
party, ports = sys.argv[1], json.loads(sys.argv[2])["ports"]
place = ("127.0.0.1", ports["alice"])
if party == "bob":
    while True:  # a relay closes a connection where nobody listens behind it yet
        with contextlib.suppress(ConnectionError), socket.create_connection(place) as connection:
            connection.sendall(json.dumps(ports).encode())
            if connection.recv(1):
                sys.exit()
with socket.create_server(place) as server:
    connection, _ = server.accept()
    heard = json.loads(connection.recv(1000))
    connection.sendall(b"1")
print("of a library")
print(json.dumps({"seconds": 1.5, "alice": ports, "bob": heard}))
"""


def test_a_job_says_its_bins_where_they_are_not_those_of_the_others(tmp_path: Path) -> None:
    assert Job("credit2", "ou", 6).name == "Credit 2, ou, depth 6"
    job = Job("wide", "ou", WIDE_DEPTH, bins=WIDE_BINS)
    assert job.name == "wide, ou, depth 4, 127 bins"
    file = Parties(tmp_path, tmp_path, "amqp://127.0.0.1:5672/").prepare(job, 4)
    assert "max_bin = 127\n" in file.read_text()


def test_secretflow_reads_the_files_that_are_written(tmp_path: Path) -> None:
    params = TrainParams(max_depth=2, max_bin=8, xgboost_arithmetic=OLDEST)
    write_tables(tmp_path, Shape(100, 2, 2), params)
    assert all(file.exists() for file in files_of(tmp_path).values())


def test_ratios_stand_below_the_engines_that_they_are_of() -> None:
    rows: list[Row] = [
        ("2 x (1 + 1)", {"fedmq, ou": 1.5, "SecretFlow, ou": 1234.5, "XGBoost": None}),
        (FASTER, {"fedmq, ou": 823.0}),
    ]
    assert table_of(rows).splitlines()[2:] == [
        "| 2 x (1 + 1) | 1.5 | 1,234 | failed |",
        f"| {FASTER} | 823 |  |  |",
    ]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that stands for a program of SecretFlow's parties."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stands_for_secretflow.py"


def test_alice_reaches_bob_over_the_link_and_listens_at_her_own_port(program: Path) -> None:
    program.write_text(PORTS)
    told = told_by_alice(Path(sys.executable), program.stem, {}, Link(100, 50))
    assert told is not None
    assert told["seconds"] == 1.5
    assert all(told["alice"][party] != told["bob"][party] for party in ("alice", "bob"))


def test_nobody_waits_for_a_bob_who_has_failed(program: Path) -> None:
    program.write_text(FAILING)
    begun = time.monotonic()
    assert told_by_alice(Path(sys.executable), program.stem, {}) is None
    assert time.monotonic() - begun < 50
