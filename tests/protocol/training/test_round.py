"""A round of several classes begins with the same margins for all, also after a crash."""

from __future__ import annotations

import numpy as np

from fedmq.protocol.training.round import Round

FIRST = np.zeros((4, 3), np.float32)
ADDED = [np.full(4, number, np.float32) for number in range(1, 6)]


def test_trees_add_to_the_margins_when_the_round_is_complete() -> None:
    grown = Round(FIRST)
    for increments in ADDED[:2]:
        grown.add(increments)
        np.testing.assert_array_equal(grown.margin, FIRST)
    grown.add(ADDED[2])
    assert grown.margin.tolist() == [[1, 2, 3]] * 4


def test_what_a_checkpoint_keeps_goes_on_in_the_middle_of_a_round() -> None:
    whole = Round(FIRST)
    for number, increments in enumerate(ADDED):
        whole.add(increments)
        restored = Round(FIRST)
        restored.restore(whole.saved().reshape(-1))
        for later in ADDED[number + 1 :]:
            restored.add(later)
        straight = Round(FIRST)
        for every in ADDED:
            straight.add(every)
        np.testing.assert_array_equal(restored.saved(), straight.saved())


def test_margins_of_one_class_are_those_after_each_tree() -> None:
    grown = Round(np.zeros(4, np.float32))
    grown.add(ADDED[0])
    assert grown.margin.tolist() == grown.saved().tolist() == [1] * 4
