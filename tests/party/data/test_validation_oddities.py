"""What data check points out: ids with leading zeros, and categories that are written twice.

And columns that are the same in every row.
"""

from __future__ import annotations

from pathlib import Path

from fedmq.party.configuration.data import DataSection
from fedmq.party.data.validation import validate_source


def warnings(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "data.csv"
    path.write_text(text)
    return validate_source("bank", DataSection(path=path, id="id"), False).warnings


def test_leading_zeros_are_pointed_out(tmp_path: Path) -> None:
    [line] = warnings(tmp_path, "id,age\n12,3\n0012,4\n")
    assert "line 3: id '0012' has leading zeros; spreadsheets drop them" in line


def test_categories_that_read_alike_are_pointed_out_once(tmp_path: Path) -> None:
    [line] = warnings(tmp_path, "id,home\na,flat\nb,Flat \nc,FLAT\nd,house\n")
    assert "column 'home' has the categories 'flat' and 'Flat', which differ in capitals" in line
    assert warnings(tmp_path, "id,home\na,flat\nb,house\n") == ()


def test_a_column_that_is_the_same_in_every_row_is_named(tmp_path: Path) -> None:
    same = "id,a,b,c,d,e\n1x,1,Rome,,1,Rome\n2x,1,Rome,2,,\n3x,1,Rome,2,1,Rome\n"
    lines = warnings(tmp_path, same)
    place = f"bank: {tmp_path}"
    assert [line.startswith(place) for line in lines] == [True, True]
    assert ["column 'a' is the same in every row" in line for line in lines] == [True, False]
    assert ["column 'b' is the same in every row" in line for line in lines] == [False, True]
    assert warnings(tmp_path, "id,a\n1x,1\n") == ()


def test_a_date_that_is_the_same_in_every_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    path.write_text("id,day,month\n1x,2024-05-01,2024-05-01\n2x,2024-05-01,2024-06-01\n")
    columns = {name: {"kind": "date"} for name in ("day", "month")}
    data = DataSection.model_validate({"path": path, "id": "id", "columns": columns})
    [line] = validate_source("bank", data, False).warnings
    assert "column 'day' is the same in every row" in line
