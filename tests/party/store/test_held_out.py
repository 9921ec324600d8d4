"""Held-out rows are kept beside the model, and read as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.party.store.documents import HeldOutRows, ModelStore, held_out_rows

IDS = ("a", 'b,"c', "ä\nx")
SETS = ("eval", "late", "eval")


BOUNDS = np.array([[1, 2], [3, np.inf], [0, 1]], np.float32)


@pytest.mark.parametrize(
    ("label", "columns"),
    [
        (np.array([0, 1, 0.1], np.float32), ("label",)),
        (BOUNDS, ("label", "label_upper_bound")),
        (BOUNDS, ("label_0", "label_1")),
    ],
    ids=["a number", "bounds", "targets"],
)
def test_rows_are_read_as_they_were_written(
    tmp_path: Path, label: np.ndarray, columns: tuple[str, ...]
) -> None:
    held_out_rows(tmp_path).keep("m", HeldOutRows(IDS, SETS, label, columns))
    again = held_out_rows(tmp_path).read("m")
    assert (again.ids, again.sets, again.columns) == (IDS, SETS, columns)
    np.testing.assert_array_equal(again.label, label)
    assert held_out_rows(tmp_path).path("m").stat().st_mode & 0o077 == 0
    assert ModelStore(tmp_path).ids() == []


def test_queries_are_read_as_they_were_written(tmp_path: Path) -> None:
    label = np.array([[1, 2], [3, 2], [0, 1]], np.float32)
    held_out_rows(tmp_path).keep("m", HeldOutRows(IDS, SETS, label, ("label", "qid")))
    assert held_out_rows(tmp_path).path("m").read_text().startswith("id,set,label,qid\n")
    assert held_out_rows(tmp_path).read("m").columns == ("label", "qid")


def test_a_model_without_held_out_rows_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model 'm' has no held-out rows.*--rows"):
        held_out_rows(tmp_path).read("m")


@pytest.mark.parametrize("text", ["", "x,y\n", "id,set,label\na,eval\n", "id,set,label\na,b,c\n"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = held_out_rows(tmp_path).path("m")
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DataError, match="is damaged"):
        held_out_rows(tmp_path).read("m")
