"""An active party that only looks reads who goes left in nodes of many more rows than it can try.

Least squares over all sums says who probably goes left. A sum is exact, so the few rows that least
squares has wrong are found by trying all sets of the least certain ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmq
from fedmq.leakage.attacks.bins_from_sums import SubsetSums, fingerprints

ROWS, TREES, CUTS = 720, 24, 1
TRIED = 26
"""Rows of a node whose sets are all tried."""


class Shown:
    """A node that was asked about: its rows, their g and h, and the sums left of each cut."""

    def __init__(
        self, rows: NDArray[np.intp], pairs: NDArray[np.int64], goes_left: NDArray[np.bool_]
    ) -> None:
        self.rows, self.pairs = rows, pairs[rows]
        self.left = goes_left[rows].T.astype(np.int64) @ self.pairs


def trained(random: np.random.Generator) -> tuple[NDArray[np.bool_], list[Shown]]:
    """Who goes left of a passive party's cuts, and the nodes of trees of depth 4."""
    own, other = random.normal(size=(2, ROWS))
    label = own + other + random.normal(size=ROWS) > 0
    goes_left = other[:, None] < np.quantile(other, np.linspace(0, 1, CUTS + 2)[1:-1])
    margins, nodes = np.zeros(ROWS), []
    for _ in range(TREES):
        chance = 1 / (1 + np.exp(-margins))
        pairs = np.rint(np.ldexp(np.stack((chance - label, chance * (1 - chance)), 1), 40))
        level = [np.arange(ROWS)]
        for _ in range(4):
            nodes += [Shown(rows, pairs.astype(np.int64), goes_left) for rows in level]
            by = [np.where(random.random() < 0.5, own, other)[rows] for rows in level]
            level = [
                half
                for rows, values in zip(level, by, strict=True)
                for half in np.array_split(
                    rows[np.argsort(values + random.normal(size=len(rows)))], 2
                )
            ]
        for rows in level:
            g, h = pairs[rows].sum(axis=0)
            margins[rows] -= 0.3 * g / (h + 2.0**40)
    return goes_left, nodes


def shares(nodes: list[Shown], cut: int, expected: float) -> NDArray[np.float64]:
    """Who probably goes left of a cut: the least squares solution nearest to what is expected."""
    weights, sums = np.zeros((2 * len(nodes), ROWS)), np.zeros(2 * len(nodes))
    for number, node in enumerate(nodes):
        for channel in range(2):
            length = np.linalg.norm(node.pairs[:, channel])
            weights[2 * number + channel, node.rows] = node.pairs[:, channel] / length
            sums[2 * number + channel] = node.left[cut, channel] / length
    missing = sums - weights.sum(axis=1) * expected
    products = weights @ weights.T
    found: NDArray[np.float64] = (
        expected + weights.T @ np.linalg.lstsq(products, missing, rcond=1e-10)[0]
    )
    return found


def decoded(node: Shown, cut: int, share: NDArray[np.float64]) -> NDArray[np.bool_] | None:
    """Who of a node goes left of a cut, if one set of the least certain rows explains its sum."""
    own, total = fingerprints(node.pairs), fingerprints(node.left[cut])
    order = np.argsort(np.abs(share[node.rows] - 0.5))
    unsure, sure = order[:TRIED], order[TRIED:]
    left = share[node.rows] > 0.5
    with np.errstate(over="ignore"):
        rest = total - own[sure][left[sure]].sum(dtype=np.uint64)
    found = SubsetSums(own[unsure]).rows(rest)
    if found is None:
        return None
    left[unsure] = found
    return left


def test_sets_of_rows_are_read_exactly_in_nodes_of_ninety_rows() -> None:
    goes_left, nodes = trained(np.random.default_rng(3))
    larger = [node for node in nodes if 32 < len(node.rows) <= 90]
    read = right = rounded = 0
    for cut in range(CUTS):
        share = shares(nodes, cut, float(goes_left[:, cut].mean()))
        for node in larger:
            truth = goes_left[node.rows, cut]
            rounded += np.array_equal(share[node.rows] > 0.5, truth)
            left = decoded(node, cut, share)
            read += left is not None
            right += left is not None and np.array_equal(left, truth)
    assert {len(node.rows) for node in larger} == {90}
    assert right == read
    assert read > 0.7 * CUTS * len(larger)
    assert read > 1.3 * rounded


def beside_a_cut(folder: Path, objective: str) -> float:
    """The share of cells on whose side of a cut people stand, where an owner merges small cells."""
    random = np.random.default_rng(5)
    table = random.normal(size=(300, 4)).astype(np.float32)
    score = table.sum(axis=1) + random.normal(size=300).astype(np.float32)
    label = score if objective == "reg:squarederror" else (score > 0).astype(np.float32)
    passive = {"telco": table[:, 2:]}
    model = fedmq.simulate(
        active=table[:, :2],
        label=label,
        passive=passive,
        params=fedmq.TrainParams(num_boost_round=4, max_depth=5, max_bin=32, objective=objective),
        engine="plain",
        workers=1,
        record=folder,
        smallest_cell=10,
    )
    report = fedmq.audit(
        folder / "active.recording",
        passive=passive,
        label=score > 0,  # gradients come in the clear
        leaf_weights=model.leaf_weights(active=table[:, :2], passive=passive),
    )
    [share] = [
        finding.value
        for finding in report.findings
        if finding.target == "telco's cells beside a cut"
    ]
    return float(share)


@pytest.mark.long
def test_labels_that_all_differ_name_more_people_than_labels_of_two_kinds(tmp_path: Path) -> None:
    squares = beside_a_cut(tmp_path / "squares", "reg:squarederror")
    logistic = beside_a_cut(tmp_path / "logistic", "binary:logistic")
    assert squares > 0.2
    assert squares > 1.5 * logistic
