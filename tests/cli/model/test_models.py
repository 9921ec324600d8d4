"""Shares as files by the command line, without a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.party.store.models import ModelStore
from tests.cli.command import fedmq
from tests.party.store.test_models import active_share, passive_share


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "demo"
    names = ("--active", "bank", "--passive", "telco", "--passive", "retail")
    assert fedmq("init", made, *names).code == 0
    ModelStore(made / "bank" / "state").save(active_share())
    ModelStore(made / "telco" / "state").save(passive_share())
    return made


def test_a_share_moves_to_another_machine_of_its_party(folder: Path, tmp_path: Path) -> None:
    telco, file = folder / "telco" / "party.toml", tmp_path / "credit.share"
    exported = fedmq("models", "export", telco, "credit", file, "--json").result
    assert (exported["model"], exported["party"]) == ("credit", "telco")
    store = ModelStore(folder / "telco" / "state")
    before = store.path("credit").read_text()
    store.path("credit").unlink()

    assert "telco has its share of model credit" in fedmq("models", "import", telco, file).out

    assert store.path("credit").read_text() == before
    again = fedmq("models", "import", telco, file)
    assert again.code == 3
    assert again.error == f"{file}: telco has a share of model credit already"


def test_no_other_party_takes_it(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "credit.share"
    assert fedmq("models", "export", folder / "telco" / "party.toml", "credit", file).code == 0

    for other in ("retail", "bank"):
        outcome = fedmq("models", "import", folder / other / "party.toml", file)
        assert outcome.code == 4
        assert f"the share of telco, not of {other}" in outcome.error
    assert not ModelStore(folder / "retail" / "state").ids()


def test_verifying_a_share_needs_no_daemon_of_a_passive_party(folder: Path) -> None:
    telco = folder / "telco" / "party.toml"
    assert fedmq("models", "verify", telco).out == "credit: sound, 1 records here\n"

    path = ModelStore(folder / "telco" / "state").path("credit")
    path.write_text(path.read_text()[:-9])
    damaged = fedmq("models", "verify", telco, "credit")
    assert damaged.code == 4
    assert "credit.json: not a model share" in damaged.error


def test_a_share_that_was_copied_from_another_party_or_model_is_not_sound(folder: Path) -> None:
    store = ModelStore(folder / "retail" / "state")
    store.save(passive_share())
    copied = fedmq("models", "verify", folder / "retail" / "party.toml")
    assert copied.code == 4
    assert "the share of telco, not of retail" in copied.error

    store.path("credit").rename(store.path("debit"))
    renamed = fedmq("models", "verify", folder / "retail" / "party.toml", "debit")
    assert "debit.json: the share of model credit" in renamed.error


def test_the_label_holder_asks_the_others_unless_told_not_to(folder: Path) -> None:
    bank = folder / "bank" / "party.toml"
    assert fedmq("models", "verify", bank, "--local", "--json").result == [
        {"model": "credit", "own_records": 0}
    ]
    asking = fedmq("models", "verify", bank)
    assert asking.code == 7
    assert "no daemon runs" in asking.error


def test_models_without_more_lists_them(folder: Path) -> None:
    bank = folder / "bank" / "party.toml"
    for words in (("models", bank), ("models", "list", bank), ("models", "--json", bank)):
        outcome = fedmq(*words)
        assert outcome.code == 7
        assert "no daemon runs" in outcome.error


def test_importances_name_own_columns_alone(folder: Path) -> None:
    bank = fedmq("models", "importance", folder / "bank" / "party.toml", "--json").result
    own = active_share().lookup_table.feature_names
    assert (bank["model"], bank["type"]) == ("credit", "gain")
    named = {(row["party"], row["column"]) for row in bank["columns"]}
    assert {column for party, column in named if party == "bank"} <= set(own)
    assert {column for party, column in named if party != "bank"} <= {""}
    telco = fedmq("models", "importance", folder / "telco" / "party.toml", "credit")
    assert telco.code == 0
    assert "WEIGHT" in telco.out.splitlines()[0]
    retail = fedmq("models", "importance", folder / "retail" / "party.toml")
    assert retail.error == "there is no model yet; train one with: fedmq train JOB.toml"
