"""Machine code and NumPy let many pairs walk, and ask about them, alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model import machine_walk
from fedmq.boosting.model.tree import Forest, LookupTable, TreeArrays
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError, ProtocolError
from fedmq.protocol.tree_walk import OneWay, Walked, walk_on

pytest.importorskip("llvmlite")

ROWS, TREES, DEPTH = 400, 5, 4


def grown(random: np.random.Generator) -> Forest:
    """Full trees, each node of the active party or of one of two others."""
    records, trees = [0, 0, 0], []
    for _ in range(TREES):
        growing, level = TreeArrays(), [0]
        for _ in range(DEPTH):
            below: list[int] = []
            for node in level:
                owner = int(random.integers(3))
                below += growing.split(node, owner, records[owner], gain=1.0, cover=1.0)
                records[owner] += 1
            level = below
        for node in level:
            growing.leaf(node, 1.0, cover=1.0)
        trees.append(growing.finished())
    return Forest.of(trees, TrainParams(num_boost_round=TREES))


def table_of(random: np.random.Generator, records: int) -> LookupTable:
    thresholds = random.normal(size=records).astype(np.float32)
    default_left = random.random(records) < 0.5
    empty = LookupTable.empty(("a", "b", "c"))
    return empty.appended(random.integers(0, 3, records), thresholds, default_left)


def by_both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Sequence[Any]:
    found = []
    for fewest in (0, 2**62):
        monkeypatch.setattr(machine_walk, "FEWEST_PAIRS", fewest)
        found.append(run())
    return found


@pytest.mark.parametrize("order", ["C", "F"])
def test_pairs_walk_to_the_same_nodes_and_hops(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    forest = grown(random)
    values = np.asarray(random.normal(size=(ROWS, 3)), np.float32, order=order)
    values[random.random(values.shape) < 0.2] = np.nan
    own = table_of(random, int(forest.record[forest.owner == 0].max()) + 1)
    assert machine_walk.can_walk(forest, own, values)

    def run() -> list[Walked]:
        answers = np.random.default_rng(4)
        waiting = [(np.arange(ROWS * TREES), np.tile(forest.roots, ROWS), None)]
        seen = []
        while waiting:
            walked = walk_on(forest, own, values, *waiting.pop())
            seen.append(walked)
            standing = dict(zip(walked.pairs.tolist(), walked.nodes.tolist(), strict=True))
            for hop in walked.hops:
                nodes = np.array([standing[pair] for pair in hop.pairs.tolist()], np.int32)
                np.testing.assert_array_equal(
                    forest.record[nodes], np.repeat(hop.records, hop.counts)
                )
                waiting.append((hop.pairs, nodes, answers.random(len(nodes)) < 0.5))
        return seen

    by_machine, by_numpy = by_both(monkeypatch, run)
    assert len(by_machine) == len(by_numpy) > 2
    for one, other in zip(by_machine, by_numpy, strict=True):
        np.testing.assert_array_equal(one.nodes, other.nodes)
        for own_hop, same in zip(one.hops, other.hops, strict=True):
            assert own_hop.owner == same.owner
            for name in ("records", "counts", "rows", "pairs"):
                np.testing.assert_array_equal(getattr(own_hop, name), getattr(same, name))


def test_a_record_that_the_table_lacks_is_refused_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    forest, own = grown(random), table_of(random, 1)
    values = np.zeros((ROWS, 3), np.float32)
    pairs, nodes = np.arange(ROWS * TREES), np.tile(forest.roots, ROWS)

    def run() -> str:
        with pytest.raises(DataError, match="is not among the 1 records") as refused:
            walk_on(forest, own, values, pairs, nodes, np.zeros(len(pairs), np.bool_))
        return str(refused.value)

    one, other = by_both(monkeypatch, run)
    assert one == other


@pytest.mark.parametrize("deepest", [5, 9])
def test_a_row_is_asked_about_on_one_way_in_both(
    deepest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [(tree, node) for tree in (1, 4) for node in range(1, 2**deepest)]

    def run() -> tuple[list[str], list[int]]:
        random, way = np.random.default_rng(5), OneWay(places, ROWS)
        refused, standing = [], []
        for _ in range(40):
            rows, records = random.integers(0, ROWS, 30), random.integers(0, len(places), 30)
            try:
                way.ask(rows, records)
            except ProtocolError as error:
                refused.append(str(error))
            way.answer(rows, records, random.random(30) < 0.5)
            standing.append(int(way._standing.astype(np.int64).sum()))
        return refused, standing

    (refused, standing), (same, alike) = by_both(monkeypatch, run)
    assert len(refused) == len(same) > 0
    assert any("beside its one way" in text for text in refused)
    assert refused[0] == same[0]
    assert standing[0] == alike[0]
