"""With hidden sums an active party asks for directions of candidates that did not win.

Which one is a party's best says something of sums that the active party was not to learn.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.level_chain import claimed, halves, linked
from tests.privacy.hidden_sums.test_level import drawn, own_gains

GOOD = drawn(1, 9)
POOR = replace(GOOD, left=np.zeros_like(GOOD.left))
MIDDLING = replace(GOOD, left=np.delete(GOOD.left, GOOD.gains.argmax(), axis=1))
ALL = np.ones(1, np.bool_)


def behind_links(*levels: DrawnLevel) -> list[tuple[LevelEvaluator, LevelGarbler]]:
    """Both halves of all parties."""
    evaluators, garblers = halves(levels, own_gains(GOOD, 0))
    linked(evaluators, garblers)
    return list(zip(evaluators, garblers, strict=True))


@pytest.mark.parametrize("number", [0, 2])
def test_a_party_that_never_led_does_not_believe_that_it_won(number: int) -> None:
    evaluator, garbler = behind_links(POOR, GOOD, POOR)[number]
    with pytest.raises(MessageError, match="that no circuit has shown"):
        claimed(garbler, evaluator.claim(ALL))


def test_a_party_that_led_and_lost_believes_it() -> None:
    """What remains: of each party that was the best of those before it, the best candidate."""
    (first, garbler), (last, _) = behind_links(MIDDLING, GOOD)
    assert last.owners().tolist() == [2]
    won, [index] = claimed(garbler, first.claim(ALL))
    assert won.all()
    assert index == MIDDLING.gains.argmax()


def test_labels_of_one_party_prove_nothing_to_another() -> None:
    (_, garbler), (evaluator, _) = behind_links(GOOD, replace(GOOD, left=GOOD.left[:, ::-1]))
    with pytest.raises(MessageError, match="that no circuit has shown"):
        claimed(garbler, evaluator.claim(ALL))
