"""A category column is what XGBoost makes of it: one category against the rest."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.party.configuration.data import DataSection
from fedmq.party.table import ReadTable

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
    table = ReadTable("telco", DataSection(path=path, id="id")).run()
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
