from __future__ import annotations

from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import Driver


def driver(gains: dict[int, float], **params: object) -> Driver:
    """One whose nodes above those of ``gains`` have been split."""
    made = Driver(TrainParams(**params))
    above = sorted({node >> up for node in gains for up in range(1, node.bit_length())})
    for node in above:
        made.push(node, 1.0)
        made.pop()
    for node, gain in gains.items():
        made.push(node, gain)
    return made


def test_a_level_is_split_at_once_from_left_to_right() -> None:
    grown = driver({6: 3.0, 4: 1.0, 5: 0.0})
    assert grown.pop() == [4, 6]
    assert grown.pop() == []


def test_loss_guided_growth_splits_the_node_that_gains_most() -> None:
    grown = driver({2: 1.0, 3: 2.0}, grow_policy="lossguide")
    assert grown.pop() == [3]
    grown.push(6, 0.5)
    grown.push(7, 1.0)
    assert [grown.pop() for _ in range(4)] == [[2], [7], [6], []]


def test_of_equal_gains_the_node_that_came_first_is_split() -> None:
    grown = driver({2: 1.0, 3: 1.5}, grow_policy="lossguide")
    assert grown.pop() == [3]
    grown.push(7, 1.0)
    assert grown.pop() == [2]


def test_no_more_leaves_grow_than_are_wanted() -> None:
    grown = driver({2: 1.0, 3: 2.0}, max_leaves=3)
    assert grown.pop() == [2]
    assert not grown.expands_below(2)
    assert grown.pop() == []


def test_nothing_grows_below_the_depth_that_is_wanted() -> None:
    grown = driver({2: 1.0, 3: 2.0}, max_depth=3)
    grown.pop()
    assert grown.expands_below(2)
    assert not driver({4: 1.0}, max_depth=3).expands_below(4)


def test_gamma_leaves_nodes_that_gain_less() -> None:
    assert driver({4: 0.4, 5: 0.6}, gamma=0.5).pop() == [5]
    assert driver({2: 0.4, 3: 0.2}, gamma=0.5, grow_policy="lossguide").pop() == []


def test_a_full_batch_before_nodes_that_gain_too_little_ends_the_tree_as_in_xgboost() -> None:
    level = range(512, 1024)
    gains = {node: 1.0 if node < 512 + 256 else 0.1 for node in level}
    grown = driver(gains, gamma=0.5, max_depth=12)
    assert grown.pop() == list(range(512, 768))
    assert not grown.expands_below(512)
    earlier = driver({**gains, 1023: 1.0}, gamma=0.5, max_depth=12)
    assert len(earlier.pop()) == 257
    assert earlier.expands_below(512)
