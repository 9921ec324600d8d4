"""How the values of a table lie, for its owner alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmq.boosting.binning import Cuts
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.descriptions import describe_table


def described(folder: Path, text: str, max_bin: int = 8) -> dict[str, dict[str, object]]:
    (folder / "data.csv").write_text(text)
    section = DataSection.model_validate({"path": folder / "data.csv", "id": "id"})
    found = describe_table("telco", section, max_bin)
    return {column["name"]: column for column in found["columns"]}


def test_bars_hold_all_values_and_cuts_are_those_of_a_training(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=200).astype(np.float32)
    lines = [f"p{row},{value}" for row, value in enumerate(values)]
    columns = described(tmp_path, "\n".join(["id,x", *lines, "q,"]) + "\n")
    [spread] = columns["x"]["spreads"]  # type: ignore[misc]
    assert sum(spread["counts"]) == 200
    assert (spread["low"], spread["high"]) == (values.min(), values.max())
    np.testing.assert_array_equal(spread["cuts"], Cuts.of(values[:, None], 8).thresholds[0])
    assert columns["x"]["missing"] == round(1 / 201, 6)


def test_categories_are_counted_and_have_no_bars(tmp_path: Path) -> None:
    columns = described(tmp_path, "id,city\na,Rome\nb,Oslo\nc,Rome\nd,\n")
    assert columns["city"]["counts"] == [("Rome", 2), ("Oslo", 1)]
    assert columns["city"]["spreads"] == []


def test_a_table_that_would_be_refused_is_not_drawn(tmp_path: Path) -> None:
    columns = described(tmp_path, "id,x\na,1\na,2\n")
    assert columns["x"]["spreads"] == []


def test_a_column_without_values_has_no_bars(tmp_path: Path) -> None:
    columns = described(tmp_path, "id,x,y\na,,1\nb,,1\n")
    [spread] = columns["x"]["spreads"]  # type: ignore[misc]
    assert spread["counts"] == ()
    [flat] = columns["y"]["spreads"]  # type: ignore[misc]
    assert (sum(flat["counts"]), flat["cuts"]) == (2, ())
