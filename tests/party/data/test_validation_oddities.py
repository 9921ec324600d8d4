"""What data check points out: ids with leading zeros, and categories that are written twice."""

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
