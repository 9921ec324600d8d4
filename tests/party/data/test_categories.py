"""A category column is what XGBoost makes of it: one category against the rest."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.data_frame import trained_columns
from fedmq.party.data.table import read_table

xgboost = pytest.importorskip("xgboost")

ROWS = 2000
PARAMS = fedmq.TrainParams(num_boost_round=5, max_depth=4, max_bin=32)
COLOURS = np.array(["amber", "blue", "cyan", "green", "red"])


def test_trees_are_those_of_xgboosts_own_categorical_splits(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3)).astype(np.float32)
    code = random.integers(0, len(COLOURS), ROWS)
    missing = random.random(ROWS) < 0.1
    noise = random.normal(size=ROWS)
    label = (x[:, 0] + 1.5 * (code == 2) - (code == 4) + missing + noise > 0).astype(np.int64)

    path = tmp_path / "telco.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "colour"])
        for row in range(ROWS):
            writer.writerow([f"{row:05d}", "" if missing[row] else COLOURS[code[row]]])
    table = read_table("telco", DataSection(path=path, id="id"))
    assert table.features == tuple(f"colour={colour}" for colour in COLOURS)
    model = fedmq.simulate(
        active=x, label=label, passive={"telco": table.values}, params=PARAMS, engine="plain"
    )

    frame = pd.DataFrame(BinMatrix.of(x, Cuts.of(x, PARAMS.max_bin)).codes.astype(np.float32))
    colours = pd.Series(COLOURS[code], dtype=pd.CategoricalDtype(list(COLOURS)))
    frame["colour"] = colours.where(~missing)
    matrix = xgboost.DMatrix(frame, label=label, enable_categorical=True)
    options = PARAMS.to_xgboost() | {"max_cat_to_onehot": 100, "max_bin": 64}
    reference = xgboost.train(options, matrix, PARAMS.num_boost_round)

    ours = model.predict(active=x, passive={"telco": table.values}, output_margin=True)
    np.testing.assert_array_equal(ours, reference.predict(matrix, output_margin=True))
    chosen = model.passive_shares["telco"].lookup_table
    assert len(chosen) > 5


@pytest.mark.parametrize("kind", ["pandas", "pandas category", "polars", "arrow"])
def test_a_data_frames_words_are_categories_in_training_and_in_prediction(kind: str) -> None:
    random = np.random.default_rng(1)
    age = random.normal(size=400).round(3)
    colour = random.choice(COLOURS, 400).astype(object)
    colour[:40] = None
    label = ((colour == "red") | (age > 1)).astype(np.int64)
    other = random.normal(size=(400, 1))

    def frame(rows: slice) -> Any:
        held = {"age": age[rows], "colour": list(colour[rows])}
        match kind:
            case "polars":
                return pl.DataFrame(held)
            case "arrow":
                return pa.table(held)
            case "pandas category":
                return pd.DataFrame(held).astype({"colour": "category"})
            case _:
                return pd.DataFrame(held)

    everybody = slice(None)
    params = fedmq.TrainParams(num_boost_round=3, max_depth=3, max_bin=16)
    model = fedmq.simulate(
        active=frame(everybody), label=label, passive={"t": other}, params=params, engine="plain"
    )
    names = model.share.lookup_table.feature_names
    assert names == ("age", *(f"colour={colour}" for colour in COLOURS))
    scores = model.predict(active=frame(everybody), passive={"t": other})
    young = age < 0
    assert scores[(colour == "red") & young].min() > scores[(colour == "blue") & young].max()
    # Rows that lack some categories, or hold none at all, are scored all the same.
    for rows in (slice(40, 43), slice(0, 5)):
        few = model.predict(active=frame(rows), passive={"t": other[rows]})
        np.testing.assert_array_equal(few, scores[rows])


def test_columns_that_a_model_was_not_trained_on_are_refused() -> None:
    table = pd.DataFrame({"colour": ["red", "blue", "red"], "age": [1, 2, 3]})
    names = ("colour=blue", "colour=red", "age")
    swapped = table[["age", "colour"]].assign(colour=["green", "red", "red"])
    assert trained_columns(swapped, "bank", names).tolist() == [[0, 0, 1], [0, 1, 2], [0, 1, 3]]
    wrong = {
        "'size=l', 'size=m', 'size=s' are not known": table.assign(size=["s", "m", "l"]),
        "'colour=blue', 'colour=red' are missing": table[["age"]],
        "'more' is not known": table.assign(more=1.0),
    }
    for why, given in wrong.items():
        line = f"^bank: the columns are not those of the training: {why}$"
        with pytest.raises(DataError, match=line):
            trained_columns(given, "bank", names)
