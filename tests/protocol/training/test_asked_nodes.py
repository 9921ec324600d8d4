"""What may an active party ask of one tree, where it cannot be seen who stands in its nodes?"""

from __future__ import annotations

from typing import Any

import pytest

from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.privacy.engines.lattice import Lattice
from fedmq.protocol.training.passive_growth import AskedNodes
from tests.protocol.federation import PLAIN, small
from tests.protocol.hidden_rows_engine import HiddenRows


def asked(rounds: int = 1, **terms: int) -> AskedNodes:
    opening = training.TrainingOpen.model_construct(**{"rows": 1000, "max_leaves": 0, **terms})
    return AskedNodes(opening, rounds)


def test_a_node_is_asked_about_once() -> None:
    nodes = asked(max_depth=3)
    nodes.ask(1, 0)
    with pytest.raises(ProtocolError, match="round 0 of questions about node 1 is not due"):
        nodes.ask(1, 0)
    with pytest.raises(ProtocolError, match="round 1 of questions about node 1 is not due"):
        nodes.ask(1, 1)


def test_or_in_as_many_rounds_as_the_engine_has() -> None:
    nodes = asked(rounds=2, max_depth=3)
    nodes.ask(1, 0)
    nodes.ask(1, 1)
    with pytest.raises(ProtocolError, match="round 2"):
        nodes.ask(1, 2)
    with pytest.raises(ProtocolError, match="round 1"):
        nodes.ask(2, 1)


def test_a_node_is_split_once_and_not_asked_about_after_it() -> None:
    nodes = asked(max_depth=3)
    nodes.ask(2, 0)
    nodes.split(2)
    for again in (1, 2):
        with pytest.raises(ProtocolError, match=f"node {again} has been split before"):
            nodes.split(again)
        with pytest.raises(ProtocolError, match=f"node {again} has been split before"):
            nodes.ask(again, 0)


def test_nothing_lies_below_the_depth_that_was_announced() -> None:
    nodes = asked(max_depth=2)
    nodes.ask(3, 0)
    nodes.split(3)
    for ask in (nodes.split, lambda node: nodes.ask(node, 0)):
        with pytest.raises(ProtocolError, match="node 4 lies below max_depth = 2"):
            ask(4)


def test_a_full_tree_has_as_many_nodes_as_it_can() -> None:
    nodes = asked(max_depth=4)
    for node in range(1, 16):
        nodes.ask(node, 0)
    for node in range(8, 16):
        nodes.split(node)


def test_trees_of_few_leaves_have_few_splits_and_few_questions() -> None:
    nodes = asked(max_depth=52, max_leaves=4)
    for node in (1, 2, 3, 4, 5):
        nodes.ask(node, 0)
    with pytest.raises(ProtocolError, match="sums of more than 5 nodes of a tree"):
        nodes.ask(7, 0)
    nodes = asked(max_depth=52, max_leaves=4)
    for node in (1, 2, 3):
        nodes.ask(node, 0)
        nodes.split(node)
    nodes.ask(4, 0)
    with pytest.raises(ProtocolError, match="more than 3 splits of a tree"):
        nodes.split(4)


def test_what_stands_above_a_node_counts_as_split() -> None:
    nodes = asked(max_depth=52, max_leaves=4)
    nodes.ask(8, 0)
    with pytest.raises(ProtocolError, match="more than 3 splits of a tree"):
        nodes.split(8)
    nodes = asked(max_depth=52, max_leaves=4)
    with pytest.raises(ProtocolError, match="more than 3 splits of a tree"):
        nodes.ask(16, 0)


def test_a_table_of_few_rows_has_trees_of_few_nodes() -> None:
    nodes = asked(max_depth=20, rows=2)
    with pytest.raises(ProtocolError, match="more than 39 splits of a tree"):
        for node in range(2**18, 2**19):
            nodes.ask(node, 0)


@pytest.mark.parametrize("nodes_per_query", [1, 3])
def test_no_more_nodes_of_a_level_are_split_than_questions_tell_of(nodes_per_query: int) -> None:
    opening = training.TrainingOpen.model_construct(rows=1000, max_leaves=0, max_depth=6)
    nodes = AskedNodes(opening, 1, nodes_per_query)
    nodes.ask(1, 0)
    nodes.ask(16, 0)
    for node in range(16, 16 + 2 * nodes_per_query):
        nodes.split(node)
    for node in (24, 7):
        with pytest.raises(ProtocolError, match=f"a split of node {node}, but no question about"):
            nodes.split(node)


@pytest.mark.parametrize(
    "params",
    [
        {"max_depth": 4},
        {"max_depth": 6, "min_child_weight": 0.0},
        {"max_depth": 5, "max_leaves": 6},
        {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide"},
        {"max_depth": 4, "max_leaves": 2, "grow_policy": "lossguide"},
        {"max_depth": 3, "grow_policy": "lossguide", "colsample_bynode": 0.6},
        {"max_depth": 5, "gradient_bits": 4},
        {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide", "gradient_bits": 4},
    ],
    ids=str,
)
def test_honest_trees_of_every_shape_are_answered(params: dict[str, Any]) -> None:
    federation = small(counts=(0, 2, 2), **params)
    for engine in (PLAIN, HiddenRows(), Lattice(directions="all")):
        assert not federation.having(engine=engine).train().errors
