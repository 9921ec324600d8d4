"""Daemons that are killed, stopped, paused and started again, one thing at a time."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import TrainingJob
from tests.chaos.federation import FEDMQ, PARTIES, ChaosFederation, DaemonProcess
from tests.forked_command import forks
from tests.how_often import seldom
from tests.rabbitmq_node import RabbitNode

TREES = 8


@pytest.fixture(scope="module")
def federation(
    node: RabbitNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChaosFederation]:
    """Running daemons, which have trained the model ``calm`` without trouble."""
    federation = ChaosFederation(tmp_path_factory.mktemp("daemons"), node)
    federation.start()
    federation.train("calm", TREES)
    federation.await_shares(["calm"], 60)
    yield federation
    federation.close()


def begun(status: dict[str, Any]) -> bool:
    return bool(status) and status["done"] >= 2


def at_rest(federation: ChaosFederation, session: str) -> None:
    """Pause the session, as soon as there is one, and wait until it rests."""
    federation.await_status(session, bool)
    federation.ask("bank", "pause", session=session)
    federation.await_status(session, lambda status: status["state"] == "paused")


@pytest.mark.parametrize("victim", [PARTIES[0], *seldom(*PARTIES[1:])])
def test_a_killed_party_goes_on_by_itself(federation: ChaosFederation, victim: str) -> None:
    model = f"without-{victim}"
    session = federation.train(model, TREES)
    done = federation.await_status(session, begun)["done"]
    federation.daemons[victim].kill()

    seconds = federation.daemons[victim].start()
    federation.await_shares([model], 60)

    assert federation.equal(model, "calm")
    assert seconds < 15  # on a free machine 1 to 2; a busy one is no reason to fail
    status = federation.session(session)
    assert status["attempt"] >= 2 or done == TREES


@pytest.mark.long
def test_noise_is_not_drawn_anew_for_a_tree_that_a_crash_has_cost(
    federation: ChaosFederation,
) -> None:
    noise = {"epsilon": 20.0}
    session = federation.train("noisy", TREES, "ldp", noise)
    federation.await_status(session, begun)
    federation.bank.kill()
    federation.bank.start()
    federation.await_shares(["noisy"], 60)

    seed = federation.job("noisy")["engine_options"]["noise_seed"]
    federation.train("undisturbed", TREES, "ldp", {**noise, "noise_seed": seed})
    federation.train("other-noise", TREES, "ldp", noise)
    federation.await_shares(["undisturbed", "other-noise"], 60)
    assert federation.equal("noisy", "undisturbed")
    assert not federation.equal("noisy", "other-noise")


@pytest.mark.long
def test_a_training_can_be_watched_again_by_whoever_drives_it(
    federation: ChaosFederation,
) -> None:
    session = federation.train("watched", TREES)
    at_rest(federation, session)

    words = ["follow", str(federation.bank.file), session]
    pipe = subprocess.PIPE
    with subprocess.Popen([*FEDMQ, *words], stdout=pipe, stderr=pipe, text=True) as following:
        assert following.stderr is not None
        shown = following.stderr.readline()  # it watches
        federation.ask("bank", "resume", session=session)
        summary, further = following.communicate(timeout=60)

    assert following.returncode == 0
    assert summary.startswith(f"model watched: {TREES} trees in ")
    assert f"training, trees {TREES}/{TREES}" in shown + further
    with pytest.raises(DaemonError, match="is not a training of this party"):
        federation.ask("telco", "follow", session=session)


@pytest.mark.long
def test_two_sessions_at_once_outlive_a_stop_in_good_order(federation: ChaosFederation) -> None:
    first, second = federation.train("first", TREES), federation.train("second", TREES)
    federation.await_status(first, begun)
    federation.await_status(second, bool)

    before = time.monotonic()
    assert federation.bank.terminate() == 0
    assert time.monotonic() - before < 5
    federation.bank.start()

    federation.await_shares(["first", "second"], 60)
    assert federation.equal("first", "calm")
    assert federation.equal("second", "calm")


@pytest.mark.long
def test_a_paused_training_rests_also_after_a_restart(federation: ChaosFederation) -> None:
    session = federation.train("paused", TREES)
    federation.await_status(session, begun)
    federation.ask("bank", "pause", session=session)
    resting = federation.await_status(session, lambda status: status["state"] == "paused")

    federation.bank.terminate()
    federation.bank.start()
    federation.await_status(session, lambda status: status.get("state") == "paused")
    assert 2 <= resting["done"] < TREES
    assert federation.session(session)["done"] == resting["done"]
    assert not federation.shares("paused")

    federation.ask("bank", "resume", session=session)
    federation.await_shares(["paused"], 60)
    assert federation.equal("paused", "calm")


def test_a_stopped_party_is_waited_for_and_named(federation: ChaosFederation) -> None:
    session = federation.train("waited", TREES)
    federation.await_status(session, begun)
    federation.daemons["telco"].freeze()
    try:
        status = federation.await_status(session, lambda status: status["state"] == "waiting")
    finally:
        federation.daemons["telco"].thaw()

    assert status["waiting"][0].startswith("waiting for telco (last seen ")
    federation.await_shares(["waited"], 60)
    assert federation.equal("waited", "calm")
    assert federation.session(session)["attempt"] == 1


@pytest.mark.parametrize("who", ["bank", *seldom("telco")])
def test_a_cancelled_training_ends_everywhere(federation: ChaosFederation, who: str) -> None:
    model = f"cancelled-by-{who}"
    session = federation.train(model, 50)
    federation.await_status(session, begun)
    federation.ask(who, "cancel", session=session)

    ends = federation.await_ends(model)
    assert all(f"{who} cancelled the session" in reason for _, reason in ends.values())
    assert not federation.shares(model)


@contextmanager
def full_disk(daemon: DaemonProcess) -> Iterator[None]:
    daemon.fill_disk()
    try:
        yield
    finally:
        daemon.clear_disk()


@contextmanager
def no_note_of_openings(daemon: DaemonProcess) -> Iterator[None]:
    opened_sessions, aside = daemon.state / "openings.jsonl", daemon.state / "aside.jsonl"
    opened_sessions.rename(aside)
    opened_sessions.mkdir()
    try:
        yield
    finally:
        opened_sessions.rmdir()
        aside.rename(opened_sessions)


@contextmanager
def another_cell(daemon: DaemonProcess, cell: str) -> Iterator[None]:
    """A table whose first number is ``cell`` instead."""
    table = daemon.file.with_name("data.csv")
    former = table.read_text()
    number = next(each for each in former.splitlines()[1].split(",")[2:] if each)
    table.write_text(former.replace(number, cell, 1))
    try:
        yield
    finally:
        table.write_text(former)


@pytest.mark.long
@pytest.mark.parametrize("refusing", [full_disk, no_note_of_openings])
def test_a_session_that_is_taken_up_waits_for_a_party_whose_disk_refuses(
    federation: ChaosFederation,
    refusing: Callable[[DaemonProcess], AbstractContextManager[None]],
) -> None:
    model, telco = refusing.__name__, federation.daemons["telco"]
    session = federation.train(model, TREES)
    federation.await_status(session, begun)
    with refusing(telco):
        federation.bank.kill()
        federation.bank.start()
        deadline = time.monotonic() + 180
        while "cannot be" not in federation.ask("telco", "status")["store"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    federation.await_shares([model], 60)

    assert federation.equal(model, "calm")
    assert federation.ask("telco", "status")["dead_letters"] == 0
    assert not federation.ask("telco", "status")["store"]


@pytest.mark.long
@pytest.mark.parametrize("victim", ["bank", "telco"])
def test_data_that_are_out_of_reach_after_a_restart_are_waited_for(
    federation: ChaosFederation, victim: str
) -> None:
    model, daemon = f"out-of-reach-at-{victim}", federation.daemons[victim]
    session = federation.train(model, TREES)
    at_rest(federation, session)
    daemon.terminate()
    table = daemon.file.with_name("data.csv")
    table.rename(table.with_suffix(".away"))
    daemon.start()
    daemon.await_words("data.csv: there is no such file")
    time.sleep(2)
    table.with_suffix(".away").rename(table)

    at_rest(federation, session)
    federation.ask("bank", "resume", session=session)
    federation.await_shares([model], 60)

    assert federation.equal(model, "calm")


@pytest.mark.long
@pytest.mark.parametrize("victim", ["bank", "telco"])
def test_why_a_table_cannot_be_read_stays_with_its_party(
    federation: ChaosFederation, victim: str
) -> None:
    model, daemon = f"unreadable-at-{victim}", federation.daemons[victim]
    session = federation.train(model, 50)
    at_rest(federation, session)
    daemon.terminate()
    private = f"private-{victim}"
    with another_cell(daemon, private):
        daemon.start()
        ends = federation.await_ends(model)

    assert {state for state, _ in ends.values()} == {"failed"}
    assert "its own data could not be loaded" in ends[victim][1]
    daemon.await_words(repr(private))
    for party, each in federation.daemons.items():
        assert private not in ends[party][1]
        assert party == victim or private not in each.said


def test_a_job_asked_twice_at_once_is_one_training(federation: ChaosFederation) -> None:
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(federation.train, "twin", 100) for _ in range(2)]
    [session] = {asked.result() for asked in both}
    with pytest.raises(DaemonError, match="'twin' is already in training by another job"):
        federation.train("twin", 101)
    federation.await_status(session, bool, "telco")
    federation.await_status(session, bool, "retail")
    federation.ask("bank", "cancel", session=session)
    federation.await_ends("twin")


@pytest.mark.long
@pytest.mark.parametrize("victim", ["bank", "telco"])
def test_a_training_does_not_go_on_with_a_table_of_other_values(
    federation: ChaosFederation, victim: str
) -> None:
    model, daemon = f"changed-at-{victim}", federation.daemons[victim]
    session = federation.train(model, 50)
    federation.await_status(session, begun)
    daemon.terminate()
    with another_cell(daemon, "77"):
        daemon.start()
        ends = federation.await_ends(model)

    assert {state for state, _ in ends.values()} == {"failed"}
    reason = f"the table of {victim} has other values than when"
    assert reason in ends[victim][1]
    assert "train anew with: fedmq train" in ends[victim][1]
    federation.bank.await_words(reason)


@pytest.mark.long
def test_a_party_may_cancel_what_waits_for_the_others(federation: ChaosFederation) -> None:
    session = federation.train("abandoned", 50)
    federation.await_status(session, begun)
    federation.bank.terminate()
    telco = federation.daemons["telco"]
    telco.terminate()
    telco.start()
    assert session in federation.ask("telco", "status")["idle"][0]
    federation.ask("telco", "cancel", session=session)

    federation.bank.start()
    deadline = time.monotonic() + 60
    while (federation.settled("abandoned") or ("running", ""))[0] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "telco cancelled the session" in (federation.settled("abandoned") or ("", ""))[1]


@pytest.mark.long
def test_who_has_cancelled_waits_no_longer_once_the_others_know(
    federation: ChaosFederation,
) -> None:
    session = federation.train("left", 50)
    federation.await_status(session, begun)
    federation.bank.kill()
    federation.ask("telco", "cancel", session=session)
    federation.await_status(session, lambda status: bool(status["waiting"]), "telco")

    federation.bank.start()
    federation.await_ends("left")
    for party in federation.daemons:
        federation.await_status(session, lambda status: not status["waiting"], party)


def keys(*words: object) -> dict[str, Any]:
    """What ``fedmq keys`` answers."""
    done = forks().run(["keys", *map(str, words), "--json"])
    done.check_returncode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.long
def test_keys_change_under_a_training_without_a_restart(federation: ChaosFederation) -> None:
    files = {party: daemon.file for party, daemon in federation.daemons.items()}
    before = {party: federation.ask(party, "status")["refused"] for party in PARTIES}
    session = federation.train("rotated", TREES)
    federation.await_status(session, begun)

    telco = keys("rotate", files["telco"])
    assert telco["daemon"] == "the running daemon has taken it up"
    for party in ("bank", "retail"):
        keys("trust", files[party], "telco", telco["public"])
    keys("rotate", files["telco"], "--finish")
    for party in ("bank", "retail"):
        keys("trust", files[party], "telco", telco["public"], "--only")
    federation.await_shares(["rotated"], 60)
    federation.train("after-rotation", TREES)
    federation.await_shares(["after-rotation"], 60)

    assert federation.equal("rotated", "calm")
    assert federation.equal("after-rotation", "calm")
    assert federation.session(session)["attempt"] == 1
    assert before == {party: federation.ask(party, "status")["refused"] for party in PARTIES}
    assert [each["public"] for each in keys("show", files["bank"]) if each["party"] == "telco"] == [
        telco["public"]
    ]


def test_a_replaced_key_is_refused_until_it_is_trusted(federation: ChaosFederation) -> None:
    """The control: a running daemon really uses what it has taken up."""
    files = {party: daemon.file for party, daemon in federation.daemons.items()}
    retail = keys("rotate", files["retail"], "--now")
    before = federation.ask("retail", "status")["refused"].get("Untrusted", 0)
    session = federation.train("untrusted", TREES)
    deadline = time.monotonic() + 60
    while federation.ask("retail", "status")["refused"].get("Untrusted", 0) == before:
        assert time.monotonic() < deadline, federation.tell()
        time.sleep(0.05)
    assert federation.session(session)["done"] == 0

    for party in ("bank", "telco"):
        only = ("--only", "--replace-key", "retail")
        keys("trust", files[party], "retail", retail["public"], *only)
    federation.await_shares(["untrusted"], 60)
    assert federation.equal("untrusted", "calm")


def test_a_policy_changes_on_sighup(federation: ChaosFederation) -> None:
    telco = federation.daemons["telco"]
    former = telco.file.read_text()
    telco.file.write_text(former.replace('engines = ["plain", ', "engines = ["))
    try:
        telco.reload()
        federation.train("refused-by-policy", TREES)
        assert (
            "does not take part with engine 'plain'"
            in federation.await_ends("refused-by-policy")["telco"][1]
        )
        telco.file.write_text("nonsense")
        telco.reload("no change applies")
    finally:
        telco.file.write_text(former)
    telco.reload()
    federation.train("allowed-again", TREES)
    federation.await_shares(["allowed-again"], 60)


def test_only_the_active_party_pauses(federation: ChaosFederation) -> None:
    with pytest.raises(DaemonError, match="ask the daemon of bank to pause"):
        federation.ask("telco", "pause", session="any")
    with pytest.raises(DaemonError, match="does not run here"):
        federation.ask("bank", "pause", session="any")


@pytest.mark.parametrize(
    ("engine", "options", "params"),
    [
        ("plain", {}, {"early_stopping_rounds": 2}),
        ("paillier", {"key_bits": 513, "allow_weak_keys": True}, {}),
    ],
)
def test_a_training_that_cannot_begin_leaves_no_session_and_nobody_waiting(
    federation: ChaosFederation, engine: str, options: dict[str, Any], params: dict[str, Any]
) -> None:
    job = TrainingJob(
        model="unbegun", engine=engine, engine_options=options, params=TrainParams(**params)
    )
    for _ in range(2):  # the name is free again
        with pytest.raises(DaemonError, match=r"early_stopping_rounds needs|513 bits cannot be"):
            federation.ask("bank", "train", job=job.model_dump(mode="json"))

    status = federation.ask("bank", "status")
    assert "unbegun" not in str(status["idle"])
    mine = [each for each in status["sessions"] if each["model"] == "unbegun"]
    assert not [each for each in mine if each["waiting"]]
