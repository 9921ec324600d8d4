"""``fedmq forget``: where a person is, what can be taken out, and what stays and why."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
import pytest_asyncio
from click.testing import CliRunner
from pyarrow import parquet

from fedmq.boosting.params import TrainParams
from fedmq.cli.main import cli
from fedmq.errors import ConfigError, DaemonError, FedmqError
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.online.answering import ASKED_FILE, AskedPeople
from fedmq.party.store.alignments import AlignmentStore, StoredAlignment
from fedmq.party.store.answered_people import GroupQuestions
from fedmq.party.store.database import Database
from fedmq.party.store.documents import Deployments, ModelStore, cross_validations, held_out_rows
from fedmq.party.store.journal import SessionStore, StoredSession
from fedmq.party.store.kept_blindings import KeptPoints, OwnBlinding
from fedmq.privacy.set_intersection import IdList
from fedmq.protocol.session_records import hashed_ids
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.workbench import erasure
from fedmq.workbench.erasure import places_of
from fedmq.workbench.retraining import Retrained
from fedmq.workbench.under_way import UnderWay
from tests.cli.command import Outcome
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def federation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DaemonsInMemory]:
    """A bank that has aligned, trained, cross-validated and recorded."""
    folder = tmp_path_factory.mktemp("forget")
    with pytest.MonkeyPatch.context() as patch:
        demo = DaemonsInMemory(folder, patch)
        file = folder / "bank" / "party.toml"
        file.write_text('recordings = "recordings"\n' + file.read_text())
        async with demo:
            params = {"num_boost_round": 2, "max_depth": 2, "min_child_weight": 0.1}
            align = AlignmentJob(name="people").model_dump(mode="json")
            await demo.ask("bank", "align", job=align)
            keys: dict[str, Any] = {"engine": "plain", "alignment": "people", "params": params}
            more: dict[str, Any]
            for more in ({"model": "m", "evaluation": 0.5}, {"nfold": 2}):
                job = TrainingJob(**keys, **more)
                await demo.ask("bank", "train", job=job.model_dump(mode="json"))
            for _ in range(2):
                await demo.ask("bank", "predict", model="m", alignment="people", mode="sealed")
            yield demo


def forget(file: Path, name: str, *words: str) -> Outcome:
    """``fedmq forget`` in this process: a process of its own takes seconds to import all."""
    done = CliRunner().invoke(cli, ["forget", str(file), "--id", name, *words])
    if isinstance(done.exception, FedmqError):
        return Outcome(done.exception.exit_code, "", f"fedmq: {done.exception}")
    assert done.exception is None, done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)


async def asked(demo: DaemonsInMemory, party: str, name: str, *words: str) -> Outcome:
    file = demo.folder / party / "party.toml"
    return await asyncio.to_thread(forget, file, name, *words)


def state(demo: DaemonsInMemory, party: str) -> Path:
    return demo.folder / party / "state"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_person_is_found_taken_out_and_not_found_again(
    federation: DaemonsInMemory,
) -> None:
    demo, bank = federation, state(federation, "bank")
    person = held_out_rows(bank).read("m").ids[0]
    (name,) = cross_validations(bank).names()
    folds = bank / "cross-validations" / f"{name}.folds.csv"
    assert f"{person}," in folds.read_text()

    shown = json.loads((await asked(demo, "bank", person, "--json")).out)
    places = {of["what"]: of for of in shown["places"]}
    assert places["alignment people"]["done"] == "removable"
    assert places["held-out rows of model m"]["done"] == "removable"
    assert places[f"folds of cross-validation {name}"]["done"] == "removable"
    assert places["the party's own table"]["done"] == places["model m"]["done"] == "stays"
    assert "fedmq models delete PARTY m --everywhere" in places["model m"]["why"]
    kept = {of.name: of.stat().st_size for of in (demo.folder / "bank" / "recordings").iterdir()}
    assert any(of.startswith("recording ") for of in places), kept
    assert person in held_out_rows(bank).read("m").ids  # it was only asked

    before = held_out_rows(bank).read("m")
    aged = 1_700_000_000
    for path in (folds, bank / "models" / "m.held-out.csv"):
        os.utime(path, (aged, aged))
    done = await asked(demo, "bank", person, "--remove", "--json")
    assert {of["done"] for of in json.loads(done.out)["places"]} == {"removed", "stays"}
    left = held_out_rows(bank).read("m")
    assert {*before.ids} - {*left.ids} == {person} and len(left.label) == len(left.ids)
    assert f"{person}," not in folds.read_text()
    for path in (folds, bank / "models" / "m.held-out.csv"):
        assert path.stat().st_mtime == aged  # the policy counts from when it was first written
    assert AlignmentStore(bank).names() == []
    assert not [
        path
        for path in (demo.folder / "bank" / "recordings").rglob("*")
        if path.is_file() and person.encode() in path.read_bytes()
    ]
    again = await asked(demo, "bank", person, "--json")
    left_over = {of["what"]: of["why"] for of in json.loads(again.out)["places"]}
    assert left_over.keys() == {"the party's own table", "model m"}
    assert "it may have been this person" in left_over["model m"]
    *_, noted = [entry for entry in AuditLog(bank).entries() if "forgotten" in str(entry)]
    assert person not in str(noted)


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="module")
async def test_a_passive_party_forgets_for_itself_and_a_stranger_is_nowhere(
    federation: DaemonsInMemory,
) -> None:
    person = AlignmentStore(state(federation, "telco")).load("people").ids[0]
    done = await asked(federation, "telco", str(person), "--remove")
    assert "alignment people" in done.out and "removed" in done.out
    assert AlignmentStore(state(federation, "telco")).names() == []
    assert AlignmentStore(state(federation, "retail")).names() == ["people"]
    nobody = await asked(federation, "telco", "somebody else")
    assert "nothing of this person is in the party's files" in nobody.out


@pytest.mark.asyncio(loop_scope="module")
async def test_an_empty_id_is_one_line(federation: DaemonsInMemory) -> None:
    done = await asked(federation, "bank", "  ")
    assert (done.code, done.error) == (4, "id: it is empty")


def test_another_person_whose_id_begins_alike_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "other.recording").write_bytes(b"\xa6C00071\xa7XC0007")
    (tmp_path / "own.recording").write_bytes(b"\xa5C0007\xa6C00071")
    assert [path.name for path in erasure._holding(tmp_path, "C0007")] == ["own.recording"]


def test_a_file_that_cannot_be_read_is_not_taken_for_one_without_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    (tmp_path / "own.recording").write_bytes(b"\xa5C0007")
    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(ConfigError) as caught:
        list(erasure._holding(tmp_path, "C0007"))
    assert str(caught.value).endswith("own.recording: cannot be read: Too many open files")


@pytest.fixture
def alone(tmp_path: Path) -> PartyFile:
    """The file of telco, whose daemon does not run, with the people p00 to p39."""
    with pytest.MonkeyPatch.context() as patch:
        DaemonsInMemory(tmp_path, patch)
    return PartyFile.read(tmp_path / "telco" / "party.toml")[0]


async def stored(config: PartyFile, *sessions: StoredSession) -> None:
    database = Database(config.state / "fedmq.sqlite")
    config.state.mkdir(exist_ok=True)
    await database.open()
    for session in sessions:
        await SessionStore(database).begin(session)
    await database.close()


@pytest.mark.asyncio
async def test_nobody_is_removed_beside_a_training_that_goes_on_with_the_daemon(
    alone: PartyFile,
) -> None:
    recording = alone.state.parent / "recordings" / "one.recording"
    recording.parent.mkdir()
    recording.write_bytes(b"\xa3p07")
    config = alone.model_copy(update={"recordings": recording.parent})
    await stored(config, StoredSession("ab12", "credit", 1))
    with pytest.raises(DaemonError) as refused:
        places_of(config, "p07", remove=True)
    assert str(refused.value) == (
        "telco: session ab12, training of credit, is under way and holds this person, or may: let "
        "it end, or end it with fedmq cancel PARTY ab12; then ask again. Nothing was removed"
    )
    assert recording.exists()
    assert [place.what for place in places_of(config, "p07", remove=False)] == [
        "the party's own table",
        "recording one.recording",
    ]
    assert places_of(config, "somebody else", remove=True) == []  # no row of hers is in it


@pytest.mark.asyncio
async def test_the_active_party_asks_the_alignment_of_a_training_whom_it_holds(
    alone: PartyFile,
) -> None:
    job = TrainingJob(model="m", alignment="few").model_dump_json()
    await stored(alone, StoredSession("ab12", "m", 1, job=job))
    few = StoredAlignment(
        name="few",
        session="cd34",
        made="2026-11-27",
        parties=("bank", "telco"),
        normalise=(),
        fingerprint="",
        ids=("p01", None, "p02"),
    )
    with pytest.raises(DaemonError, match="session ab12"):  # the list is not kept
        places_of(alone, "p07", remove=True)
    AlignmentStore(alone.state).save(few)
    assert {place.done for place in places_of(alone, "p07", remove=True)} == {"stays"}
    with pytest.raises(DaemonError, match="session ab12"):
        places_of(alone, "p02", remove=True)


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_is_removed_beside_a_session_that_runs(
    federation: DaemonsInMemory,
) -> None:
    held = asyncio.Event()

    async def hold(sender: str, _: str, __: str) -> bool:
        if sender == "telco":
            await held.wait()
        return False

    async def live() -> list[str]:
        found = await federation.ask("retail", "sessions")
        return [of["session"] for of in found if of["ended"] is None]

    before, federation.hold = federation.hold, hold
    job = AlignmentJob(name="others").model_dump(mode="json")
    running = asyncio.create_task(federation.ask("bank", "align", job=job))
    try:
        (session,) = await federation.until(live)
        done = await asked(federation, "retail", "p07", "--remove")
    finally:
        held.set()
        await running
        federation.hold = before
    assert done.code == DaemonError.exit_code
    assert f"retail: session {session}, alignment of others, is under way" in done.error


def test_score_files_beside_the_party_s_file_lose_the_person(alone: PartyFile) -> None:
    folder = alone.state.parent
    (folder / "scores.csv").write_text("id,score\r\np07,0.5\r\np08,0.25\r\n")
    (folder / "notes.csv").write_text("id,remark\r\np07,asked\r\n")
    table = arrow.table({"id": ["p07", "p08", "p07"], "score_0": [0.1, 0.2, 0.3]})
    table = table.append_column("score_1", arrow.array([0.9, 0.8, 0.7]))
    parquet.write_table(table, folder / "scores.parquet")
    done = json.loads(forget(folder / "party.toml", "p07", "--remove", "--json").out)
    found = {of["what"]: (of["count"], of["done"]) for of in done["places"]}
    assert found["score file scores.csv"] == (1, "removed")
    assert found["score file scores.parquet"] == (2, "removed")
    assert (folder / "scores.csv").read_bytes() == b"id,score\r\np08,0.25\r\n"
    assert parquet.read_table(folder / "scores.parquet").column("id").to_pylist() == ["p08"]
    assert "p07" in (folder / "notes.csv").read_text()
    assert f"score files outside of {folder}" in done["not_searched"]


def test_the_kept_key_of_prepared_alignments_goes_with_the_person(alone: PartyFile) -> None:
    own = OwnBlinding(alone.state, days=30, held="", points=0)
    first = own.of(IdList.of(["p06", "p07"]))
    KeptPoints(alone.state, "telco").keep("0" * 16, np.zeros((2, 32), np.uint8))
    file = alone.state.parent / "party.toml"
    what = "kept key of prepared alignments"

    def found(name: str, *words: str) -> tuple[dict[str, str], list[str]]:
        done = json.loads(forget(file, name, *words, "--json").out)
        return {of["what"]: of["done"] for of in done["places"]}, done["not_searched"]

    assert what not in found("p08", "--remove")[0] and own.path.exists()
    places, nowhere = found("p07")
    assert places[what] == "removable" and own.path.exists()
    assert "points of the list of telco, which telco alone can name" in nowhere
    assert found("p07", "--remove")[0][what] == "removed" and not own.path.exists()
    assert what not in found("p07")[0]
    anew = own.of(IdList.of(["p06"]))
    assert (anew.kept, anew.key != first.key) == (0, True)  # all are blinded anew


@pytest.mark.asyncio
async def test_what_limits_questions_names_a_person_by_hashes_that_are_found(
    alone: PartyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_people = AskedPeople(alone.state / ASKED_FILE)
    asked_people.add("bank", "m", {"p07": (1, 3), "p08": (1, 0)})
    await asked_people.close()
    await stored(alone)
    database = Database(alone.state / "fedmq.sqlite")
    await database.open()
    sketch = np.unique(hashed_ids(["p06", "p07"])).astype("<u8").tobytes()
    await database.write(
        lambda file: (
            file.execute("INSERT INTO answered_rows VALUES ('ab12', 2, ?, 0)", (sketch,)) and None
        )
    )
    await database.close()
    GroupQuestions(alone.state).keep("region", "ab12", hashed_ids(["p07", "p09"]))

    def found(name: str, remove: bool = False) -> dict[str, tuple[int, str]]:
        places = places_of(alone, name, remove)
        return {place.what: (place.count, place.done) for place in places[1:]}

    within = {
        "counts of online questions": (2, "stays"),
        "counts of answered sums": (1, "stays"),
        "questions about groups": (1, "stays"),
    }
    assert found("p07", remove=True) == within
    assert found("p30") == {}
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    assert found("p07")["counts of online questions"] == (2, "removable")
    found("p07", remove=True)
    assert "counts of online questions" not in found("p07")
    assert found("p08")["counts of online questions"] == (1, "removable")


def test_the_periods_of_the_policy_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DaemonsInMemory(tmp_path, monkeypatch, 'retention = { held_out = "1y" }\n')
    file = tmp_path / "telco" / "party.toml"
    assert json.loads(forget(file, "p07", "--json").out)["retention"] == {"held_out": "1y"}
    assert "kept for at most: held out 1y" in forget(file, "p07").out


@pytest.mark.asyncio
async def test_each_party_signs_what_it_took_out_and_anyone_of_them_verifies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    DaemonsInMemory(tmp_path, monkeypatch, keys=keys)
    paths = {party: tmp_path / f"{party}.erased.json" for party in ("telco", "retail")}
    for party, path in paths.items():
        (tmp_path / party / "scores.csv").write_text("id,score\r\np07,0.5\r\n")
        words = ("--remove", "--certificate", str(path))
        done = forget(tmp_path / party / "party.toml", "p07", *words)
        assert f"signed in {path}" in done.out.replace("\n", "")
        assert "p07" not in path.read_text() and str(tmp_path) not in path.read_text()
    bank = tmp_path / "bank" / "party.toml"
    words = [word for path in paths.values() for word in ("--verify", str(path))]
    found = json.loads(forget(bank, "p07", *words, "--json").out)
    assert [of["party"] for of in found] == ["telco", "retail"]
    assert found[0]["places"] == [
        {"what": "the party's own table", "count": 1, "done": "stays"},
        {"what": "score file scores.csv", "count": 1, "done": "removed"},
    ]
    assert found[0]["key"] == keys["telco"].public.fingerprint

    other = forget(bank, "p08", "--verify", str(paths["telco"]))
    assert other.error == f"{paths['telco']}: telco has signed it about another person"
    for was, then in (('"stays"', '"removed"'), ("telco", "retail")):
        altered = tmp_path / "altered.json"
        altered.write_text(paths["telco"].read_text().replace(was, then))
        refused = forget(bank, "p07", "--verify", str(altered))
        assert "has not signed it with a key of the federation file" in refused.error
        assert refused.code == 4


@pytest.mark.asyncio
async def test_all_parties_certificates_become_one_file_that_anyone_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    DaemonsInMemory(tmp_path, monkeypatch, keys=keys)
    paths = {party: tmp_path / f"{party}.erased.json" for party in PARTIES}
    for party, path in paths.items():
        forget(tmp_path / party / "party.toml", "p07", "--remove", "--certificate", str(path))
    bank, joint = tmp_path / "bank" / "party.toml", tmp_path / "all.json"
    words = [word for path in paths.values() for word in ("--verify", str(path))]

    some = forget(bank, "p07", *words[:4], "--certificate", str(joint))
    assert "retail of the federation has signed none of these certificates" in some.error
    twice = forget(bank, "p07", *words, *words[:2], "--certificate", str(joint))
    assert "a party has signed several of these certificates" in twice.error
    assert not joint.exists()

    forget(bank, "p07", *words, "--certificate", str(joint))
    retail = tmp_path / "retail" / "party.toml"
    found = json.loads(forget(retail, "p07", "--verify", str(joint), "--json").out)
    assert [of["party"] for of in found] == list(PARTIES)
    assert [of["key"] for of in found] == [keys[party].public.fingerprint for party in PARTIES]
    assert "p07" not in joint.read_text()
    other = forget(retail, "p08", "--verify", str(joint))
    assert "has signed it about another person" in other.error
    joint.write_text(joint.read_text().replace('"stays"', '"removed"', 1))
    altered = forget(retail, "p07", "--verify", str(joint))
    assert "has not signed it with a key of the federation file" in altered.error


def test_a_session_that_begins_while_a_person_is_taken_out_is_named(
    alone: PartyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = UnderWay("cd34", "alignment", "others")
    answers = iter([None, begun])
    monkeypatch.setattr(erasure, "session_with", lambda *_: next(answers))
    with pytest.raises(DaemonError, match="session cd34, alignment of others, began while this"):
        places_of(alone, "p07", remove=True)


def test_what_is_written_again_while_a_person_is_taken_out_is_named(
    alone: PartyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AlignmentStore(alone.state)
    kept = StoredAlignment(
        name="people",
        session="cd34",
        made="2026-11-27",
        parties=("bank", "telco"),
        normalise=(),
        fingerprint="",
        ids=("p07",),
    )
    looks = 0

    def session_with(*_: object) -> None:
        nonlocal looks
        looks += 1
        store.save(kept)

    monkeypatch.setattr(erasure, "session_with", session_with)
    with pytest.raises(DaemonError, match="a session wrote alignment people with it: ask again"):
        places_of(alone, "p07", remove=True)
    assert looks == 2


def test_who_cannot_sign_removes_nobody(alone: PartyFile) -> None:
    folder = alone.state.parent
    (folder / "scores.csv").write_text("id,score\r\np07,0.5\r\n")
    words = ("--remove", "--certificate", str(folder / "erased.json"))
    refused = forget(folder / "party.toml", "p07", *words)
    assert "fedmq keys new" in refused.error
    assert "p07" in (folder / "scores.csv").read_text()


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_model_is_trained_anew_without_the_person_and_the_old_one_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, "delete_models = true\n")
    bank = tmp_path / "bank"
    (bank / "align.toml").write_text('name = "people"\n')
    async with demo:
        align = AlignmentJob(name="people").model_dump(mode="json")
        await demo.ask("bank", "align", job=align)
        params = TrainParams(num_boost_round=2, max_depth=2, min_child_weight=0.1)
        job = TrainingJob(
            engine="plain", alignment="people", params=params, model="m", evaluation=0.5
        )
        await demo.ask("bank", "train", job=job.model_dump(mode="json"))
        still = await asked(demo, "bank", "p07", "--retrain", "m")
        assert "the person is in" in still.error and "still" in still.error

        table = (bank / "data.csv").read_text().splitlines()
        left = [line for line in table if not line.startswith("p07,")]
        (bank / "data.csv").write_text("\n".join(left) + "\n")
        held = await asked(demo, "bank", "p07", "--retrain", "m")
        assert held.error == "alignment people holds the person; make it anew with --align JOB.toml"
        misnamed = await asked(demo, "bank", "p07", "--retrain", "m", "--as", "a b")
        assert misnamed.error.startswith("--as: 'a b' names no model; write")
        words = ("--align", str(bank / "align.toml"), "--delete-old", "--json")
        found = (await asked(demo, "bank", "p07", "--retrain", "m", *words)).result
        assert (found["old"], found["model"]) == ("m", "m-anew")
        assert (found["deleted"], found["left"], found["activated"]) == (True, {}, None)
        assert found["rows"] > 0 and found["metric"] == "log loss"
        assert found["as_good"] == (found["after"] <= found["before"])
        assert "p07" not in AlignmentStore(bank / "state").load("people").ids
        for party in PARTIES:
            assert ModelStore(tmp_path / party / "state").ids() == ["m-anew"]

        # The same rows, the same job: equal is good enough, and what is served stays.
        words = ("--as", "again", "--activate", "production", "--delete-old", "--json")
        same = (await asked(demo, "bank", "p07", "--retrain", "m-anew", *words)).result
        assert same["before"] == same["after"] and same["activated"] == "production"
        assert Deployments.read(bank / "state").names()["production"].model == "again"
        assert ModelStore(tmp_path / "telco" / "state").ids() == ["again"]


@pytest.mark.parametrize(("before", "after", "good"), [(0.5, 0.5, True), (0.5, 0.51, False)])
def test_a_worse_model_is_not_as_good(before: float, after: float, good: bool) -> None:
    assert Retrained("m", "n", 5, "log loss", before, after).as_good is good
    assert not Retrained("m", "n", why="no row was held out by both trainings").as_good
