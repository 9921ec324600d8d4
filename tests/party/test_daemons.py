"""Three ``fedmq run`` processes and the ``fedmq`` command, over a real broker."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aio_pika
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.params import TrainParams
from fedmq.messages.codec import decode
from fedmq.messages.envelope import Envelope
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import LoadActiveTable
from fedmq.party.store.documents import ModelStore
from tests.cli.command import Outcome
from tests.cli.command import fedmq as command
from tests.party.daemons import ACTIVE, PARTIES, PASSIVE, ExampleFederation
from tests.protocol.inspection import leaks, secrets_of
from tests.rabbitmq_node import RabbitNode

PARAMS = """
[params]
num_boost_round = 4
max_depth = 3
max_bin = 16
eval_metric = ["logloss", "auc"]
"""

WEAK = """
engine = "paillier"
engine_options = { key_bits = 512, allow_weak_keys = true }
evaluation = 0.2
"""


@pytest.fixture(scope="module")
def training(demo: ExampleFederation) -> tuple[Outcome, Outcome]:
    """What ``status`` shows right after a training with Paillier and a short key: JSON and text.

    The daemon forgets a session a minute after its end.
    """
    job = demo.job(f'model = "weak"\n{WEAK}{PARAMS}')
    result = command("train", job, "--json").result
    assert result["model"] == "weak"
    assert result["trees"] == 4
    return command("status", demo.config(ACTIVE), "--json"), command("status", demo.config(ACTIVE))


@pytest.fixture(scope="module")
def trained(training: tuple[Outcome, Outcome]) -> str:
    """The model of that training."""
    return "weak"


def table(demo: ExampleFederation, party: str, name: str = "training") -> pd.DataFrame:
    path = demo.table(party).with_name(f"{name}.csv")
    return pd.read_csv(path, index_col="id").sort_index()


def features(demo: ExampleFederation, party: str, name: str = "training") -> pd.DataFrame:
    return table(demo, party, name).drop(columns="label", errors="ignore")


def held_out(demo: ExampleFederation, params: TrainParams, share: float) -> NDArray[np.bool_]:
    config, _ = PartyFile.read(demo.config(ACTIVE))
    return LoadActiveTable(ACTIVE, config.data, params, share, salt="").run().evaluation


def in_process(
    demo: ExampleFederation, share: ActiveShare, evaluation: float
) -> fedmq.SimulatedModel:
    """The same training by ``simulate``, in plain."""
    return fedmq.simulate(
        active=features(demo, ACTIVE),
        label=table(demo, ACTIVE)["label"],
        passive={party: features(demo, party) for party in PASSIVE},
        params=share.params,
        engine="plain",
        evaluation=held_out(demo, share.params, evaluation),
    )


def assert_same_model(demo: ExampleFederation, model: str, evaluation: float) -> None:
    share = ModelStore(demo.state(ACTIVE)).active(model)
    expected = in_process(demo, share, evaluation)
    assert share.parties == PARTIES
    assert share.history == expected.share.history
    assert share.best_iteration == expected.share.best_iteration
    assert share.lookup_table.model_dump_json() == expected.share.lookup_table.model_dump_json()
    assert len(share.trees) == len(expected.share.trees)
    for ours, theirs in zip(share.trees, expected.share.trees, strict=True):
        assert ours.model_dump_json() == theirs.model_dump_json()
    for party in PASSIVE:
        ours = ModelStore(demo.state(party)).passive(model).lookup_table
        theirs = expected.passive_shares[party].lookup_table
        assert ours.model_dump_json() == theirs.model_dump_json()


def read_scores(path: Path) -> dict[str, np.float32]:
    with path.open(newline="") as file:
        return {row["id"]: np.float32(row["score"]) for row in csv.DictReader(file)}


# Training and predicting


def test_the_daemons_train_the_model_of_the_simulation(
    demo: ExampleFederation, trained: str
) -> None:
    assert_same_model(demo, trained, evaluation=0.2)


@pytest.mark.long
def test_a_model_of_a_full_key_is_the_same(demo: ExampleFederation) -> None:
    params = PARAMS.replace("num_boost_round = 4", "num_boost_round = 1")
    job = demo.job(f'model = "strong"\nengine = "paillier"\n{params}')
    shown = command("train", job)
    assert shown.code == 0
    assert "training, trees 1/1" in shown.err
    assert shown.out.startswith("model strong: 1 trees in ")
    assert_same_model(demo, "strong", evaluation=0)


def test_what_a_daemon_writes_down_is_for_its_own_user(
    demo: ExampleFederation, trained: str
) -> None:
    for party in PARTIES:
        state = demo.state(party)
        written = [state, *state.rglob("*")]
        assert {"models", f"{trained}.json", "fedmq.sqlite"} <= {path.name for path in written}
        assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_people_who_were_not_trained_on_are_scored(
    demo: ExampleFederation, trained: str, tmp_path: Path
) -> None:
    ids = demo.table(ACTIVE).with_name("ids.csv")
    output = tmp_path / "scores.csv"
    done = command(
        "predict", demo.config(ACTIVE), ids, "--model", trained, "--output", output, "--json"
    )
    asked = pd.read_csv(ids)["id"].tolist()
    assert done.result == {
        "model": trained,
        "name": None,
        "newest": False,
        "mode": "hop",
        "by_fallback": {},
        "without": [],
        "rows": len(asked),
        "without_score": 0,
        "degraded": {},
        "output": str(output),
    }
    found = read_scores(output)
    assert list(found) == asked
    share = ModelStore(demo.state(ACTIVE)).active(trained)
    model = in_process(demo, share, 0.2)
    expected = model.predict(
        active=features(demo, ACTIVE, "serving").loc[asked],
        passive={party: features(demo, party, "serving").loc[asked] for party in PASSIVE},
    )
    np.testing.assert_array_equal(list(found.values()), expected)
    labels = table(demo, ACTIVE, "serving").loc[asked, "label"]
    assert ((expected > 0.5) == labels).mean() > 0.9


def test_sealed_scores_are_those_of_mode_hop_and_no_way_is_asked_for(
    demo: ExampleFederation, trained: str, tmp_path: Path
) -> None:
    ids = demo.table(ACTIVE).with_name("ids.csv")
    found = {}
    for mode in ("hop", "sealed"):
        output = tmp_path / f"{mode}.csv"
        done = command(
            "predict", demo.config(ACTIVE), ids, "-m", trained, "-o", output, "--margin",
            "--mode", mode, "--json",
        )  # fmt: skip
        assert done.result["mode"] == mode
        found[mode] = read_scores(output)
    walked, sealed = (np.array(list(scores.values())) for scores in found.values())
    assert len(np.unique(walked)) > 10
    assert np.abs(sealed - walked).max() <= 2**-20 * np.abs(walked).max()
    command(
        "predict", demo.config(ACTIVE), ids, "-m", trained, "-o", output, "--margin",
        "--mode", "sealed", "--explain", "--json",
    )  # fmt: skip
    table = pd.read_csv(output)
    parts = table[[*PARTIES, "bias"]].to_numpy()
    np.testing.assert_allclose(parts.sum(axis=1), walked, rtol=1e-4, atol=1e-5)


def test_models_and_status_show_what_happened(
    demo: ExampleFederation, trained: str, training: tuple[Outcome, Outcome]
) -> None:
    active = {
        model["model"]: model for model in command("models", demo.config(ACTIVE), "--json").result
    }
    assert active[trained]["trees"] == 4
    assert active[trained]["metrics"].keys() == {
        "train-logloss", "train-auc", "eval-logloss", "eval-auc",
    }  # fmt: skip
    listed = command("models", demo.config(PASSIVE[0]))
    assert re.search(rf"^{trained} +[0-9-]{{10}} +[0-9]+$", listed.out, re.MULTILINE)
    assert "RECORDS OF THIS PARTY" in listed.out
    in_json, in_text = training
    status = in_json.result
    assert status["connected"]
    assert status["parties"] == list(PARTIES)
    assert status["dead_letters"] == 0
    session = next(entry for entry in status["sessions"] if entry["model"] == trained)
    assert (session["done"], session["total"], session["unit"]) == (4, 4, "tree")
    assert re.search(rf"training +{trained} +[0-9: -]+ +finished$", in_text.out, re.MULTILINE)


# What travels


async def listen(node: RabbitNode, declare: bool) -> list[bytes]:
    """Put a queue behind every message of the federation; then take what lies there."""
    connection = await aio_pika.connect(node.url())
    async with connection, connection.channel() as channel:
        if declare:
            queue = await channel.declare_queue("tap", durable=True)
            await queue.bind("fedmq.demo", "#")
            return []
        queue = await channel.get_queue("tap")
        taken = []
        while message := await queue.get(no_ack=True, fail=False):
            taken.append(message.body)
        await queue.delete()
        return taken


@contextmanager
def tapped(node: RabbitNode) -> Iterator[list[Envelope]]:
    heard: list[Envelope] = []
    asyncio.run(listen(node, declare=True))
    try:
        yield heard
    finally:
        heard += [decode(body) for body in asyncio.run(listen(node, declare=False))]


@pytest.mark.long
def test_no_message_over_the_broker_tells_a_secret(
    demo: ExampleFederation, node: RabbitNode
) -> None:
    # From another first margin a split parts this table's labels: other parties see that.
    job = demo.job(f'model = "tapped"\n{WEAK}{PARAMS}base_score = 0.5\n')
    with tapped(node) as heard:
        assert command("train", job, "--json").result["trees"] == 4
    kinds = {envelope.header.kind for envelope in heard}
    assert {"gradient broadcast", "histogram reply", "split outcome"} <= kinds
    share = ModelStore(demo.state(ACTIVE)).active("tapped")
    shares = {party: ModelStore(demo.state(party)).passive("tapped") for party in PASSIVE}
    secrets = secrets_of(
        {party: features(demo, party).to_numpy(np.float32) for party in PARTIES},
        table(demo, ACTIVE)["label"].to_numpy(np.float32),
        held_out(demo, share.params, 0.2),
        {ACTIVE: share, **shares},
    )
    assert leaks(heard, secrets) == set()


# Refusals: each in one line, and nothing half-written


@contextmanager
def edited(path: Path, before: str, after: str) -> Iterator[None]:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    try:
        yield
    finally:
        path.write_text(text)


def refused(demo: ExampleFederation, model: str, job: str) -> tuple[int, str]:
    """The exit code and error of a training that must leave nothing behind."""
    outcome = command("train", demo.job(f'model = "{model}"\n{job}'), "--json")
    for party in PARTIES:
        assert not [name for name in demo.models(party) if name.startswith(model)]
    return outcome.code, outcome.error


def test_an_engine_that_no_policy_allows_is_refused_with_the_reason(
    demo: ExampleFederation,
) -> None:
    code, error = refused(demo, "open", f'engine = "plain"\n{PARAMS}')
    assert code == 6
    assert error in [
        f"{party} refused the session: {party} does not take part with engine 'plain', "
        "only paillier, ou"
        for party in PASSIVE
    ]


def test_other_ids_are_refused_with_the_reason(demo: ExampleFederation) -> None:
    with edited(demo.table("telco"), "\nP0001,", "\nQ0001,"):
        code, error = refused(demo, "other", WEAK + PARAMS)
    assert code == 6
    assert error.startswith("telco refused the session: the ids do not match: telco and bank hold")
    assert "P0001" not in error
    assert "Q0001" not in error


def test_another_number_of_rows_is_refused_with_the_reason(demo: ExampleFederation) -> None:
    with edited(demo.table("retail"), "\nP0001,", "\nQ0001," + "1," * 9 + "1\nP0001,"):
        code, error = refused(demo, "more", WEAK + PARAMS)
    assert code == 6
    assert error.startswith("retail refused the session: the rows do not match: retail holds")


def test_what_is_wrong_with_a_partys_data_stays_with_that_party(demo: ExampleFederation) -> None:
    telco = demo.table("telco")
    with edited(telco, "\nP0001,", "\nP0001,confidential"):
        code, error = refused(demo, "broken", WEAK + PARAMS)
    assert code == 6
    assert error == (
        "telco refused the session: its own data could not be loaded; its log says why"
    )
    log = demo.daemons["telco"].log.read_text()
    assert f"{telco}, line 2, column 'radius_error': 'confidential" in log
    assert "confidential" not in demo.daemons[ACTIVE].log.read_text()


def test_what_is_wrong_with_the_active_partys_data_is_told_to_its_owner(
    demo: ExampleFederation,
) -> None:
    path = demo.table(ACTIVE)
    with edited(path, "\nP0001,0,", "\nP0001,2,"):
        code, error = refused(demo, "label", WEAK + PARAMS)
    assert code == 4
    assert error == (
        f"bank: {path}, column 'label': label in row 1 is 2; binary:logistic takes 0 and 1"
    )
    with edited(path, "id,label,", "id,outcome,"):
        code, error = refused(demo, "label", WEAK + PARAMS)
    assert code == 4
    assert error.startswith(
        f"bank: {path}: there is no column 'label' (label); there are 'id', 'ou"
    )


def test_a_model_is_not_trained_over(demo: ExampleFederation, trained: str) -> None:
    before = {party: demo.models(party) for party in PARTIES}
    outcome = command("train", demo.job(f'model = "{trained}"\n{WEAK}{PARAMS}'))
    assert outcome.code == 3
    assert outcome.error == f"model '{trained}' exists already; choose another name"
    assert {party: demo.models(party) for party in PARTIES} == before


@pytest.mark.parametrize("do", ["train", "predict"])
def test_only_the_active_party_is_asked(demo: ExampleFederation, do: str, tmp_path: Path) -> None:
    ids = demo.table(ACTIVE).with_name("ids.csv")
    if do == "train":
        job = demo.job(f'party = "../telco/party.toml"\n{WEAK}{PARAMS}')
        outcome = command("train", job)
    else:
        outcome = command("predict", demo.config("telco"), ids, "-o", tmp_path / "scores.csv")
    assert outcome.code == 7
    assert outcome.error == f"telco holds no label: ask the daemon of bank to {do}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ids", "more", "line"),
    [
        ("id\nP0001\nX1\nX2\n", ["--strict"], "2 of the ids are not in it, such as 'X1', 'X2'"),
        ("id\nX1\nX2\n", [], "2 of the ids are not in it, such as 'X1', 'X2'"),
        ("id\n", [], "there are no ids"),
        ("a,b\n1,2\n", [], "there is no column 'id' in line 1"),
        ("id\nP0001\n", ["--model", "nothing"], "model 'nothing' has no share here; there are: "),
    ],
)
def test_predictions_that_cannot_be_made_leave_no_file(
    demo: ExampleFederation, trained: str, tmp_path: Path, ids: str, more: list[str], line: str
) -> None:
    asked, output = tmp_path / "ids.csv", tmp_path / "scores.csv"
    asked.write_text(ids)
    outcome = command("predict", demo.config(ACTIVE), asked, "-o", output, *more)
    assert outcome.code == 4
    assert line in outcome.error
    assert [path.name for path in tmp_path.iterdir()] == ["ids.csv"]


def test_an_id_that_a_party_does_not_know_is_a_blank_with_its_reason(
    demo: ExampleFederation, trained: str, tmp_path: Path
) -> None:
    asked, output = tmp_path / "ids.csv", tmp_path / "scores.csv"
    asked.write_text("id\nP0001\nX1\nP0002\nP0003\n")
    serving = demo.table("telco").with_name("serving.csv")
    predict = ("predict", demo.config(ACTIVE), asked, "-m", trained, "-o")
    with edited(serving, "\nP0002,", "\nQ0002,"):
        done = command(*predict, output)
        strictly = command(*predict, output, "--strict")
    assert done.code == 0, done.err
    assert done.out == (
        f"2 scores by {trained}, 2 blank (see the column reason) in {output}"
        "; telco does not know 25.0% of the people\n"
    )
    with output.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert {name: row["reason"] for name, row in rows.items()} == {
        "P0001": "",
        "X1": "unknown at bank",
        "P0002": "unknown at telco",
        "P0003": "",
    }
    assert [name for name, row in rows.items() if not row["score"]] == ["X1", "P0002"]
    assert strictly.code == 4
    asked.write_text("id\nP0001\nP0003\n")
    alone = tmp_path / "alone.csv"
    assert command(*predict, alone, "--strict").code == 0
    known = (f"{name},{rows[name]['score']}" for name in ("P0001", "P0003"))
    assert alone.read_text().splitlines() == ["id,score", *known]


@pytest.mark.parametrize("more", [[], ["--all-aligned"], ["--alignment", "a"]])
def test_a_prediction_is_of_a_file_or_of_an_alignment(
    demo: ExampleFederation, tmp_path: Path, more: list[str]
) -> None:
    ids = [demo.table(ACTIVE).with_name("ids.csv")] if more else []
    outcome = command("predict", demo.config(ACTIVE), *ids, *more, "-o", tmp_path / "scores.csv")
    assert outcome.code == 2
    assert "write either a file IDS, --all-aligned or --ids-query" in outcome.err


def test_only_scores_are_overwritten(demo: ExampleFederation, trained: str, tmp_path: Path) -> None:
    asked, output, keys = (tmp_path / name for name in ("ids.csv", "scores.csv", "keys.json"))
    asked.write_text("id\nP0001\n")
    keys.write_text("{}")
    for taken in (asked, keys):
        before = taken.read_text()
        outcome = command("predict", demo.config(ACTIVE), asked, "-o", taken)
        assert outcome.code == 3
        assert "exists already and holds no scores; choose another" in outcome.error
        assert taken.read_text() == before
    for _ in range(2):
        assert command("predict", demo.config(ACTIVE), asked, "-m", trained, "-o", output).code == 0
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    outcome = command("predict", demo.config(ACTIVE), asked, "-m", trained, "-o", full)
    assert outcome.code == 3
    assert full.is_symlink()


def test_scores_that_cannot_be_written_are_an_error(
    demo: ExampleFederation, trained: str, tmp_path: Path
) -> None:
    asked = tmp_path / "ids.csv"
    asked.write_text("id\nP0001\n")
    output = tmp_path / "nowhere" / "scores.csv"
    outcome = command("predict", demo.config(ACTIVE), asked, "-m", trained, "-o", output)
    assert (outcome.code, outcome.error) == (
        3,
        f"{output}: there is no folder {output.parent}; make it first",
    )


def test_a_share_that_a_party_lost_is_named_by_the_party_alone(
    demo: ExampleFederation, trained: str, tmp_path: Path
) -> None:
    asked = tmp_path / "ids.csv"
    asked.write_text("id\nP0001\n")
    share = ModelStore(demo.state("retail")).path(trained)
    aside = share.with_suffix(".aside")
    share.rename(aside)
    output = tmp_path / "scores.csv"
    try:
        outcome = command("predict", demo.config(ACTIVE), asked, "-m", trained, "-o", output)
    finally:
        aside.rename(share)
    assert outcome.code == 6
    assert outcome.error.startswith("retail refused the session: ")
    assert not output.exists()


# The broker, and the daemon's own life


def test_a_second_daemon_of_a_party_is_refused(demo: ExampleFederation) -> None:
    outcome = command("run", demo.config("telco"), FEDMQ_BROKER=demo.broker.url("telco"))
    assert outcome.code == 3
    assert outcome.error.endswith("another daemon of this party runs already; stop it first")
    assert command("status", demo.config("telco"), "--json").result["connected"]


def test_a_wrong_password_is_one_line(demo: ExampleFederation, tmp_path: Path) -> None:
    text = demo.config("telco").read_text().replace('state = "state"', f'state = "{tmp_path}"')
    config = demo.config("telco").with_name("copy.toml")
    config.write_text(text)
    url = demo.broker.url("telco", "guess")
    outcome = command("run", config, FEDMQ_BROKER=url)
    assert outcome.code == 5
    assert "refuses user 'telco'; check the user's name and password" in outcome.error
    assert "guess" not in outcome.err


def test_a_broker_that_cannot_be_reached_is_one_line(
    demo: ExampleFederation, tmp_path: Path
) -> None:
    text = demo.config("telco").read_text().replace('state = "state"', f'state = "{tmp_path}"')
    config = demo.config("telco").with_name("copy.toml")
    config.write_text(text)
    outcome = command("run", config, FEDMQ_BROKER="amqp://telco:x@127.0.0.1:1/")
    assert outcome.code == 5
    assert "broker 127.0.0.1:1" in outcome.error
    assert "cannot be reached" in outcome.error


def test_without_a_daemon_every_command_says_so(tmp_path: Path, demo: ExampleFederation) -> None:
    text = demo.config(ACTIVE).read_text().replace('state = "state"', f'state = "{tmp_path}"')
    config = demo.config(ACTIVE).with_name("idle.toml")
    config.write_text(text)
    ids = demo.table(ACTIVE).with_name("ids.csv")
    for outcome in (
        command("status", config),
        command("models", config),
        command("cancel", config, "abc"),
        command("predict", config, ids, "-o", tmp_path / "scores.csv"),
        command("train", demo.job(f'party = "idle.toml"\n{PARAMS}')),
    ):
        assert outcome.code == 7
        assert outcome.error == f"no daemon runs at {tmp_path}; start it with: fedmq run {config}"
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_model_is_refreshed_over_the_broker(demo: ExampleFederation, trained: str) -> None:
    job = demo.job(f'model = "fresh"\nrefresh = "{trained}"\n{WEAK}[params]\neta = 0.7\n')
    result = command("train", job, "--json").result
    assert (result["model"], result["trees"]) == ("fresh", 4)
    before = ModelStore(demo.state(ACTIVE)).active(trained)
    old, learning = in_process(demo, before, 0.2), ~held_out(demo, before.params, 0.2)
    params = before.params.model_copy(update={"eta": 0.7})
    share = old.share.model_copy(update={"params": params})
    expected = fedmq.SimulatedModel(share, list(old.passive_shares.values()), old.traffic)
    expected = expected.refreshed(
        active=features(demo, ACTIVE)[learning],
        label=table(demo, ACTIVE)["label"][learning],
        passive={party: features(demo, party)[learning] for party in PASSIVE},
    )
    found = ModelStore(demo.state(ACTIVE)).active("fresh")
    for ours, theirs in zip(found.trees, expected.share.trees, strict=True):
        assert ours.model_dump_json() == theirs.model_dump_json()
    for party in PASSIVE:
        shares = [ModelStore(demo.state(party)).passive(name) for name in (trained, "fresh")]
        tables = [share.lookup_table.model_dump_json() for share in shares]
        assert tables[0] == tables[1]
    shown = command("models", "show", demo.config(ACTIVE), "fresh", "--json").result
    assert shown["refreshes"] == trained
    assert shown["departures"] == []
    assert command("activate", demo.config(ACTIVE), "fresh", "--json").code == 0
