"""The audit finds out by itself which candidates a party showed: those of the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.shown_sums import _derive, _pairs, _shown
from fedmq.leakage.view import SessionView, TreeView
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


def solved(
    folder: Path, engine: str = "plain", smallest_cell: int = 0, **params: Any
) -> dict[str, Finding]:
    """What an active party reads that solves all sums together, by target."""
    random = np.random.default_rng(1)
    table = random.normal(size=(160, 4)).astype(np.float32)
    label = (table.sum(axis=1) + random.normal(size=160) > 0).astype(int)
    tables = {"active": table[:, :2], "passive": {"telco": table[:, 2:]}}
    model = fedmq.simulate(
        **tables,
        label=label,
        params={"max_depth": 4, "max_bin": 8, **params},
        engine=engine,
        workers=1,
        record=folder,
        smallest_cell=smallest_cell,
    )
    report = fedmq.audit(
        folder / "active.recording",
        passive=tables["passive"],
        label=label,
        leaf_weights=model.leaf_weights(**tables),
    )
    return {finding.target.removeprefix("telco's "): finding for finding in report.findings}


def test_columns_are_read_from_the_sums_of_a_few_trees(tmp_path: Path) -> None:
    found = solved(tmp_path, num_boost_round=8)
    assert found["candidates linked across trees"].value > 0.9
    assert found["candidate bits"].value > 0.97
    cells = found["cells of columns, if columns are known"]
    assert cells.value > 0.8
    assert cells.chance < 0.15


def test_counts_link_candidates_where_h_is_one_for_all(tmp_path: Path) -> None:
    linked = solved(tmp_path, num_boost_round=3, objective="reg:squarederror")[
        "candidates linked across trees"
    ]
    assert linked.where.endswith("by counts of people")
    assert linked.value == 1


def test_one_small_tree_tells_little(tmp_path: Path) -> None:
    found = solved(tmp_path, num_boost_round=1, max_depth=1)
    assert not found["candidate bits"].succeeds
    assert "candidates linked across trees" not in found


def test_where_no_candidate_is_shown_there_is_nothing_to_solve(tmp_path: Path) -> None:
    assert not solved(tmp_path, num_boost_round=2, smallest_cell=150)


@pytest.mark.long
def test_under_a_lattice_nothing_needs_to_be_linked(tmp_path: Path) -> None:
    found = solved(tmp_path, "lattice", num_boost_round=8)
    assert found["cells of columns"].value > 0.8
    assert "candidates linked across trees" not in found


def test_leaves_tell_the_rows_of_the_nodes_above_them() -> None:
    tree = TreeView(6)
    tree.place(np.array([4, 5, 3, 5, 4, 3]))
    assert {node: rows.tolist() for node, rows in tree.inner.items()} == {
        1: [0, 1, 2, 3, 4, 5],
        2: [0, 1, 3, 4],
        3: [2, 5],
        4: [0, 4],
        5: [1, 3],
    }


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


def test_bins_that_an_owner_has_chosen_are_those_of_the_audit(tmp_path: Path) -> None:
    given = {"telco": {"f0": [-1.0, 0.0, 0.5]}}
    passive = {"telco": TABLE[:, 2:]}
    fedmq.simulate(
        active=TABLE[:, :2],
        label=LABEL.astype(int),
        passive=passive,
        params={"num_boost_round": 2, "max_depth": 3, "max_bin": 32},
        engine="plain",
        record=tmp_path,
        column_bins=given,
    )
    recording = tmp_path / "active.recording"
    right, wrong = (
        fedmq.audit(recording, passive=passive, solve=False, column_bins=bins).as_dict()
        for bins in (given, None)
    )
    assert right["findings"] != wrong["findings"]
    view = SessionView(Recording.read(recording))
    bins = BinMatrix.of(TABLE[:, 2:], Cuts.of(TABLE[:, 2:], 32, {0: (-1.0, 0.0, 0.5)}))
    for number, tree in view.trees.items():
        pairs = _pairs(view, number, tree, None, None, None)
        assert pairs is not None
        shown = _shown(view, "telco", bins, number, tree, pairs)
        for (_, node), exchanged in tree.exchanged.items():
            seen = set(map(tuple, np.concatenate(exchanged.answered["left"]).tolist()))
            if node in shown.nodes:
                assert seen <= set(map(tuple, shown.nodes[node].left[shown.known[node]].tolist()))
