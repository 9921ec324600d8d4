from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import LookupTable, TreeArrays
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.store.documents import ModelStore


def passive_share(model: str = "credit") -> PassiveShare:
    table = LookupTable.empty(("age", "income")).appended(1, 0.1, True)
    return PassiveShare(model_id=model, party="telco", lookup_table=table)


def active_share(model: str = "credit") -> ActiveShare:
    tree = TreeArrays()
    left, right = tree.split(0, 1, 0, gain=3.5, cover=10)
    tree.leaf(left, 0.1, cover=4)
    tree.leaf(right, -0.2, cover=6)
    return ActiveShare(
        model_id=model,
        lookup_table=LookupTable.empty(("balance",)),
        parties=("bank", "telco"),
        params=TrainParams(num_boost_round=1, eta=0.1, base_score=0.5),
        trees=(tree.finished(),),
        history={"train-logloss": (0.1,)},
    )


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "state")


def test_shares_come_back_as_they_were(store: ModelStore) -> None:
    store.save(active_share())
    assert store.active("credit").dumps() == active_share().dumps()
    store.save(passive_share("other"))
    assert store.passive("other").dumps() == passive_share("other").dumps()


def test_models_are_listed_the_oldest_first(store: ModelStore) -> None:
    assert store.ids() == []
    for age, model in ((30, "c"), (20, "a"), (10, "b")):
        store.save(passive_share(model))
        then = store.path(model).stat().st_mtime - age
        os.utime(store.path(model), (then, then))
    assert store.ids() == ["c", "a", "b"]


def test_a_model_that_is_not_here_is_named_with_those_that_are(store: ModelStore) -> None:
    with pytest.raises(DataError, match=r"^model 'credit' has no share here; there are: none$"):
        store.passive("credit")
    store.save(passive_share("other"))
    with pytest.raises(DataError, match=r"there are: other$"):
        store.passive("credit")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a model share"),
        ('{"version": 99}', "version 99 is unknown"),
        (active_share().dumps(), "not a model share"),
    ],
)
def test_a_damaged_or_foreign_share_is_named(store: ModelStore, text: str, what: str) -> None:
    store.save(passive_share())
    store.path("credit").write_text(text)
    with pytest.raises(DataError, match=f"^{store.path('credit')}: .*{what}"):
        store.passive("credit")


def test_a_share_is_written_whole_or_not_at_all(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(passive_share())
    before = store.path("credit").read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"credit.json: the share cannot be written: No space"):
        store.save(passive_share().model_copy(update={"party": "retail"}))
    assert store.path("credit").read_text() == before
    assert [file.name for file in store.path("credit").parent.iterdir()] == ["credit.json"]


def test_a_share_half_written_by_a_crash_is_no_model(store: ModelStore) -> None:
    store.save(passive_share())
    store.path("credit").with_name("other.part").write_text(passive_share("other").dumps()[:40])
    assert store.ids() == ["credit"]
