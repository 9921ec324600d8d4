"""``fedmq forget``: where a person is, what can be taken out, and what stays and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import cross_validations, held_out_rows
from fedmq.workbench import erasure
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import DaemonsInMemory


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
            await demo.ask("bank", "predict", model="m", alignment="people", mode="sealed")
            yield demo


async def asked(demo: DaemonsInMemory, party: str, name: str, *words: str) -> Outcome:
    file = demo.folder / party / "party.toml"
    return await asyncio.to_thread(fedmq, "forget", file, "--id", name, *words)


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
    assert any(of.startswith("recording ") for of in places)
    assert person in held_out_rows(bank).read("m").ids  # it was only asked

    before = held_out_rows(bank).read("m")
    done = await asked(demo, "bank", person, "--remove", "--json")
    assert {of["done"] for of in json.loads(done.out)["places"]} == {"removed", "stays"}
    left = held_out_rows(bank).read("m")
    assert {*before.ids} - {*left.ids} == {person} and len(left.label) == len(left.ids)
    assert f"{person}," not in folds.read_text()
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
