"""``fedmq models card``, signed by message and by file, and ``delete --everywhere``."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from sklearn.metrics import recall_score

from fedmq.boosting.model.shown_model import split_counts
from fedmq.boosting.params import TrainParams
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.store.documents import ModelStore, trained_counts
from fedmq.transport.sealing.keys import PrivateKeys
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def federation(
    tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    """Three parties with keys and a model; telco signs and deletes when it is asked."""
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    made = DaemonsInMemory(tmp_path_factory.mktemp("card"), patch, keys=keys)
    with (made.folder / "telco" / "party.toml").open("a") as file:
        file.write('column_names = "shared"\nsign_cards = true\ndelete_models = true\n')
        file.write('groups = ["gender"]\nsmallest_group = 5\ngroup_names = "shared"\n')
    add_genders(made.folder / "telco")
    await made.start()
    params = TrainParams(
        num_boost_round=3, max_depth=2, max_bin=8, eval_metric="auc", base_score=0.5
    )
    job = TrainingJob(
        model="credit", engine="plain", params=params, evaluation=0.5, split="stratified"
    )
    await made.ask("bank", "train", job=job.model_dump(mode="json"))
    yield made
    await made.stop()


def add_genders(telco: Path) -> None:
    """A column at telco that nobody learns from."""
    data, config = telco / "data.csv", telco / "party.toml"
    head, *lines = data.read_text().splitlines()
    gendered = [f"{line},{'fm'[row % 2]}" for row, line in enumerate(lines)]
    data.write_text("\n".join([f"{head},gender", *gendered]) + "\n")
    text = config.read_text()
    config.write_text(text.replace('id = "id"\n', 'id = "id"\nignore = ["gender"]\n'))


@pytest.fixture(scope="module")
def path(federation: DaemonsInMemory) -> Path:
    return federation.folder / "credit.card.json"


def document_in(path: Path) -> Any:
    return json.loads(path.read_text())


def party(federation: DaemonsInMemory, name: str) -> Path:
    return federation.folder / name / "party.toml"


async def typed(*words: str | Path) -> Outcome:
    return await asyncio.to_thread(fedmq, *words)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(federation: DaemonsInMemory, path: Path) -> Any:
    """What the active party is told when it has a card made, and asks the others to sign it."""
    bank = party(federation, "bank")
    done = await typed("models", "card", bank, "-o", path, "--ask", "--worth", "--json")
    return done.result


async def test_a_card_says_who_trained_what_and_how_good_it_is(
    federation: DaemonsInMemory, path: Path, written: Any
) -> None:
    card = document_in(path)["card"]
    share = ModelStore(federation.folder / "bank" / "state").active("credit")
    assert card["parties"] == ["bank", "telco", "retail"]
    assert card["training"]["rows"] + card["training"]["held_out"] == 40
    assert card["training"]["engine"]["passive_learns"].startswith("every g and h")
    assert card["params"]["max_depth"] == 2
    assert card["drift"] == {"threshold": 0.25, "rows": 10_000, "least_rows": 1_000}
    assert card["evaluation"]["metrics"]["auc"]["value"] == pytest.approx(share.metrics["eval-auc"])
    assert sum(rows for _, _, rows in card["evaluation"]["calibration"]) == 21
    gained = sum(float(tree.gain[~tree.is_leaf].sum()) for tree in share.trees)
    assert sum(card["total_gain"].values()) == pytest.approx(gained, rel=1e-5)
    page = path.with_suffix(".md").read_text()
    assert "| bank learned beyond the model | the sums of g and h" in page
    assert written["file"] == str(path)


async def test_a_card_says_what_the_model_is_without_each_partner(
    federation: DaemonsInMemory, path: Path, written: Any
) -> None:
    card = CardFile.read(path).card
    store = ModelStore(federation.folder / "bank" / "state")
    for partner in ("telco", "retail"):
        worth, without = card.worth[partner], store.active(f"credit-without-{partner}")
        assert partner not in without.parties
        assert worth.without == without.metrics["eval-auc"]
        assert worth.value is not None
        assert worth.difference == pytest.approx(worth.value - worth.without)
    # They were measured on the same people.
    held_out = [
        (federation.folder / "bank" / "state" / "models" / f"{name}.held-out.csv").read_text()
        for name in ("credit", "credit-without-telco")
    ]
    assert held_out[0] == held_out[1]


async def test_groups_of_a_partners_column_are_as_of_the_joined_table(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    bank = party(federation, "bank")
    words = ("evaluate", bank, "credit", "-o", tmp_path / "out", "--samples", "0", "--json")
    assert (await typed(*words, "--group", "telco.gender")).result
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    table = report["tables"][-1]
    assert table["name"] == "Groups of gender at telco"
    with (tmp_path / "out" / "scores.csv").open() as file:
        scored = list(csv.DictReader(file))
    assert {row[0] for row in table["rows"]} == {"f", "m"}
    for name, people, ones, score, auc, selected, _, of_zeros, of_ones in table["rows"]:
        rows = [row for row in scored if "fm"[int(row["id"][1:]) % 2] == name]
        label = np.array([float(row["label"]) for row in rows])
        scores = np.array([float(row["score"]) for row in rows])
        chosen = scores < 0.5
        assert (people, auc) == (len(rows), None)
        assert ones == pytest.approx(label.mean())
        assert score == pytest.approx(scores.mean(), abs=2**-16)
        assert selected == pytest.approx(chosen.mean())
        assert of_zeros == pytest.approx(recall_score(label == 0, chosen & (label == 0)))
        assert of_ones == pytest.approx(recall_score(label == 1, chosen & (label == 1)))

    entries = [
        entry
        for entry in AuditLog(federation.folder / "telco" / "state").latest()
        if "groups" in entry
    ]
    assert [(entry["groups"], entry["people"]) for entry in entries] == [("gender", len(scored))]

    refused = await typed(*words, "--group", "telco.x0")
    assert refused.code == 6
    assert "groups of its [policy] would allow it" in refused.err
    refused = await typed(*words, "--group", "retail.gender")
    assert "retail does not add up by groups of 'gender'" in refused.err


async def test_each_party_counts_its_own_columns_and_the_active_party_the_scores(
    federation: DaemonsInMemory,
) -> None:
    for name in PARTIES:
        trained = trained_counts(federation.folder / name / "state").find("credit")
        assert trained is not None
        assert [(column.name, sum(column.counts)) for column in trained.columns] == [
            ("x0", 40),
            ("x1", 40),
        ]
        assert [sum(column.counts) for column in trained.scores] == [40] * (name == "bank")


async def test_a_party_signs_by_message_if_its_policy_says_so(path: Path, written: Any) -> None:
    states = {found["party"]: found["state"] for found in written["signatures"]}
    assert states == {"bank": "signed", "telco": "signed", "retail": "not signed"}
    assert list(written["refused"]) == ["retail"]
    assert "fedmq models card --sign" in written["refused"]["retail"]
    telco = CardFile.read(path).of("telco")
    assert telco is not None
    assert telco.agreed is not None


async def test_a_card_holds_no_column_s_name_and_no_person(
    federation: DaemonsInMemory, path: Path, written: Any
) -> None:
    for file in (path, path.with_suffix(".md")):
        text = file.read_text()
        assert "x0" not in text
        assert "x1" not in text
        assert "p00" not in text


async def test_another_party_signs_the_file_and_anybody_verifies_it(
    federation: DaemonsInMemory, path: Path, written: Any, tmp_path: Path
) -> None:
    passed_on = tmp_path / "card.json"
    shutil.copy(path, passed_on)
    retail = party(federation, "retail")
    signed = await typed("models", "card", retail, passed_on, "--sign")
    assert signed.out.count(" signed ") == 3
    assert signed.err.splitlines()[-1] == f"next: fedmq models verify {retail} {passed_on}"

    verified = (await typed("models", "verify", retail, passed_on, "--json")).result
    assert verified["own_share"] is True
    exported = await typed(
        "models", "export", party(federation, "telco"), "credit", tmp_path / "s", "--json"
    )
    shares = {found["party"]: found["share"] for found in verified["signatures"]}
    assert shares["telco"] == exported.result["sha256"]
    fingerprints = {found["party"]: found["fingerprint"] for found in verified["signatures"]}
    shown = await typed("keys", "show", party(federation, "telco"))
    assert fingerprints["telco"] in shown.out

    pinned = ("--federation", federation.folder / "federation.toml")
    auditor = await typed("models", "verify", passed_on, *pinned)
    assert auditor.code == 0, auditor.err
    assert auditor.out.count("signed") == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [("trees", 4), ("departures", ["none"]), ("made", "2020-01-01")],
    ids=["trees", "departures", "made"],
)
async def test_an_altered_card_is_found_out(
    federation: DaemonsInMemory, path: Path, written: Any, tmp_path: Path, key: str, value: Any
) -> None:
    document = document_in(path)
    document["card"][key] = value
    altered = tmp_path / "altered.json"
    altered.write_text(json.dumps(document))
    found = await typed("models", "verify", party(federation, "bank"), altered)
    assert found.code == 4
    assert "the signature of bank, telco is wrong" in found.error
    refused = await typed("models", "card", party(federation, "retail"), altered, "--sign")
    assert "the signature of bank is wrong" in refused.error


async def test_a_share_that_changed_since_is_found_out(
    federation: DaemonsInMemory, path: Path, written: Any
) -> None:
    store = ModelStore(federation.folder / "telco" / "state")
    before = store.path("credit").read_text()
    share = store.passive("credit")
    table = share.lookup_table
    moved = table.model_copy(update={"threshold": table.threshold + 1})
    store.save(share.model_copy(update={"lookup_table": moved}))
    found = await typed("models", "verify", party(federation, "telco"), path)
    store.path("credit").write_text(before)
    assert found.code == 4
    assert "telco's share of credit is not the signed share" in found.error


async def test_what_no_card_can_be_made_of_is_said_in_a_line(
    federation: DaemonsInMemory, path: Path, written: Any, tmp_path: Path
) -> None:
    bank, telco = party(federation, "bank"), party(federation, "telco")
    notes = tmp_path / "notes.json"
    notes.write_text("{}")
    for words, error in [
        (("card", telco), "only bank writes cards"),
        (("card", bank, "nobody"), "model 'nobody' has no share here"),
        (("card", bank, "credit", "-o", "card.txt"), "ends in .json"),
        (("card", telco, notes, "--sign"), "not a model card: card: Field required"),
        (("verify", telco, notes), "not a model card: card: Field required"),
        (("verify", path), "who verifies it?"),
    ]:
        assert error in (await typed("models", *words)).error


async def test_names_of_columns_are_seen_where_their_owner_shares_them(
    federation: DaemonsInMemory, written: Any
) -> None:
    bank = party(federation, "bank")
    words = ("models", "importance", bank, "credit", "--type", "weight", "--json")
    before = (await typed(*words)).result
    outcome = (await typed(*words, "--names")).result
    assert ["retail does not" in line for line in outcome["refused"]] == [True]
    own = own_counts(federation, "telco")
    seen = {row["column"]: row["weight"] for row in outcome["columns"] if row["party"] == "telco"}
    assert seen == own
    assert {row["column"] for row in outcome["columns"] if row["party"] == "retail"} <= {""}
    for owner in PARTIES:
        assert total(before, owner) == total(outcome, owner)
    gains = (await typed("models", "show", bank, "credit", "--json")).result["total_gain"]
    assert {f"telco.{column}" for column in own} <= set(gains)
    refused = await typed("models", "importance", party(federation, "telco"), "--names")
    assert "only bank asks for names" in refused.error


def own_counts(federation: DaemonsInMemory, name: str) -> dict[str, int]:
    return split_counts(ModelStore(federation.folder / name / "state").passive("credit"))


def total(importance: Any, owner: str) -> float:
    return sum(row["weight"] for row in importance["columns"] if row["party"] == owner)


async def test_a_model_is_deleted_everywhere_as_far_as_policies_go(
    federation: DaemonsInMemory, written: Any
) -> None:
    bank = party(federation, "bank")
    name = "credit-without-telco"
    words = ("models", "delete", bank, name, "--everywhere", "--yes", "--json")
    first = (await typed(*words)).result
    assert set(first["left"]) == {"retail", "bank"}
    assert "delete_models = true" in first["left"]["retail"]
    assert first["deleted"] is False
    assert name in federation.models()["bank"]

    other = (await typed(*words[:3], "credit-without-retail", *words[4:])).result
    assert other == {
        "model": "credit-without-retail",
        "party": "bank",
        "deleted": True,
        "deleted_at": ["bank", "telco"],
        "left": {},
    }
    assert "credit-without-retail" not in federation.models()["telco"]
    assert "credit-without-retail" not in federation.models()["bank"]
    kept = {path.stem for path in (federation.folder / "bank" / "state" / "trained").iterdir()}
    assert kept == {"credit", "credit-without-telco"}


async def test_a_model_that_a_party_serves_is_not_deleted_there(
    federation: DaemonsInMemory, written: Any
) -> None:
    await federation.ask("bank", "activate", model="credit")
    refused = await typed(
        "models", "delete", party(federation, "bank"), "credit", "--everywhere", "--yes"
    )
    assert refused.code == 3
    assert "is served as production" in refused.error
    assert "credit" in federation.models()["telco"]
