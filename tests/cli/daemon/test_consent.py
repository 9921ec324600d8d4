"""What an owner reads who is asked, and how the answers are typed; on real daemons."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedmq.party.operations.control import request_daemon
from tests.cli.command import fedmq
from tests.party.daemons import ACTIVE, FEDMQ, ExampleFederation

OPTIONS = """
engine = "paillier"
engine_options = { key_bits = 512, allow_weak_keys = true }
[params]
num_boost_round = 2
max_depth = 2
max_bin = 8
"""
ASKED = ("telco", "retail")


@pytest.fixture(scope="module")
def asking(demo: ExampleFederation) -> ExampleFederation:
    """Daemons whose owners are asked, but for the active party's."""
    for party in ASKED:
        path = demo.config(party)
        path.write_text(path.read_text().replace("[policy]\n", '[policy]\nconsent = "ask"\n', 1))
        request_daemon(demo.state(party), {"do": "reload"})
    return demo


@contextmanager
def training(demo: ExampleFederation, model: str) -> Iterator[subprocess.Popen[str]]:
    """``fedmq train`` while it waits."""
    job = demo.job(f'model = "{model}"\n{OPTIONS}')
    command = [FEDMQ, "train", str(job), "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def waiting(demo: ExampleFederation, party: str) -> str:
    """The request that waits at ``party``, once there is one."""
    for _ in range(1200):
        found: list[Any] = request_daemon(demo.state(party), {"do": "inbox"})
        for request in found:
            if request["state"] == "waiting":
                return str(request["request"])
        time.sleep(0.05)
    raise AssertionError("nobody was asked")


def test_two_owners_agree_and_the_training_goes_on(asking: ExampleFederation) -> None:
    with training(asking, "agreed") as trained:
        requests = {party: waiting(asking, party) for party in ASKED}
        read = fedmq("inbox", asking.config("telco")).out
        assert "bank asks to train model agreed on" in read
        assert "engine: paillier, keys of 512 bits" in read
        assert "trees: 2, at most 2 deep" in read
        assert "where guessing reaches 0.500" in read
        assert "waiting for your consent: 1" in fedmq("status", asking.config("telco")).out
        assert "waits for telco's consent (until " in fedmq("status", asking.config(ACTIVE)).out
        for party, request in requests.items():
            done = fedmq("approve", asking.config(party), request)
            assert (done.code, done.out) == (0, f"request {request} is approved\n")
        out, err = trained.communicate(timeout=60)
        assert trained.returncode == 0, err
        assert '"model": "agreed"' in out
    log = fedmq("audit-log", "list", asking.config("telco")).out
    assert "owner asked: request " in log
    assert "owner agreed: request " in log


def test_a_refusal_ends_it_with_the_reason(asking: ExampleFederation) -> None:
    with training(asking, "refused") as refused:
        request = waiting(asking, "telco")
        reason = ("--reason", "ask again in May")
        assert fedmq("refuse", asking.config("telco"), request, *reason).code == 0
        _, err = refused.communicate(timeout=60)
        assert refused.returncode == 6
        assert "telco refused: ask again in May" in err
    again = fedmq("approve", asking.config("telco"), request)
    assert again.code == 7
    assert again.error.startswith(f"request {request} no longer waits: refused by ")
    listed = fedmq("inbox", asking.config("telco"), "--all", "--json").result
    assert listed[-1]["reason"] == "telco refused: ask again in May"
    assert fedmq("inbox", asking.config("telco"), "--json").result == []
    unknown = fedmq("refuse", asking.config("telco"), "nothing")
    assert unknown.error.startswith("there is no request nothing; see: fedmq inbox")


def test_alike_shows_what_changes_in_the_file_and_keeps_the_rest(
    asking: ExampleFederation,
) -> None:
    path: Path = asking.config("telco")
    before = path.read_text()
    with training(asking, "alike") as trained:
        request = waiting(asking, "telco")
        unsure = fedmq("approve", path, request, "--alike")
        assert unsure.code == 130 and "+most_trees = 2" in unsure.err
        assert path.read_text() == before
        assert fedmq("approve", path, request, "--alike", "--yes").code == 0
        assert fedmq("approve", asking.config("retail"), waiting(asking, "retail")).code == 0
        assert trained.wait(60) == 0
    assert path.read_text().startswith(before)
    with training(asking, "again") as trained:
        assert fedmq("approve", asking.config("retail"), waiting(asking, "retail")).code == 0
        assert trained.wait(60) == 0


def test_an_activation_takes_a_second_person_here_and_another_one_there(
    asking: ExampleFederation,
) -> None:
    for party in (ACTIVE, "retail"):
        path = asking.config(party)
        path.write_text(path.read_text().replace("[policy]\n", '[policy]\nactivate = "two"\n', 1))
        request_daemon(asking.state(party), {"do": "reload"})
    command = [FEDMQ, "activate", str(asking.config(ACTIVE)), "agreed", "--for", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        try:
            request = waiting(asking, ACTIVE)
            assert " asks to serve model agreed as production" in (
                fedmq("inbox", asking.config(ACTIVE)).out
            )
            alone = fedmq("approve", asking.config(ACTIVE), request)
            assert alone.code == 7
            assert f"request {request} takes another person than who asked" in alone.error
            assert fedmq("refuse", asking.config(ACTIVE), request, "--reason", "no").code == 0
            _, err = it.communicate(timeout=60)
            assert it.returncode == 6
            assert f"fedmq approve {asking.config(ACTIVE)} {request}" in err
            assert "bank refused: no; production stands for no model yet" in err
        finally:
            it.kill()
    path = asking.config(ACTIVE)
    path.write_text(path.read_text().replace('activate = "two"\n', ""))
    request_daemon(asking.state(ACTIVE), {"do": "reload"})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        try:
            request = waiting(asking, "retail")
            read = fedmq("inbox", asking.config("retail")).out
            assert "bank asks to serve model agreed as production" in read
            assert "active party learns: of each person whom it scores, the directions" in read
            assert fedmq("approve", asking.config("retail"), request).code == 0
            _, err = it.communicate(timeout=60)
            assert it.returncode == 0, err
        finally:
            it.kill()
