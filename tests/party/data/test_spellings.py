"""Tables as spreadsheets of other countries write them: separators, decimals, encodings, dates."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.table import Table, read_table
from fedmq.party.data.validation import validate_source


def section(path: Path, **more: Any) -> DataSection:
    return DataSection.model_validate({"path": path, "id": "id", **more})


def read(path: Path, text: str, **more: Any) -> Table:
    path.write_text(text, encoding=more.get("encoding"))
    return read_table("bank", section(path, **more))


def test_a_german_spreadsheet_is_read_as_it_is(tmp_path: Path) -> None:
    text = "id;Größe;Betrag\nb;1,75;1.234.567,5\na;;-12\n"
    rules = {"separator": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"}
    found = read(tmp_path / "t.csv", text, **rules)
    assert found.features == ("Größe", "Betrag")
    np.testing.assert_array_equal(
        found.values, np.array([[np.nan, -12], [1.75, 1234567.5]], np.float32)
    )


@pytest.mark.parametrize("text", ["1.2.3", "1,23,456", "12,3456", "1,234,56.7", "a", "1.5e3x"])
def test_groups_that_are_no_thousands_are_no_number(text: str) -> None:
    assert not NumberSpelling(".", ",").reads(text)


def test_a_point_is_no_decimal_where_a_comma_is() -> None:
    assert NumberSpelling(",").number("-1,5") == -1.5
    assert not NumberSpelling(",").reads("1.5")


def test_a_date_becomes_numbers(tmp_path: Path) -> None:
    columns = {
        "born": {"kind": "date", "format": "%d.%m.%Y", "reference": date(2026, 6, 1)},
        "since": {"kind": "date", "parts": ["days", "weekday"]},
    }
    text = "id,born,since\na,01.06.2000,1970-01-05\nb,02.06.2000,\n"
    found = read(tmp_path / "t.csv", text, columns=columns)
    assert found.features == (
        "born.days", "born.month", "born.weekday", "born.age", "since.days", "since.weekday",
    )  # fmt: skip
    assert found.values[0].tolist() == [-9496, 6, 4, 26, 4, 1]
    assert found.values[1, 3] == 25
    assert np.isnan(found.values[1, 4:]).all()


def test_a_model_reads_the_dates_that_it_was_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,since,x\na,2020-01-01,1\n")
    data = section(path, columns={"since": {"kind": "date"}})
    found = read_table("bank", data, wanted=("since.month",))
    assert found.columns(("since.month",)).tolist() == [[1.0]]


def test_what_is_seldom_meant_is_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",id,label,empty,word\n0,1.0,1,,a\x00b\n1,1.23E+15,2,,c\n", encoding="utf-8")
    found = validate_source("bank", section(path, label="label"), labelled=True)
    assert found.refused == ()
    assert [line.removeprefix(f"bank: {path}") for line in found.warnings] == [
        ": column 1 has no name: is it the index of a data frame? Leave it out with ignore = ['']",
        ", line 2: id '1.0' was written as a decimal number; store ids as text",
        ", line 3: id '1.23E+15' was rounded by a spreadsheet; store ids as text, and export them "
        "anew",
        ", line 2: column 'word' holds a NUL character: 'a\\x00b'; export the table anew",
        ": column 'empty' has no value in any row; leave it out with ignore",
        ", column 'label': labels are 1 and 2; binary:logistic takes 0 and 1, so subtract 1",
    ]


def test_labels_of_one_class_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,label,x\na,1,2\nb,1,3\n")
    found = validate_source("bank", section(path, label="label"), labelled=True)
    assert found.warnings == (
        f"bank: {path}, column 'label': every label is 1; there is nothing to learn",
    )


def test_a_wide_table_shows_some_of_its_columns(tmp_path: Path) -> None:
    header = ",".join(["Id", *(f"x{place}" for place in range(20))])
    with pytest.raises(DataError, match=r"'x6' and 13 more; did you mean 'Id'\?$"):
        read(tmp_path / "t.csv", f"{header}\n")
