from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedmq.errors import DataError
from fedmq.party.data.data_frame import feature_table

COLUMNS = {"age": [30, 41, 52], "income": [1.5, None, 2e3]}
VALUES = np.array([[30, 1.5], [41, np.nan], [52, 2e3]], dtype=np.float32)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS, index=["c", "b", "a"]),
        pd.DataFrame(COLUMNS).astype({"income": "Float64"}),
        pd.DataFrame(COLUMNS).astype(object),
        pl.DataFrame(COLUMNS),
        pa.table(COLUMNS),
    ],
    ids=["pandas", "pandas with an index", "pandas nullable", "pandas objects", "polars", "arrow"],
)
def test_a_frame_is_its_columns_by_name(frame: Any) -> None:
    values, names = feature_table(frame, "bank")
    assert names == ("age", "income")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, VALUES)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, object])
def test_columns_of_an_array_are_numbered(dtype: Any) -> None:
    values, names = feature_table(VALUES.astype(dtype), "bank")
    assert names == ("f0", "f1")
    np.testing.assert_array_equal(values, VALUES)


def test_a_list_of_rows_is_a_table() -> None:
    assert feature_table([[1, 2], [3, 4]], "bank")[0].tolist() == [[1, 2], [3, 4]]


def test_a_table_may_have_no_columns() -> None:
    assert feature_table(pd.DataFrame(index=range(3)), "bank")[0].shape == (3, 0)
    assert feature_table(np.empty((3, 0)), "bank")[0].shape == (3, 0)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_text_is_named_by_its_column_and_row(kind: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match=r"^bank: column 'city', row 2 holds 'Ulm', which is no"):
        feature_table(kind({"age": [1, 2, 3], "city": [None, "Ulm", "7"]}), "bank")


def test_numbers_written_as_text_are_taken_as_numbers() -> None:
    assert feature_table(pd.DataFrame({"age": ["1", "2.5"]}), "bank")[0].tolist() == [[1], [2.5]]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (np.zeros(3), r"bank: a table has rows and columns, this has shape \(3,\)"),
        (np.array([[1.0], [np.inf]]), "bank: column 'f0', row 2 is infinite"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "bank: column 'a' appears more than once"),
        (np.array([["a", "b"]]), "bank: the array, row 1 holds 'a', which is no number"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(data: Any, line: str) -> None:
    with pytest.raises(DataError, match=f"^{line}"):
        feature_table(data, "bank")
