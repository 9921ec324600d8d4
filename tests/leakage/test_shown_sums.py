"""The audit finds out by itself which candidates a party showed: those of the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.leakage.shown_sums import _derive, _pairs, _shown
from fedmq.leakage.view import SessionView
from fedmq.party.sessions.observe import Recording

RANDOM = np.random.default_rng(2)
TABLE = RANDOM.normal(size=(300, 4)).round(1).astype(np.float32)
TABLE[RANDOM.random(TABLE.shape) < 0.05] = np.nan
LABEL = np.nan_to_num(TABLE).sum(axis=1) + RANDOM.normal(size=300) > 0


@pytest.mark.parametrize("smallest_cell", [0, 6])
@pytest.mark.parametrize("params", [{}, {"subsample": 0.7, "colsample_bynode": 0.5}])
def test_the_sums_are_those_that_were_shown(
    tmp_path: Path, smallest_cell: int, params: dict[str, Any]
) -> None:
    fedmq.simulate(
        active=TABLE[:, :2],
        label=LABEL.astype(int),
        passive={"telco": TABLE[:, 2:]},
        params={"num_boost_round": 2, "max_depth": 4, "max_bin": 32, **params},
        engine="plain",
        workers=1,
        record=tmp_path,
        smallest_cell=smallest_cell,
    )
    view = SessionView(Recording.read(tmp_path / "active.recording"))
    bins = BinMatrix.of(TABLE[:, 2:], Cuts.of(TABLE[:, 2:], 32))
    nodes = 0
    for number, tree in view.trees.items():
        pairs = _pairs(view, number, tree, None, None, None)
        assert pairs is not None
        shown = _shown(view, "telco", bins, number, tree, pairs)
        for (_, node), exchanged in tree.exchanged.items():
            seen = np.concatenate(exchanged.answered["left"])
            known = set()
            if node in shown.nodes:
                known = set(map(tuple, shown.nodes[node].left[shown.known[node]].tolist()))
            # With columns drawn by node, some follow from a node's parent and sibling.
            assert known >= set(map(tuple, seen.tolist()))
            assert "colsample_bynode" in params or len(known) == len(np.unique(seen, axis=0))
            nodes += len(seen) > 0
    assert nodes > 10


def test_of_a_node_and_its_children_two_tell_the_third() -> None:
    known = {
        1: np.array([True, True, False]),
        2: np.array([False, False, True]),
        3: np.array([True, False, True]),
    }
    _derive(known)
    assert [shown.tolist() for shown in known.values()] == [
        [True, True, True],
        [True, False, True],
        [True, False, True],
    ]
