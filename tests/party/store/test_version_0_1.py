"""What fedmq 0.1.0 has written is read as before.

`of_version_0_1` is what three parties had on disk after an alignment, a training, a
cross-validation, an activation, and in the middle of another training.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.messages.codec import KINDS, decode, encode
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.answered_people import GroupQuestions
from fedmq.party.store.database import Database
from fedmq.party.store.documents import (
    Deployments,
    ModelStore,
    cards,
    cross_validations,
    held_out_rows,
    read_column_names,
    reports,
    trained_counts,
    training_records,
)
from fedmq.party.store.journal import AnsweredSumsStore, ConsentRequestStore, SessionStore
from fedmq.party.store.share_file import read_share
from fedmq.protocol.session_records import ActiveTree, PassiveTree, hashed_ids
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

WRITTEN = Path(__file__).parent / "of_version_0_1"
LATER = "ffae5060184f226a"  # the session that was under way
FINISHED = "fa8dd41e0484abfc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(WRITTEN, tmp_path / "federation")
    for keys in (tmp_path / "federation").glob("*/keys.json"):
        keys.chmod(0o600)
    return tmp_path / "federation"


def test_a_model_comes_with_all_that_is_kept_of_it(folder: Path) -> None:
    state = folder / "bank" / "state"
    share = ModelStore(state).active("credit")
    assert (share.parties, len(share.trees)) == (PARTIES, 3)
    assert [ModelStore(folder / party / "state").passive("credit").party for party in PARTIES[1:]]
    record = training_records(state).find("credit")
    assert record is not None
    assert (record.session, record.rows, record.held_out) == (FINISHED, 33, 7)
    assert record.job.alignment == "shared"
    held_out = held_out_rows(state).read("credit")
    assert len(held_out.ids) == len(held_out.label) == 7
    for party in PARTIES:
        counts = trained_counts(folder / party / "state").find("credit")
        assert counts is not None
        assert {column.name for column in counts.columns} == {"x0", "x1"}
    assert read_column_names(state, "credit").keys() == {"telco", "retail"}
    assert json.loads(reports(state).read("credit"))["auc"] == 0.5
    assert json.loads(cards(state).read("credit"))["model"] == "credit"
    assert cross_validations(state).read("folds-cv").folds == 2


def test_names_stand_for_the_same_models(folder: Path) -> None:
    for party in PARTIES:
        deployments = Deployments.read(folder / party / "state")
        assert deployments.names()["production"].model == "credit"


def test_an_alignment_has_the_same_ids(folder: Path) -> None:
    found = [AlignmentStore(folder / party / "state").load("shared") for party in PARTIES]
    assert all(alignment.ids == found[0].ids for alignment in found)
    assert len(found[0].ids) == 40


async def test_sessions_checkpoints_sums_and_consents_are_in_the_journal(folder: Path) -> None:
    trees: dict[str, Any] = {}
    for party in PARTIES:
        database = Database(folder / party / "state" / "fedmq.sqlite")
        await database.open()
        store = SessionStore(database)
        assert [session.id for session in await store.running()] == [LATER]
        assert {session.model for session, _ in await store.ended(9)} == {"credit", "folds-cv"}
        trees[party] = await store.checkpoints(LATER)
        asked = await ConsentRequestStore(database).all()
        assert [request.state for request in asked] == (["approved"] if party == "telco" else [])
        answered = await AnsweredSumsStore(database).trainings()
        assert len(answered) == (0 if party == "bank" else 3)
        await database.close()
    assert all(isinstance(tree, ActiveTree) for tree in trees["bank"])
    assert all(isinstance(tree, PassiveTree) for tree in trees["telco"] + trees["retail"])
    assert [len(trees[party]) > 0 for party in PARTIES] == [True] * 3


def test_questions_about_groups_are_remembered(folder: Path) -> None:
    questions = GroupQuestions(folder / "telco" / "state")
    (question,) = questions.about("region")
    np.testing.assert_array_equal(question.people, np.sort(hashed_ids(["p00", "p01", "p02"])))
    assert questions.asked_since(1699999999.0, "region") == 1


def test_audit_logs_are_whole(folder: Path) -> None:
    for party in PARTIES[1:]:
        entries, _ = AuditLog(folder / party / "state").verified()
        assert entries > 5


def test_a_transcript_is_exported(folder: Path, tmp_path: Path) -> None:
    for party in PARTIES:
        path = tmp_path / f"{party}.transcript"
        assert export(folder / party / "state", party, FINISHED, path)
        assert TranscriptFile.read(path).session == FINISHED


def test_exported_shares_are_read(folder: Path) -> None:
    share = read_share(folder / "bank" / "credit.share", "bank", is_active=True)
    assert share.dumps() == ModelStore(folder / "bank" / "state").active("credit").dumps()
    assert read_share(folder / "telco" / "credit.share", "telco", is_active=False)


def test_files_of_parties_and_of_jobs_are_read(folder: Path) -> None:
    for party in PARTIES:
        files = PartyFiles.read(folder / party / "party.toml")
        assert (files.config.party, files.federation.parties) == (party, PARTIES)
    job = TrainingJob.read(folder / "train.toml")
    assert (job.model, job.alignment, job.params.num_boost_round) == ("credit", "shared", 3)
    assert AlignmentJob.read(folder / "align.toml").name == "shared"


MESSAGES = [json.loads(line) for line in (WRITTEN / "messages.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "data"),
    [(message["kind"], base64.b64decode(message["bytes"])) for message in MESSAGES],
    ids=[message["kind"] for message in MESSAGES],
)
def test_a_message_is_read_and_written_to_the_byte(kind: str, data: bytes) -> None:
    envelope = decode(data)
    assert type(envelope.body) is KINDS[kind]
    assert encode(envelope) == data


async def test_daemons_go_on_from_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "running").mkdir()
    federation = DaemonsInMemory(tmp_path / "running", monkeypatch)
    shutil.copytree(folder, federation.folder, dirs_exist_ok=True)
    for party in PARTIES:  # as if it had stopped just now: attempts are numbered by the time
        with sqlite3.connect(federation.folder / party / "state" / "fedmq.sqlite") as database:
            database.execute("UPDATE sessions SET begun = ?", (time.time(),))
        database.close()
    await federation.start()

    async def later(wanted: int) -> Any:
        sessions = (await federation.ask("bank", "status"))["sessions"]
        return [found for found in sessions if found["session"] == LATER and found["done"] > wanted]

    (paused,) = await federation.until(lambda: later(0))
    await federation.ask("bank", "resume", session=LATER)
    await federation.until(lambda: later(paused["done"] + 1))
    await federation.ask("bank", "cancel", session=LATER)
    scores = await federation.ask("bank", "score", name="production", ids=["p00", "p01"])
    assert scores["model"] == "credit"
    await federation.stop()
