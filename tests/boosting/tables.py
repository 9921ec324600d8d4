"""Real tables, pooled on their ids with the active party's columns first."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

DATA = Path(__file__).parents[3] / "shared" / "data"


class Table(NamedTuple):
    X: NDArray[np.float32]
    y: NDArray[np.float32]


_FILES = {
    "breast": ("id", "y", ("breast_active", "breast_passive")),
    "credit1": ("id", "SeriousDlqin2yrs", ("credit1_active", "credit1_passive")),
    "credit2": ("id", "default.payment.next.month", ("credit2_active", "credit2_passive")),
    "motor": ("idx", "motor_speed", ("motor_active", "motor_passive_1", "motor_passive_2")),
}


@cache
def pooled(name: str, rows: int | None = None) -> Table:
    key, label, files = _FILES[name]
    paths = [DATA / f"{file}.csv" for file in files]
    for path in paths:
        if not path.exists():
            pytest.skip(f"{path.name} is not in {DATA}")
    parts = [pd.read_csv(path, index_col=key) for path in paths]
    table = pd.concat([part.add_prefix(f"{i}.") for i, part in enumerate(parts)], axis=1).iloc[
        :rows
    ]
    y = table.pop(f"0.{label}").to_numpy(np.float32)
    return Table(table.to_numpy(np.float32), y)


def scattered(rows: int, features: int, *, seed: int, missing: float = 0.0) -> Table:
    """A made-up table: coarse values, so that there are ties, and a label that depends on them."""
    random = np.random.default_rng(seed)
    X = np.round(random.normal(size=(rows, features)), 1).astype(np.float32)
    y = (X[:, 0] + X[:, -1] ** 2 + random.normal(size=rows) > 1).astype(np.float32)
    X[random.random(X.shape) < missing] = np.nan
    return Table(X, y)
