"""The audit replays recordings of real sessions, and says what each side could learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedmq
from fedmq.boosting.params import OLDEST
from fedmq.boosting.splits import ROOT
from fedmq.cli.main import cli
from fedmq.errors import ConfigError, DataError
from fedmq.leakage.view import SessionView
from fedmq.messages.envelope import Envelope
from fedmq.party.sessions.observe import Recorder, Recording
from tests.how_often import seldom
from tests.party.sealed_parties import envelope
from tests.simulation.test_fedxgboost import synthetic


def recorded(folder: Path, engine: str, **options: Any) -> tuple[Any, Any, Any]:
    active, label, passive = synthetic(1500)
    fedmq.simulate(
        active=active,
        label=label,
        passive={"telco": passive, "shop": active[:, :1]},
        params=fedmq.TrainParams(num_boost_round=2, max_depth=3, max_bin=8, subsample=0.8),
        engine=engine,
        engine_options=options,
        evaluation=np.arange(1500) % 5 == 0,
        record=folder,
    )
    return active, label, passive


def found(report: fedmq.AuditReport) -> dict[str, Any]:
    """The best each attack reached."""
    best: dict[str, Any] = {}
    for finding in report.findings:
        if finding.attack not in best or finding.value > best[finding.attack].value:
            best[finding.attack] = finding
    return best


def test_smm1_gives_the_splitting_matrix_to_the_active_party(tmp_path: Path) -> None:
    _, label, passive = recorded(tmp_path, "smm1")
    learned = found(fedmq.audit(tmp_path / "active.recording", passive={"telco": passive}))
    assert learned["rounding W"].value == 1
    assert learned["rounding W"].succeeds
    assert learned["known null space"].succeeds
    assert learned["partitions"].succeeds
    heard = found(fedmq.audit(tmp_path / "telco.recording", label=label))
    assert "sign of W" not in heard


def test_smm2_gives_the_labels_to_a_passive_party(tmp_path: Path) -> None:
    _, label, _ = recorded(tmp_path, "smm2")
    learned = found(fedmq.audit(tmp_path / "telco.recording", label=label))
    assert learned["sign of W"].value > 0.99
    assert learned["sign of W"].succeeds
    assert not learned["sparse null space"].succeeds


@pytest.mark.parametrize("directions", ["oblivious", "all"])
def test_lattice_gives_a_passive_party_no_node_to_learn_labels_from(
    tmp_path: Path, directions: str
) -> None:
    _, label, _ = recorded(tmp_path, "lattice", directions=directions)
    learned = found(fedmq.audit(tmp_path / "telco.recording", label=label))
    assert learned["nodes shared"].value == pytest.approx(0.5, abs=0.02)
    assert not any(finding.succeeds for finding in learned.values())
    for tree in SessionView(Recording.read(tmp_path / "telco.recording")).trees.values():
        assert list(tree.spaces) == [1]
        assert not tree.parts


def test_directions_that_travel_obliviously_are_not_taken_for_partitions(tmp_path: Path) -> None:
    recorded(tmp_path, "lattice")
    view = SessionView(Recording.read(tmp_path / "active.recording"))
    # In the root all rows stand: there is nothing to hide from the owner of its split.
    assert {node for tree in view.trees.values() for _, node in tree.parts} <= {ROOT}


@pytest.mark.parametrize("sums", ["hidden", *seldom("shown")])
def test_sums_that_are_hidden_are_not_taken_for_shown(tmp_path: Path, sums: str) -> None:
    active, label, passive = synthetic(400)
    given = {"active": active, "passive": {"telco": passive}}
    model = fedmq.simulate(
        **given,
        label=label,
        params=fedmq.TrainParams(
            num_boost_round=2, max_depth=2, max_bin=8, xgboost_arithmetic=OLDEST
        ),
        engine="lattice",
        engine_options={"sums": sums},
        record=tmp_path,
    )
    told = model.leaf_weights(**given)
    learned = fedmq.audit(
        tmp_path / "active.recording",
        passive=given["passive"],
        label=label,
        leaf_weights=told,
    )
    assert ("bins from sums" in found(learned)) == (sums == "shown")


@pytest.mark.parametrize(("epsilon", "learns"), [(30.0, True), (0.02, False)])
def test_ldp_gives_the_labels_as_far_as_epsilon_allows(
    tmp_path: Path, epsilon: float, learns: bool
) -> None:
    _, label, _ = recorded(tmp_path, "ldp", epsilon=epsilon, noise_seed=0)
    learned = found(fedmq.audit(tmp_path / "telco.recording", label=label))
    assert learned["gradients told"].succeeds == learns


def test_leaf_weights_would_tell_the_labels_of_a_first_tree_and_less_of_later_ones(
    tmp_path: Path,
) -> None:
    active, label, passive = synthetic(1500)
    given = {"active": active, "passive": {"telco": passive}}
    params = fedmq.TrainParams(num_boost_round=6, max_depth=4, max_bin=8)
    model = fedmq.simulate(**given, label=label, params=params, engine="plain", record=tmp_path)
    told = model.leaf_weights(**given)
    first_margin = np.log(told.base_score / (1 - told.base_score))
    np.testing.assert_allclose(
        first_margin + told.values.sum(axis=1),
        model.predict(**given, output_margin=True),
        atol=1e-5,
    )
    report = fedmq.audit(tmp_path / "telco.recording", label=label, leaf_weights=told)
    counted = {
        finding.where: finding
        for finding in report.findings
        if finding.attack == "leaf weights, if told" and finding.measure == "share"
    }
    assert counted["first tree"].value == 1
    assert counted["later trees"].value < 0.5
    with pytest.raises(DataError, match="leaf weights of 2 rows for 1500 labels"):
        few = replace(told, values=told.values[:2])
        fedmq.audit(tmp_path / "telco.recording", label=label, leaf_weights=few)


def test_an_additive_engine_tells_a_passive_party_no_more_than_the_nodes(tmp_path: Path) -> None:
    _, label, passive = recorded(tmp_path, "ou", key_bits=384, allow_weak_keys=True)
    learned = found(fedmq.audit(tmp_path / "telco.recording", label=label))
    assert set(learned) == {"majority", "nodes shared"}
    seen = found(fedmq.audit(tmp_path / "active.recording", passive={"telco": passive}))
    assert set(seen) == {"partitions", "directions alone"}


def test_both_sides_saw_the_same_nodes(tmp_path: Path) -> None:
    recorded(tmp_path, "plain")
    bank, telco = (
        SessionView(Recording.read(tmp_path / f"{party}.recording"))
        for party in ("active", "telco")
    )
    assert bank.is_active
    assert not telco.is_active
    for number, tree in telco.trees.items():
        for node, rows in tree.inner.items():
            np.testing.assert_array_equal(bank.trees[number].inner[node], rows)
        together = np.sort(np.concatenate(list(tree.spaces.values())))
        np.testing.assert_array_equal(together, np.arange(1500))


def test_the_truth_must_fit(tmp_path: Path) -> None:
    _, label, passive = recorded(tmp_path, "plain")
    for wrong in (label[:-1], label + 1):
        with pytest.raises(DataError, match="labels"):
            fedmq.audit(tmp_path / "telco.recording", label=wrong)
    with pytest.raises(DataError, match="of several classes audit one against the rest"):
        fedmq.audit(tmp_path / "telco.recording", label=np.arange(1500) % 3)
    with pytest.raises(DataError, match="2 weights for a session of 1500 rows"):
        fedmq.audit(
            tmp_path / "active.recording", label=label, passive={"telco": passive}, weight=[1, 1]
        )
    with pytest.raises(DataError, match="1499 rows"):
        fedmq.audit(tmp_path / "active.recording", passive={"telco": passive[1:]})
    with pytest.raises(ConfigError, match="labels"):
        fedmq.audit(tmp_path / "telco.recording", passive={"telco": passive})
    with pytest.raises(ConfigError, match="features"):
        fedmq.audit(tmp_path / "active.recording", label=label)


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.recording"
    for content in (b"", b"id,y\n1,2\n", b"\x93\xa1a"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.recording"):
            Recording.read(file)
    with pytest.raises(DataError, match="No such file"):
        Recording.read(tmp_path / "absent.recording")
    with Recorder(file, "telco"):
        pass
    with pytest.raises(DataError, match="holds no training"):
        fedmq.audit(file, label=[0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_came_early_are_audited_as_they_were_taken(tmp_path: Path, seed: int) -> None:
    _, label, _ = recorded(tmp_path, "plain")
    in_order = Recording.read(tmp_path / "telco.recording")
    arrivals = list(in_order.envelopes)
    random = np.random.default_rng(seed)
    for _ in range(200):  # as on two queues: neighbours pass each other
        first = int(random.integers(len(arrivals) - 1))
        if not any(message.header.sender == "telco" for message in arrivals[first : first + 2]):
            arrivals[first : first + 2] = reversed(arrivals[first : first + 2])
    early = Recording("telco", arrivals)
    for message in early.envelopes:
        sent = [other.header for other in early.envelopes if same_way(other, message)]
        assert sent == sorted(sent, key=lambda header: header.sequence)
    assert fedmq.audit(early, label=label) == fedmq.audit(in_order, label=label)


def same_way(one: Envelope, other: Envelope) -> bool:
    ends = one.header.sender, one.header.recipient
    return ends == (other.header.sender, other.header.recipient)


def test_a_recording_is_private_to_its_owner(tmp_path: Path) -> None:
    with Recorder(tmp_path / "deep" / "x.recording", "telco") as recorder:
        assert recorder.path.stat().st_mode & 0o077 == 0


def test_a_disk_that_refuses_ends_a_recording_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"recordings: .* cannot be written"):
        Recorder(tmp_path / "file" / "x.recording", "telco")
    full = Path("/dev/full")
    with Recorder(tmp_path / "x.recording", "telco") as recorder, full.open("wb", 0) as disk:
        recorder.close()
        recorder._file = disk
        for _ in range(2):
            recorder.keep(envelope())
    assert [message for message in caplog.messages if "breaks off" in message] == [
        f"{tmp_path}/x.recording: the recording breaks off: No space left on device"
    ]


def test_the_command_scores_a_recording_by_csv_files(tmp_path: Path) -> None:
    _, label, passive = recorded(tmp_path, "smm1")
    ids = [f"p{row:05}" for row in range(1500)]
    (tmp_path / "labels.csv").write_text(
        "id,y\n" + "".join(f"{name},{value:g}\n" for name, value in zip(ids, label, strict=True))
    )
    rows = (",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in passive)
    (tmp_path / "telco.csv").write_text(
        "id,a,b,c\n" + "".join(f"{name},{row}\n" for name, row in zip(ids, rows, strict=True))
    )
    run = CliRunner()
    labels = ["--labels", str(tmp_path / "labels.csv"), "--label-column", "y"]
    heard = run.invoke(cli, ["audit", str(tmp_path / "telco.recording"), *labels])
    assert heard.exit_code == 0, heard.output
    assert "nodes shared" in heard.output
    features = ["--features", f"telco={tmp_path / 'telco.csv'}", "--json"]
    learned = run.invoke(cli, ["audit", str(tmp_path / "active.recording"), *features])
    attacks = {finding["attack"]: finding for finding in json.loads(learned.output)["findings"]}
    assert attacks["rounding W"]["succeeds"]


def test_what_is_printed_as_json_is_read_again_and_says_of_which_training_it_is(
    tmp_path: Path,
) -> None:
    _, label, _ = recorded(tmp_path, "plain")
    recording = Recording.read(tmp_path / "telco.recording")
    report = fedmq.audit(recording, label=label)
    file = tmp_path / "telco.json"
    file.write_text(report.dumps())
    assert fedmq.AuditReport.read(file) == report
    assert report.session == recording.envelopes[0].header.session
    for text in ("[]", "{", '{"party": "telco", "engine": "plain", "findings": [1]}'):
        file.write_text(text)
        with pytest.raises(DataError, match=r"telco\.json: is not what fedmq audit --json prints"):
            fedmq.AuditReport.read(file)


def test_a_report_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, label, _ = recorded(tmp_path, "plain")
    report = fedmq.audit(tmp_path / "telco.recording", label=label)
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "| gradients told |" in report.table()


def test_a_training_of_vector_leaves_is_refused_by_name(tmp_path: Path) -> None:
    active, label, passive = synthetic(200)
    params = fedmq.TrainParams(
        objective="multi:softprob",
        num_class=2,
        multi_strategy="multi_output_tree",
        num_boost_round=1,
    )
    fedmq.simulate(
        active=active,
        label=label,
        passive={"telco": passive},
        params=params,
        engine="plain",
        record=tmp_path,
    )
    with pytest.raises(
        ConfigError, match=r"a training with 2 outputs a tree \(multi_output_tree\)"
    ):
        fedmq.audit(tmp_path / "telco.recording", label=label)
