"""What the benchmark of wide tables reads and prints."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.wide_memory import Row, Shape, table, write_tables
from fedmq import TrainParams
from fedmq.boosting.params import OLDEST


def test_a_shape_is_rows_and_both_parties_columns() -> None:
    shape = Shape.of("20000x20+5000")
    assert (shape.rows, shape.own, shape.other) == (20_000, 20, 5_000)
    assert str(shape) == "20,000 x (20 + 5,000)"
    assert (shape.depth, Shape.of("20000x20+5000/1").depth) == (3, 1)
    with pytest.raises(argparse.ArgumentTypeError, match=r"write ROWSxOWN\+OTHER"):
        Shape.of("20000x5020")


def test_both_parties_have_a_table(tmp_path: Path) -> None:
    params = TrainParams(max_depth=2, max_bin=8, xgboost_arithmetic=OLDEST)
    assert write_tables(tmp_path, Shape(200, 2, 60), params) > 0
    active = pq.read_table(tmp_path / "wide_active.parquet")
    assert active.column_names == ["id", "label", "active0", "active1"]
    assert 0 < sum(active["label"].to_pylist()) < 200
    assert pq.read_table(tmp_path / "wide_passive.parquet").shape == (200, 61)


def test_a_refusal_is_printed_with_its_reason() -> None:
    taken = Row("2 x (1 + 1)", 3, "ou", 0.01, 1.5, 20.0, 300.0, 1200.0)
    refused = Row("2 x (1 + 1)", 3, "lattice", 0.01, refused="telco refused the session")
    lines = table([taken, refused]).splitlines()
    assert lines[2] == "| 2 x (1 + 1) | 3 | ou | 1.5 | 0.01 | 20 | 300 | 1,200 |"
    assert lines[-1] == "- 2 x (1 + 1), lattice: telco refused the session"
