"""A passive party that only looks orders people by who stands with whom, though it never sees the
first tree: `active_only_trees = 1` hardly helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.leakage.view import SessionView
from fedmq.party.sessions.observe import Recording

ROWS, KNOWN = 1500, 60
RANDOM = np.random.default_rng(2)
TABLE = RANDOM.normal(size=(ROWS, 6)).astype(np.float32)
LABEL = TABLE.sum(axis=1) + 1.5 * RANDOM.normal(size=ROWS) > 0


def seen(folder: Path, alone: int) -> NDArray[np.float64]:
    """Who stands in which node that the passive party was asked about: (people, nodes)."""
    fedmq.simulate(
        active=TABLE[:, :3],
        label=LABEL.astype(int),
        passive={"telco": TABLE[:, 3:]},
        params=fedmq.TrainParams(
            num_boost_round=25, max_depth=3, max_bin=16, active_only_trees=alone
        ),
        engine="plain",
        workers=1,
        record=folder,
    )
    view = SessionView(Recording.read(folder / "telco.recording"))
    nodes = np.zeros((ROWS, sum(len(tree.spaces) for tree in view.trees.values())))
    rows = (rows for tree in view.trees.values() for rows in tree.spaces.values())
    for number, held in enumerate(rows):
        nodes[held, number] = 1
    return nodes


def auc(nodes: NDArray[np.float64]) -> float:
    """How well people are ordered by those who stand with them, of whom 60 labels are known.

    A ridge regression over nodes; the mean of ten draws.
    """
    apart = nodes - nodes.mean(axis=0)
    draws = np.random.default_rng(1)
    return float(np.mean([ordered(apart, draws.permutation(ROWS)[:KNOWN]) for _ in range(10)]))


def ordered(nodes: NDArray[np.float64], known: NDArray[np.int64]) -> float:
    signs = np.where(LABEL[known], 1.0, -1.0)
    products = nodes[known] @ nodes[known].T + 30 * np.eye(KNOWN)
    score = nodes @ (nodes[known].T @ np.linalg.solve(products, signs))
    others = np.setdiff1d(np.arange(ROWS), known)
    rank, label = np.argsort(np.argsort(score[others])) + 1.0, LABEL[others]
    positive, negative = int(label.sum()), int((~label).sum())
    return (float(rank[label].sum()) - positive * (positive + 1) / 2) / (positive * negative)


@pytest.mark.long
def test_a_first_tree_that_is_kept_leaves_labels_nearly_as_readable(tmp_path: Path) -> None:
    shown, kept = (auc(seen(tmp_path / str(alone), alone)) for alone in (0, 1))
    assert shown > 0.8
    assert kept > shown - 0.04
