"""``fedmq data check``: what is there, and what would be refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import fedmq


@pytest.fixture
def party(tmp_path: Path) -> Path:
    (tmp_path / "federation.toml").write_text(
        'name = "demo"\nactive = "bank"\npassive = ["telco"]\n'
    )
    path = tmp_path / "party.toml"
    path.write_text(
        'party = "bank"\nfederation = "federation.toml"\n'
        'broker = "amqp://bank:bank@127.0.0.1:1/"\n'
        '[data]\npath = "data.csv"\nid = "id"\nlabel = "y"\nignore = ["note"]\n'
        '[serving]\npath = "serving.csv"\nid = "id"\n'
    )
    (tmp_path / "data.csv").write_text(
        "id,y,age,city,note\na,0,30,Rome,x\nb,1,,Oslo,y\nc,1,51,Rome,z\n"
    )
    (tmp_path / "serving.csv").write_text("id,age\na,30\nb,31\n")
    return path


def test_a_sound_table_is_described_without_a_daemon_or_a_broker(party: Path) -> None:
    outcome = fedmq("data", "check", party)
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == [
        f"{party.parent}/data.csv: 3 rows",
        "COLUMN  ROLE     TYPE      MISSING  CATEGORIES",
        "id      id       id",
        "y       label    number    0.00%",
        "age     feature  number    33.33%",
        "city    feature  category  0.00%    2",
        "note    ignored  not read",
        f"{party.parent}/serving.csv: 2 rows",
        "COLUMN  ROLE     TYPE    MISSING  CATEGORIES",
        "id      id       id",
        "age     feature  number  0.00%",
    ]
    assert outcome.err.splitlines()[-1] == f"next: fedmq run {party}"
    assert "reading, rows 3" in outcome.err


def test_the_description_is_one_line_of_json_for_scripts(party: Path) -> None:
    found = fedmq("data", "check", party, "--json").result
    assert (found["rows"], found["repeated"], found["refused"]) == (3, 0, [])
    assert found["columns"][3]["categories"] == 2
    assert (found["serving"]["rows"], found["serving"]["refused"]) == (2, [])


def test_an_owner_names_its_columns_by_the_numbers_of_a_screen(party: Path) -> None:
    outcome = fedmq("data", "features", party, "2")
    assert outcome.out == 'features = ["city=Oslo", "city=Rome"]\n'
    found = fedmq("data", "features", party, "2", "1", "--json").result
    assert found["columns"] == {"1": "age", "2": "city"}
    assert found["features"] == ["age", "city=Oslo", "city=Rome"]
    outcome = fedmq("data", "features", party, "3")
    assert outcome.code == 3
    assert "there is no column 3; those of a screen are 1 to 2" in outcome.err


def test_an_owner_sees_how_much_its_own_columns_are_alike(party: Path) -> None:
    rows = [f"{row},{row % 2},{row},{3 * row},{row * row % 7},Rome,x" for row in range(30)]
    path = party.with_name("data.csv")
    path.write_text("\n".join(["id,y,age,thrice,other,city,note", *rows]) + "\n")
    page = party.with_name("alike.html")
    outcome = fedmq("data", "correlation", party, "--output", page)
    assert outcome.out.startswith("bank: 30 rows") and "infinite" in outcome.out
    assert "+1.0000" in outcome.out
    assert "<title>bank: age, bank: thrice: 1.00</title>" in page.read_text()
    found = fedmq("data", "correlation", party, "--json").result["parties"]["bank"]
    values = np.array([[row, 3 * row, row * row % 7] for row in range(30)], np.float64)
    np.testing.assert_allclose(
        found["correlation"]["coefficients"], np.corrcoef(values, rowvar=False), atol=1e-4
    )
    assert [column["vif"] for column in found["columns"]][:2] == ["infinite"] * 2
    outcome = fedmq("data", "correlation", party, "--output", party / "none.html")
    assert outcome.code == 3 and "cannot be written" in outcome.err


def test_what_would_be_refused_is_listed_and_ends_with_the_exit_code_of_data(party: Path) -> None:
    (party.parent / "data.csv").write_text("id,y,age,city,note\na,0,30,Rome,x\na,,old,Oslo,y\n")
    outcome = fedmq("data", "check", party)
    assert outcome.code == 4
    refused = [line for line in outcome.out.splitlines() if line.startswith("would be refused")]
    assert len(refused) == 3
    assert "line 3, column 'age': 'old' is no number" in refused[0]
    assert "1 ids are repeated, such as 'a' in line 3" in refused[1]
    assert "line 3, column 'y' is empty; a training needs all labels" in refused[2]
    assert "1 repeated ids, such as a: refused" in outcome.out
    assert outcome.err.splitlines()[-1].endswith("serving.csv: 3 things would be refused")


def test_what_is_wrong_in_either_table_is_listed_at_once(party: Path) -> None:
    (party.parent / "data.csv").write_text("id,y,age,city,note\na,0,30,Rome,x\nb,,31,Oslo,y\n")
    (party.parent / "serving.csv").unlink()
    outcome = fedmq("data", "check", party)
    assert outcome.code == 4
    refused = [line for line in outcome.out.splitlines() if line.startswith("would be refused")]
    assert ["line 3, column 'y' is empty" in line for line in refused] == [True, False]
    assert refused[1].endswith("serving.csv: there is no such file")
    assert outcome.err.splitlines()[-1].endswith("serving.csv: 2 things would be refused")


def test_the_rows_to_serve_can_be_checked_alone(party: Path) -> None:
    (party.parent / "data.csv").unlink()
    (party.parent / "serving.csv").write_text("id,age\na,30\na,31\n")
    outcome = fedmq("data", "check", party, "--serving")
    assert outcome.code == 4
    assert "serving.csv: 1 ids are repeated" in outcome.err


def test_all_columns_that_are_not_there_are_named_at_once(party: Path) -> None:
    (party.parent / "data.csv").write_text("idd,label,age\na,0,30\n")
    outcome = fedmq("data", "check", party)
    assert outcome.code == 4
    assert outcome.err.splitlines()[-1].endswith(
        f"bank: {party.parent}/data.csv: there is no column 'id' (id), nor 'y' (label), nor "
        "'note'; there are 'idd', 'label', 'age'; did you mean 'idd'?"
    )


def test_a_source_that_is_not_there_is_one_line(party: Path) -> None:
    (party.parent / "serving.csv").unlink()
    outcome = fedmq("data", "check", party, "--serving")
    assert (outcome.code, outcome.error) == (
        4,
        f"bank: {party.parent}/serving.csv: there is no such file",
    )
