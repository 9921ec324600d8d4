"""Of several passive partys with hidden sums, one hands on what is not so, to win or to learn.

What it is told is what it always is: where it won, and by which candidate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.errors import MessageError
from tests.privacy.hidden_sums.level_chain import claimed, halves, linked
from tests.privacy.hidden_sums.test_level import drawn, own_gains

GOOD = drawn(1, 9)
POOR = replace(GOOD, left=np.zeros_like(GOOD.left))
TO_BEAT = own_gains(GOOD, 0.5)


def test_a_party_that_says_that_it_leads_is_named_and_cannot_be_told_how_it_won() -> None:
    """It spoils the node. The active party has no label of a win of its own to show for it."""
    evaluators, garblers = halves([POOR, POOR], TO_BEAT)

    def hand_on(_: int, share: np.ndarray) -> np.ndarray:
        altered = share.copy()
        altered[-1] ^= True  # whose the best is: the active party's, or the first party's
        return altered

    linked(evaluators, garblers, hand_on)
    assert evaluators[-1].owners().tolist() == [1]
    with pytest.raises(MessageError, match="that no circuit has shown"):
        claimed(garblers[0], evaluators[0].claim(np.ones(1, np.bool_)))


def test_a_share_drawn_at_random_tells_who_draws_it_nothing() -> None:
    evaluators, garblers = halves([POOR, GOOD], TO_BEAT)
    random = np.random.default_rng(0)
    linked(evaluators, garblers, lambda _, share: random.random(share.shape) < 0.5)
    owner = evaluators[-1].owners()
    won, index = claimed(garblers[0], evaluators[0].claim(owner == 3))
    assert not won.any()
    assert not index.any()


def test_the_last_party_may_name_any_and_that_one_ends_the_session() -> None:
    evaluators, garblers = halves([POOR, GOOD, POOR], TO_BEAT)
    linked(evaluators, garblers)
    assert evaluators[-1].owners().tolist() == [2]
    named = evaluators[0].claim(np.ones(1, np.bool_))  # by colours that the last party altered
    with pytest.raises(MessageError, match="that no circuit has shown"):
        claimed(garblers[0], named)
