"""An active party that only looks places people between cuts; where cells are merged it cannot.

All that follows by subtraction between a node and its children counts as seen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedmq

RANDOM = np.random.default_rng(1)
TABLE = RANDOM.normal(size=(500, 4)).astype(np.float32)
LABEL = TABLE.sum(axis=1) + RANDOM.normal(size=500) > 0
# Of some people a value is missing; of few enough to be named by it.
TABLE[RANDOM.permutation(500)[:6], 2] = np.nan


def placed(folder: Path, smallest_cell: int, bits: int | None = None) -> tuple[float, bool]:
    """The share of cells that were placed, and whether the model calls itself XGBoost's."""
    passive = {"telco": TABLE[:, 2:]}
    model = fedmq.simulate(
        active=TABLE[:, :2],
        label=LABEL.astype(int),
        passive=passive,
        params=fedmq.TrainParams(num_boost_round=4, max_depth=5, max_bin=64, gradient_bits=bits),
        engine="plain",
        workers=1,
        record=folder,
        smallest_cell=smallest_cell,
    )
    report = fedmq.audit(
        folder / "active.recording",
        passive=passive,
        label=LABEL,
        leaf_weights=model.leaf_weights(active=TABLE[:, :2], passive=passive),
        solve=False,
    )
    [share] = [
        finding.value
        for finding in report.findings
        if finding.target == "telco's cells between two cuts"
    ]
    return share, not model.departures


@pytest.mark.long
def test_without_merging_many_cells_are_placed(tmp_path: Path) -> None:
    share, is_xgboosts = placed(tmp_path, 0)
    assert share > 0.2
    assert is_xgboosts


@pytest.mark.parametrize("smallest_cell", [5, 10])
def test_where_cells_are_merged_nobody_is_placed(tmp_path: Path, smallest_cell: int) -> None:
    share, is_xgboosts = placed(tmp_path, smallest_cell)
    assert share == 0
    assert not is_xgboosts


@pytest.mark.long
def test_nor_are_gradients_of_few_bits_placed(tmp_path: Path) -> None:
    assert placed(tmp_path / "all", 0, 4)[0] > 0.02
    assert placed(tmp_path / "merged", 10, 4)[0] < 0.005
