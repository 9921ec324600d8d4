from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedmq.boosting.objectives.regression import BinaryLogistic
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import LoadActiveTable
from fedmq.party.data.table import Table, read_table
from fedmq.protocol.training.terms import ActiveTable
from fedmq.workbench.people_file import read_ids

GOOD = "id,age,income,y\nb,30,1.5,0\na,,2e3,1\nc,51,NA,1\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.csv"


def section(path: Path, **values: Any) -> DataSection:
    return DataSection(path=path, **{"id": "id", "label": "y", **values})


def table(path: Path, text: str, **values: Any) -> Table:
    path.write_text(text)
    return read_table("bank", section(path, **values), BinaryLogistic().labels)


def test_rows_come_in_the_order_of_their_ids(path: Path) -> None:
    read = table(path, GOOD)
    assert read.ids == ("a", "b", "c")
    assert read.features == ("age", "income")
    assert read.label is not None
    assert read.label.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(
        read.values, np.array([[np.nan, 2000], [30, 1.5], [51, np.nan]], dtype=np.float32)
    )
    assert read.values.dtype == np.float32


def test_columns_may_be_left_out(path: Path) -> None:
    assert table(path, GOOD, ignore=("income",)).features == ("age",)


def test_a_passive_partys_table_has_no_label(path: Path) -> None:
    path.write_text(GOOD)
    read = read_table("telco", section(path, label=None))
    assert read.label is None
    assert read.features == ("age", "income", "y")


@pytest.mark.parametrize("mark", ["", "NA", "?"])
def test_missing_values_have_marks(path: Path, mark: str) -> None:
    read = table(path, f"id,x,y\na,{mark},0\nb, 1 ,1\n", missing=("", "NA", "?"))
    np.testing.assert_array_equal(read.values[:, 0], [np.nan, 1])


def test_a_byte_order_mark_is_no_part_of_the_first_name(path: Path) -> None:
    assert table(path, "\ufeff" + GOOD).ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ": the file is empty"),
        ("id,age,y\n", ": there are no rows"),
        ("age,y\n1,0\n", ": there is no column 'id' (id)"),
        ("id,age\na,1\n", ": there is no column 'y' (label)"),
        ("id,age,age,y\na,1,2,0\n", ": column 'age' appears more than once"),
        ("id,age,y\na,1,0\nb,old,1\n", ", line 3, column 'age': 'old' is no number;"),
        (
            "id,age,y\na,1,0\nb,2,yes\n",
            ", line 3, column 'y': 'yes' is no number; write the label as",
        ),
        ("id,age,y\na,1,0\nb,2\n", ", line 3: 2 cells, the header has 3"),
        ("id,age,y\na,1,0\nb,2,0,4\n", ", line 3: 4 cells, the header has 3"),
        ("id,age,y\na,1,0\n,2,1\n", ", line 3: the id is empty"),
        (f"id,age,y\na,1,0\n{'b' * 257},2,1\n", ", line 3: the id is longer than 256 characters"),
        (
            "id,age,y\na,1,0\nb,2,1\na,3,1\nb,4,0\n",
            ": 2 ids are repeated, such as 'a' in line 4, 'b' in line 5; each row needs an id",
        ),
        ("id,age,y\nb,1,0\na,inf,1\n", ", line 3, column 'age' is infinite or too large"),
    ],
)
def test_a_wrong_table_is_one_line_that_names_party_file_and_place(
    path: Path, text: str, line: str
) -> None:
    with pytest.raises(DataError) as caught:
        table(path, text)
    assert str(caught.value).startswith(f"bank: {path}{line}")
    assert "\n" not in str(caught.value)


def test_a_column_to_leave_out_must_be_there(path: Path) -> None:
    with pytest.raises(DataError, match="there is no column 'agee'"):
        table(path, GOOD, ignore=("agee",))


@pytest.mark.parametrize("missing", [True, False])
def test_a_file_that_cannot_be_read_is_named(path: Path, missing: bool) -> None:
    if not missing:
        path.write_bytes(b"id,\xff\n")
    with pytest.raises(DataError, match=rf"^bank: {path}: (there is no such file|is not UTF-8)"):
        read_table("bank", section(path))


@pytest.mark.parametrize(("label", "shown"), [("2", "2"), ("", "nan"), ("0.5", "0.5")])
def test_a_label_that_is_not_binary_is_named_by_its_row_in_the_file(
    path: Path, label: str, shown: str
) -> None:
    path.write_text(f"id,age,y\nb,1,0\na,2,{label}\n")
    load = LoadActiveTable("bank", section(path), TrainParams(), evaluation=0.0, salt="s")
    with pytest.raises(DataError) as caught:
        load.run()
    assert str(caught.value) == (
        f"bank: {path}, column 'y': label in row 2 is {shown}; binary:logistic takes 0 and 1"
    )


def test_the_rows_held_out_are_the_same_each_time(path: Path) -> None:
    path.write_text("id,x,y\n" + "".join(f"p{row},{row},{row % 2}\n" for row in range(200)))
    load = LoadActiveTable("bank", section(path), TrainParams(seed=3), evaluation=0.25, salt="s")
    first, second = load.run(), load.run()
    np.testing.assert_array_equal(first.evaluation, second.evaluation)
    assert 30 <= first.evaluation.sum() <= 70


@pytest.mark.parametrize(
    ("share", "line"),
    [(1e-9, "evaluation = 1e-09 holds out no row of 3"), (1 - 1e-9, "leaves no rows to learn")],
)
def test_a_share_to_hold_out_holds_out_some_rows_and_leaves_some(
    path: Path, share: float, line: str
) -> None:
    path.write_text(GOOD)
    load = LoadActiveTable("bank", section(path), TrainParams(), evaluation=share, salt="s")
    with pytest.raises(DataError, match=line):
        load.run()


def test_the_digest_tells_same_ids_from_others(path: Path) -> None:
    def digest(text: str, salt: str) -> str:
        return table(path, text).digest(salt)

    shuffled = "id,y\nb,0\na,1\n"
    assert digest("id,y\na,0\nb,0\n", "s") == digest(shuffled, "s")
    assert digest(shuffled, "s") != digest(shuffled, "t")
    assert digest(shuffled, "s") != digest("id,y\na,0\nc,0\n", "s")
    assert digest("id,y\na,0\nbc,0\n", "s") != digest("id,y\nab,0\nc,0\n", "s")


def test_ids_come_in_the_order_of_their_file(path: Path) -> None:
    path.write_text("id,more\nc,1\na,2\nc,3\n")
    assert read_ids(path, ["id"]) == ["c", "a", "c"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\n", "there is no column 'id' in line 1"),
        ("p17\np18\n", "there is no column 'id' in line 1, which is .'p17'.; give the ids this"),
        ("id\n", "there are no ids"),
        ("", "empty"),
        ("id;b\n1;2\n", "its cells are separated by ';'; write it with commas"),
    ],
)
def test_a_wrong_file_of_ids_is_named(path: Path, text: str, line: str) -> None:
    path.write_text(text)
    with pytest.raises(DataError, match=rf"^{path}: .*{line}"):
        read_ids(path, ["id"])


INSURED = "id,age,claims,late,weight,offset\n1,30,2,,1.5,0.1\n2,40,0,7,0,-1\n"


def loaded(path: Path, text: str, objective: str, **columns: Any) -> ActiveTable:
    path.write_text(text)
    roles = {"late": "label_upper_bound", "weight": "weight", "offset": "base_margin"}
    ignored = [column for column, role in roles.items() if role not in columns]
    data = section(path, label="claims", ignore=ignored, **columns)
    params = TrainParams(objective=objective)
    return LoadActiveTable("bank", data, params, evaluation=0.0, salt="s").run()


def test_weights_and_margins_are_no_features(path: Path) -> None:
    columns = {"weight": "weight", "base_margin": "offset"}
    table = loaded(path, INSURED, "count:poisson", **columns)
    assert table.features == ("age",)
    assert table.weight is not None
    assert table.base_margin is not None
    assert table.weight.tolist() == [1.5, 0]
    assert table.base_margin.tolist() == [np.float32(0.1), -1]
    heavier = loaded(path, INSURED.replace("1.5", "2.5"), "count:poisson", **columns)
    assert heavier.digest != table.digest


def test_an_empty_upper_bound_says_that_nothing_has_happened_yet(path: Path) -> None:
    table = loaded(path, INSURED, "survival:aft", label_upper_bound="late")
    assert table.label.tolist() == [[2, np.inf], [0, 7]]


def test_the_query_of_each_row_stands_beside_its_label(path: Path) -> None:
    table = loaded(path, INSURED.replace(",,1.5", ",3,1.5"), "rank:ndcg", qid="late")
    assert table.label.tolist() == [[2, 3], [0, 7]]
    assert table.features == ("age",)
    with pytest.raises(DataError, match="rank:ndcg needs the query of each row; name it by qid"):
        loaded(path, INSURED, "rank:ndcg")


def test_a_weight_that_is_none_names_column_and_row(path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'weight': weight in row 1 is -1.5; a number"):
        loaded(path, INSURED.replace("1.5", "-1.5"), "count:poisson", weight="weight")


def test_evaluation_rows_may_be_divided_into_sets(path: Path) -> None:
    path.write_text("id,x,y\n" + "".join(f"{row},{row},{row % 2}\n" for row in range(400)))
    shares = {"old": 0.1, "new": 0.2}
    table = LoadActiveTable("bank", section(path), TrainParams(), shares, salt="s").run()
    assert list(table.evaluation_sets) == ["old", "new"]
    counts = [int(rows.sum()) for rows in table.evaluation_sets.values()]
    assert counts == pytest.approx([40, 80], abs=20)
    assert sum(counts) == table.evaluation.sum()


WORDS = "id,x,y\na,1,ja\nb,2, nein\nc,3,ja\n"


def test_a_label_of_words_is_the_place_of_its_class(path: Path) -> None:
    path.write_text(WORDS)
    data = section(path, label_classes=["nein", "ja"])
    table = LoadActiveTable("bank", data, TrainParams(), evaluation=0.0, salt="s").run()
    assert sorted(table.label.tolist()) == [0, 1, 1]


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("vielleicht", "line 4, column 'y': 'vielleicht' is none of its classes, 'nein', 'ja'; "),
        ("", "column 'y': .*row 3"),
    ],
)
def test_a_word_that_is_no_class_is_named(path: Path, cell: str, line: str) -> None:
    path.write_text(WORDS.replace("c,3,ja", f"c,3,{cell}"))
    data = section(path, label_classes=["nein", "ja"])
    with pytest.raises(DataError, match=line):
        LoadActiveTable("bank", data, TrainParams(), evaluation=0.0, salt="s").run()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"label_classes": ["ja"]}, "label_classes needs two words or more, each of them once"),
        ({"label_classes": ["ja", "ja"]}, "label_classes needs two words or more"),
        ({"label": None, "label_classes": ["n", "j"]}, "label_classes goes with label, which is"),
    ],
)
def test_classes_of_no_label_are_refused(path: Path, given: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError, match=line):
        section(path, **given)


SEVERAL = "id,age,late,claims\nb,30,0,2\na,40,1,1.5\n"


def test_several_labels_stand_beside_each_other(path: Path) -> None:
    path.write_text(SEVERAL)
    data = section(path, label=["late", "claims"])
    params = TrainParams(objective="reg:squarederror", num_target=2)
    table = LoadActiveTable("bank", data, params, evaluation=0.0, salt="s").run()
    assert table.features == ("age",)
    assert table.label.tolist() == [[1, 1.5], [0, 2]]


def test_a_label_among_several_that_does_not_fit_is_named(path: Path) -> None:
    path.write_text(SEVERAL)
    data = section(path, label=["late", "claims"])
    params = TrainParams(num_target=2)
    with pytest.raises(DataError) as caught:
        LoadActiveTable("bank", data, params, evaluation=0.0, salt="s").run()
    assert str(caught.value) == (
        f"bank: {path}, column 'late' and 'claims': target 2: label in row 1 is 2; "
        "binary:logistic takes 0 and 1"
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"label": []}, "label needs one column or more, each of them once"),
        ({"label": ["y", "y"]}, "label needs one column or more, each of them once"),
        ({"label": ["y", "z"], "base_margin": "b"}, "base_margin goes with one label, and there"),
        ({"label": ["y", "z"], "label_classes": ["n", "j"]}, "label_classes goes with one label"),
        ({"label": ["y", "z"], "features": ["z"]}, "column 'z' cannot be a feature as well"),
    ],
)
def test_labels_that_do_not_go_together_are_refused(
    path: Path, given: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValidationError, match=line):
        section(path, **given)
