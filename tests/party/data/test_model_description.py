"""What an owner is told of its models; those that are deleted meanwhile are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.errors import DataError
from fedmq.party.data.descriptions import list_models
from fedmq.party.store.documents import ModelStore
from tests.party.store.test_models import active_share


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    made = ModelStore(tmp_path)
    for model in ("kept", "other"):
        made.save(active_share(model))
    return made


def listed(tmp_path: Path) -> list[str]:
    return [line["model"] for line in list_models(tmp_path, is_active=True)]


def test_a_model_that_is_deleted_while_the_models_are_listed_is_left_out(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelStore, "ids", lambda _: ["kept", "deleted", "other"])
    assert listed(tmp_path) == ["kept", "other"]


def test_a_damaged_model_is_not_left_out(store: ModelStore, tmp_path: Path) -> None:
    store.path("other").write_text("{")
    with pytest.raises(DataError, match=r"other\.json"):
        listed(tmp_path)
