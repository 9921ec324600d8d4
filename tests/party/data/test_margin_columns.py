"""Margins of rows that are scored: from columns of the table, or of a file of ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import read_margins
from fedmq.workbench.people_file import asked_margins


def section(folder: Path, *lines: str) -> DataSection:
    path = folder / "data.csv"
    path.write_text("\n".join(["id;a;b", *lines]) + "\n")
    return DataSection(path=path, id="id", separator=";", decimal=",")


def test_they_are_numbers_by_id_as_the_file_spells_them(tmp_path: Path) -> None:
    data = section(tmp_path, "p2;1,5;2", "p1;-0,25;3")
    found = read_margins("bank", data, ("a", "b"), ("p1", "nobody", "p2"))
    assert found.tolist() == [[-0.25, 3], [0, 0], [1.5, 2]]


@pytest.mark.parametrize("cell", ["", "much", "1.5"], ids=["empty", "text", "point"])
def test_a_cell_that_is_no_number_is_named(tmp_path: Path, cell: str) -> None:
    data = section(tmp_path, f"p1;{cell};3")
    with pytest.raises(DataError, match=f"bank: .*, column 'a': '{cell}' of 'p1' is no number"):
        read_margins("bank", data, ("a",), ("p1",))


def test_a_file_of_ids_may_bring_them(tmp_path: Path) -> None:
    data = section(tmp_path, "p1;1;2")
    rows = tmp_path / "ids.csv"
    rows.write_text("id;start\np7;0,5\np8;-1\np7;2\n")
    assert asked_margins(("start",), rows, data) == {"base_margin": [[0.5], [-1.0], [2.0]]}
    assert asked_margins(("a",), rows, data) == {"base_margin_columns": ["a"]}
    assert asked_margins(("a",), None, data) == {"base_margin_columns": ["a"]}
    assert asked_margins((), rows, data) == {}
    rows.write_text("id;start\np7;0,5\np8;\n")
    with pytest.raises(DataError, match="column 'start': '' of 'line 3' is no number"):
        asked_margins(("start",), rows, data)
