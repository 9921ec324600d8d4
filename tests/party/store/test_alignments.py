"""Alignments in a party's state folder, and tables that are read through them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import (
    Aligned,
    AlignmentTerms,
    LoadActiveTable,
    load_passive_table,
    read_ids,
)
from fedmq.party.store.alignments import AlignmentStore, StoredAlignment

ALIGNMENT = StoredAlignment(
    name="customers",
    session="5e55",
    made="2026-01-01T00:00:00+00:00",
    parties=("bank", "telco"),
    normalise=("trim",),
    fingerprint="f1",
    ids=("böb", "anna"),
)


@pytest.fixture
def store(tmp_path: Path) -> AlignmentStore:
    return AlignmentStore(tmp_path / "state")


def test_an_alignment_comes_back_as_it_was_and_replaces_its_name(store: AlignmentStore) -> None:
    store.save(ALIGNMENT)
    assert store.load("customers") == ALIGNMENT
    later = ALIGNMENT.model_copy(update={"session": "7a7a"})
    store.save(later)
    assert store.load("customers") == later
    assert store.names() == ["customers"]


def test_ids_are_for_their_owner_alone(store: AlignmentStore) -> None:
    store.save(ALIGNMENT)
    assert store.path("customers").stat().st_mode & 0o777 == 0o600


def test_a_missing_alignment_says_which_there_are(store: AlignmentStore) -> None:
    store.save(ALIGNMENT)
    with pytest.raises(DataError, match="no alignment 'clients' here; there are: customers"):
        store.load("clients")


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other"}', json.dumps({"ids": [1]})])
def test_a_damaged_alignment_is_named(store: AlignmentStore, text: str) -> None:
    store.save(ALIGNMENT)
    store.path("customers").write_text(text)
    with pytest.raises(DataError, match=r"customers\.json: not an alignment; make it anew"):
        store.load("customers")


def test_a_disk_that_refuses_leaves_the_old_alignment(
    store: AlignmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(ALIGNMENT)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        store.save(ALIGNMENT.model_copy(update={"session": "7a7a"}))
    assert store.load("customers") == ALIGNMENT
    assert [file.name for file in store.path("x").parent.iterdir()] == ["customers.json"]


@pytest.fixture
def data(tmp_path: Path) -> DataSection:
    path = tmp_path / "data.csv"
    path.write_text("id,x,y\nc,3,1\na,1,0\nd,4,0\nb,2,1\n")
    return DataSection(path=path, id="id", label="y")


def aligned(data: DataSection, store: AlignmentStore, rows: list[int]) -> Aligned:
    """An alignment of these of the ids, which stand in ascending order."""
    terms = AlignmentTerms("customers", "5e55", ("bank", "telco"))
    own = read_ids("bank", data, True, terms, store)
    assert own.ids.strings() == ["a", "b", "c", "d"]
    assert own.keep(np.array(rows, np.uint32)).run() == len(rows)
    return Aligned(store, "customers")


def test_an_aligned_table_has_the_alignments_rows_in_its_order(
    data: DataSection, store: AlignmentStore
) -> None:
    through = aligned(data, store, [3, 0, 2])
    table = LoadActiveTable("bank", data, TrainParams(), 0.0, "salt", through).run()
    assert table.values[:, 0].tolist() == [4, 1, 3]
    assert table.label.tolist() == [0, 0, 1]
    assert (table.alignment, table.alignment_name) == ("5e55", "customers")


def test_rows_that_moved_are_the_same_data_and_rows_that_changed_are_not(
    data: DataSection, store: AlignmentStore
) -> None:
    through = aligned(data, store, [3, 0, 2])
    assert data.path is not None
    data.path.write_text("id,x,y\na,1,0\nb,2,1\nc,3,1\nd,4,0\n")
    load = LoadActiveTable("bank", data, TrainParams(), 0.0, "salt", through)
    assert load.run().values[:, 0].tolist() == [4, 1, 3]
    for changed in ("id,x,y\na,9,0\nb,2,1\nc,3,1\nd,4,0\n", "id,x,y\na,1,0\nc,3,1\nd,4,0\n"):
        data.path.write_text(changed)
        with pytest.raises(
            Refused,
            match=r"bank: its data, or what \[data\] reads of it, changed since alignment",
        ):
            load.run()


def test_a_party_without_the_alignment_refuses_and_shows_no_path(
    data: DataSection, store: AlignmentStore
) -> None:
    with pytest.raises(Refused) as caught:
        load_passive_table("telco", data, "salt", Aligned(store, "customers"))
    line = str(caught.value)
    assert line == "telco has no alignment 'customers'; make it with: fedmq align"
