"""``id = ["branch", "loan"]``: several columns name a row together."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.id_column import comparable, joined, parts_of
from fedmq.party.data.table import Table, read_table, read_text_column
from fedmq.party.data.validation import validate_source
from fedmq.workbench.people_file import read_ids

LOANS = "branch,loan,age\n 2 ,c,30\n1,a|b,31\n1,C,32\n"


def section(path: Path, **more: Any) -> DataSection:
    return DataSection(path=path, **{"id": ["branch", "loan"], **more})


def table(path: Path, text: str = LOANS, **more: Any) -> Table:
    path.write_text(text)
    return read_table("bank", section(path, **more))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loans.csv"


def test_the_columns_of_the_id_are_no_features_and_make_one_text(path: Path) -> None:
    read = table(path)
    assert read.ids == ("1|C", r"1|a\|b", "2|c")
    assert read.features == ("age",)
    assert read.values[:, 0].tolist() == [32, 31, 30]


@given(st.lists(st.text(alphabet=r"ab|\ "), min_size=2, max_size=4))
def test_a_text_tells_its_parts(parts: list[str]) -> None:
    assert parts_of(joined(parts)) == parts


@given(st.lists(st.lists(st.text(alphabet=r"a|\ "), min_size=2, max_size=2), max_size=3))
def test_ids_are_equal_only_if_all_parts_are(rows: list[list[str]]) -> None:
    assert len({joined(row) for row in rows}) == len({tuple(row) for row in rows})


def test_each_column_is_normalised_and_all_together_are_hashed(path: Path) -> None:
    read = table(path, normalise=["trim", "lower", "sha256"])
    wanted = ("2|c", r"1|a\|b", "1|c")
    assert read.ids == tuple(sorted(hashlib.sha256(name.encode()).hexdigest() for name in wanted))
    data = section(path, normalise=["trim", "lower", "sha256"])
    asked = comparable([" 2|C ", r"1 | A\|b", "1|c"], data)
    assert sorted(asked) == list(read.ids)


@pytest.mark.parametrize("name", ["2", "2|c|", "2|c|x", "", "|", r"2\|c"])
def test_an_id_of_another_number_of_parts_is_nobodys(path: Path, name: str) -> None:
    read = table(path)
    assert comparable([name], section(path))[0] not in read.ids


def test_only_rows_that_share_all_columns_are_repeated(path: Path) -> None:
    assert len(table(path, "branch,loan,age\n1,a,1\n1,b,2\n2,a,3\n").ids) == 3
    with pytest.raises(DataError, match=r"1 ids are repeated, such as '1\|a' in line 3"):
        table(path, "branch,loan,age\n1,a,1\n1,a,2\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("branch,age\n1,2\n", ": there is no column 'loan' (id)"),
        ("branch,loan,age\n1,a,1\n1, ,2\n", ", line 3: the id's 'loan' is empty"),
        ("branch,loan,age\n,a,1\n", ", line 2: the id's 'branch' is empty"),
        (f"branch,loan,age\n1,{'x' * 256},1\n", ", line 2: the id is longer than 256 characters"),
    ],
)
def test_a_wrong_id_names_party_file_row_and_column(path: Path, text: str, line: str) -> None:
    with pytest.raises(DataError) as caught:
        table(path, text)
    assert str(caught.value).startswith(f"bank: {path}{line}")


def test_a_check_of_the_data_shows_every_column_of_the_id(path: Path) -> None:
    path.write_text("branch,loan,age\n01,a,1\n1.0,b,2\n1,,2\n")
    found = validate_source("bank", section(path), labelled=False)
    assert [(column.name, column.role) for column in found.columns] == [
        ("branch", "id"),
        ("loan", "id"),
        ("age", "feature"),
    ]
    assert found.refused == (f"bank: {path}, line 4: the id's 'loan' is empty",)
    assert ["leading zeros" in line for line in found.warnings] == [False, True]


def test_a_column_may_group_the_people_that_it_names(path: Path) -> None:
    path.write_text(LOANS)
    assert read_text_column("bank", section(path), "branch") == {
        "1|C": "1",
        r"1|a\|b": "1",
        "2|c": "2",
    }


def test_a_file_of_people_has_all_columns(path: Path) -> None:
    path.write_text(LOANS)
    assert read_ids(path, ["branch", "loan"]) == ["2|c", r"1|a\|b", "1|C"]
    with pytest.raises(DataError, match="there is no column 'account' in line 1"):
        read_ids(path, ["branch", "account"])


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"id": []}, "id needs one column or more, each of them once"),
        ({"id": ["a", "a"]}, "id needs one column or more, each of them once"),
        ({"id": ["a", 1]}, "the name of a column, or a list of names, is needed"),
        ({"hashed": True, "normalise": ["sha256"]}, "hashed ids are one column: the hash of all"),
        ({"features": ["loan"]}, "column 'loan' cannot be a feature as well"),
    ],
)
def test_columns_that_make_no_id_are_refused(path: Path, more: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError, match=line):
        section(path, **more)
