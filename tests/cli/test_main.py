from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmq.boosting.params import TrainParams
from fedmq.cli import main as entry
from fedmq.cli.demo import demo
from fedmq.cli.output import print_error, print_result
from fedmq.errors import ConfigError, FedmqError
from tests.cli.command import fedmq
from tests.how_often import seldom
from tests.party.daemons import FEDMQ


def test_help_lists_the_commands() -> None:
    outcome = fedmq("--help")
    assert outcome.code == 0
    for name in ("init", "run", "train", "predict", "status", "cancel", "models", "demo"):
        assert f"\n  {name} " in outcome.out


def test_the_version_is_the_packages() -> None:
    assert version("fedmq") in fedmq("--version").out


@pytest.mark.parametrize("arguments", [("dance",), ("train",), ("init", "f"), ("train", "--fast")])
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    outcome = fedmq(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("Usage: fedmq")


def test_a_wrong_file_ends_with_3_and_one_line() -> None:
    outcome = fedmq("train", "nowhere.toml")
    assert outcome.code == 3
    assert outcome.err == "fedmq: nowhere.toml: there is no such file\n"


def test_every_error_has_an_exit_code_of_its_own() -> None:
    def leaves(error: type[FedmqError]) -> list[type[FedmqError]]:
        return [error, *(leaf for child in error.__subclasses__() for leaf in leaves(child))]

    direct = FedmqError.__subclasses__()
    codes = [error.exit_code for error in direct]
    assert len(set(codes)) == len(codes)
    assert not {0, 1, 2, 130} & set(codes)
    for error in direct:
        assert {leaf.exit_code for leaf in leaves(error)} == {error.exit_code}


def test_results_and_errors_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(["\x1b[2J", "Zürich"], False, "\n".join)
    print_error(ConfigError("telco gave up: \x1b]0;x\x07"))
    shown = capsys.readouterr()
    assert shown.out == "\\x1b[2J\nZürich\n"
    assert shown.err == "fedmq: telco gave up: \\x1b]0;x\\x07\n"


def test_what_is_no_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"metrics": {"auc": float("nan")}, "list": (1.5, float("inf"))}, True, str)
    assert json.loads(capsys.readouterr().out) == {"metrics": {"auc": None}, "list": [1.5, None]}


@pytest.mark.parametrize("command", [("dead", "list"), ("broker", "check"), ("run",)])
def test_a_broker_that_is_away_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = f"127.0.0.1:{taken.getsockname()[1]}"
    folder = tmp_path / "f"
    parties = ("--active", "bank", "--passive", "telco")
    assert fedmq("init", folder, *parties, "--broker", away, "--example").code == 0
    outcome = fedmq(*command, folder / "telco" / "party.toml")
    assert outcome.code == 5
    assert outcome.error.startswith(f"broker {away} cannot be reached")
    assert len(outcome.err.splitlines()) == 1


def test_an_error_of_several_lines_is_printed_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ConfigError("one\n  two\nthree")

    monkeypatch.setattr(entry.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err == "fedmq: one two three\n"


def test_the_demo_ends_with_one_line_of_json() -> None:
    outcome = fedmq("demo", "--trees", "2", "--engine", "plain")
    assert outcome.code == 0
    result = json.loads(outcome.out)
    assert list(result) == [
        "parties",
        "trees",
        "sums",
        "test_auc",
        "xgboost_nodes_identical",
        "seconds_per_tree",
        "bytes_sent",
    ]
    assert (result["parties"], result["trees"], result["sums"]) == (3, 2, "shown")
    identical, total = map(int, result["xgboost_nodes_identical"].split("/"))
    assert identical == total > 0
    assert result["test_auc"] > 0.9
    *progress, last = outcome.err.splitlines()
    assert last.startswith("next: fedmq init my-federation --active bank")
    assert [line.split("  ")[0] for line in progress] == [
        "training, trees 1/2",
        "training, trees 2/2",
    ]


@pytest.mark.parametrize("depth", seldom(1, 3))
def test_the_demo_hides_sums_and_has_the_nodes_of_xgboost(
    monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    def smaller(**params: Any) -> TrainParams:
        bins = params["max_bin"] if depth == params["max_depth"] else 4
        return TrainParams(**{**params, "max_depth": depth, "max_bin": bins})

    monkeypatch.setattr("fedmq.cli.demo.TrainParams", smaller)
    outcome = CliRunner().invoke(demo, ["--trees", "1"])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    assert result["sums"] == "hidden"
    identical, total = map(int, result["xgboost_nodes_identical"].split("/"))
    assert identical == total > 0


def test_an_unknown_engine_is_refused_by_the_demo() -> None:
    outcome = fedmq("demo", "--engine", "magic")
    assert outcome.code == 3
    assert outcome.error == (
        "simulate: engine: 'magic' is unknown; use plain, paillier, ou, lattice, smm1, smm2, ldp"
    )


@pytest.mark.long
def test_an_interrupted_demo_ends_with_130() -> None:
    process = subprocess.Popen(
        # a shell's background job ignores interrupts, and so would the tests that run in it
        ["env", "--default-signal=INT", FEDMQ, "demo", "--trees", "200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("training, trees 1/200")
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 130
    assert out == ""
