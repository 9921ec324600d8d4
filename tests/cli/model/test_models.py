"""Shares as files by the command line, without a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.party.store.documents import Deployment, Deployments, ModelStore
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


def test_the_active_party_asks_the_others_unless_told_not_to(folder: Path) -> None:
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


def test_a_model_is_shown_as_far_as_a_party_may_see_it(folder: Path) -> None:
    bank = fedmq("models", "show", folder / "bank" / "party.toml", "--json").result
    assert bank["trees"] == [{"nodes": 3, "leaves": 2, "depth": 1}]
    assert bank["splits"] == {"bank": 0, "telco": 1}
    assert bank["total_gain"] == {"telco": 3.5}
    telco = fedmq("models", "show", folder / "telco" / "party.toml", "--json").result
    assert set(telco) == {"model", "own_splits", "party", "columns", "departures"}
    assert sum(telco["own_splits"].values()) == len(passive_share().lookup_table)
    in_words = fedmq("models", "show", folder / "bank" / "party.toml", "credit").out
    assert "1, 2 leaves, depth 1" in in_words


def test_two_models_are_compared_key_by_key(folder: Path) -> None:
    party = folder / "bank" / "party.toml"
    other = active_share("later")
    params = other.params.model_copy(update={"eta": 0.5})
    ModelStore(folder / "bank" / "state").save(other.model_copy(update={"params": params}))
    found = fedmq("models", "diff", party, "credit", "later", "--json").result
    assert {row["key"]: (row["credit"], row["later"]) for row in found} == {
        "model": ("credit", "later"),
        "params.eta": (0.1, 0.5),
    }
    assert fedmq("models", "diff", party, "credit", "credit").out.strip() == (
        "credit and credit do not differ"
    )


def test_a_share_is_deleted_unless_a_name_stands_for_it(folder: Path) -> None:
    party, state = folder / "bank" / "party.toml", folder / "bank" / "state"
    deployments = Deployments.read(state)
    deployments.put("score", Deployment(model="credit", mode="bitmap"))
    refused = fedmq("models", "delete", party, "credit", "--yes")
    assert refused.code == 3
    assert "is served as score" in refused.error
    (state / "deployments.json").unlink()
    asked = fedmq("models", "delete", party, "credit")
    assert asked.code != 0
    assert ModelStore(state).ids() == ["credit"]
    assert fedmq("models", "delete", party, "credit", "--yes").code == 0
    assert ModelStore(state).ids() == []
