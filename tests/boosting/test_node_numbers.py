from __future__ import annotations

import pytest

from fedmq.boosting.splits import ROOT, children, depth, parent, sibling


@pytest.mark.parametrize("node", [ROOT, 2, 3, 6, 2**16])
def test_children_are_siblings_one_level_below_their_parent(node: int) -> None:
    left, right = children(node)
    assert (parent(left), parent(right)) == (node, node)
    assert (sibling(left), sibling(right)) == (right, left)
    assert depth(left) == depth(right) == depth(node) + 1


def test_numbers_run_through_a_level_from_left_to_right() -> None:
    level = [ROOT]
    for _ in range(3):
        level = [child for node in level for child in children(node)]
    assert level == list(range(8, 16))
    assert depth(ROOT) == 0
