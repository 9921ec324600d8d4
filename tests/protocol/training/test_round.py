"""All trees of a round begin with the same margins, also after a crash."""

from __future__ import annotations

import numpy as np

from fedmq.boosting.params import TrainParams
from fedmq.protocol.training.model import Round

FIRST = np.zeros((4, 3), np.float32)
CLASSES = TrainParams(objective="multi:softprob", num_class=3)
ADDED = [np.full(4, number, np.float32) for number in range(1, 6)]


def test_trees_add_to_the_margins_when_the_round_is_complete() -> None:
    grown = Round(FIRST, CLASSES)
    for increments in ADDED[:2]:
        grown.add(increments)
        np.testing.assert_array_equal(grown.margin, FIRST)
    grown.add(ADDED[2])
    assert grown.margin.tolist() == [[1, 2, 3]] * 4


def test_what_a_checkpoint_keeps_goes_on_in_the_middle_of_a_round() -> None:
    whole = Round(FIRST, CLASSES)
    for number, increments in enumerate(ADDED):
        whole.add(increments)
        restored = Round(FIRST, CLASSES)
        assert restored.restore([None, whole.saved().reshape(-1)])
        for later in ADDED[number + 1 :]:
            restored.add(later)
        straight = Round(FIRST, CLASSES)
        for every in ADDED:
            straight.add(every)
        np.testing.assert_array_equal(restored.saved(), straight.saved())


def test_margins_of_one_class_are_those_after_each_tree() -> None:
    grown = Round(np.zeros(4, np.float32), TrainParams())
    grown.add(ADDED[0])
    assert grown.margin.tolist() == grown.saved().tolist() == [1] * 4


def test_parallel_trees_add_one_by_one_to_the_margin_of_their_class() -> None:
    params = CLASSES.model_copy(update={"num_parallel_tree": 2})
    grown = Round(FIRST, params)
    for number in range(6):
        grown.add(np.full(4, 2.0**number, np.float32))
    assert grown.margin.tolist() == [[1 + 2, 4 + 8, 16 + 32]] * 4


def test_parallel_trees_of_one_margin_are_kept_apart_until_all_have_grown() -> None:
    params = TrainParams(num_parallel_tree=3)
    grown = Round(np.zeros(4, np.float32), params)
    grown.add(ADDED[0])
    restored = Round(np.zeros(4, np.float32), params)
    assert restored.restore([None, grown.saved().reshape(-1)])
    for increments in ADDED[1:3]:
        restored.add(increments)
    assert restored.margin.tolist() == [1 + 2 + 3] * 4
    assert restored.margin.shape == (4,)


def test_vector_leaves_add_to_all_margins_at_once_and_parallel_ones_are_kept_apart() -> None:
    params = CLASSES.model_copy(
        update={"multi_strategy": "multi_output_tree", "num_parallel_tree": 2}
    )
    vectors = [np.arange(12, dtype=np.float32).reshape(4, 3) * scale for scale in (1, 10)]
    grown = Round(FIRST, params)
    grown.add(vectors[0])
    np.testing.assert_array_equal(grown.margin, FIRST)
    restored = Round(FIRST, params)
    assert restored.restore([None, grown.saved().reshape(-1)])
    restored.add(vectors[1])
    np.testing.assert_array_equal(restored.margin, vectors[0] + vectors[1])
