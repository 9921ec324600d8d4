"""With hidden sums a passive party reads labels from which of its candidates won.

It answers with sums of sets that it invents: all sets of five people. The one that wins is that of
all who have the same label. No sum is checked, as none is seen.
"""

from __future__ import annotations

import numpy as np

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import split_gains
from fedmq.privacy.hidden_sums.shares import Field
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import size
from tests.privacy.hidden_sums.level_pair import LevelPair

ROWS, PEOPLE = 200, 5
RANDOM = np.random.default_rng(3)
LABEL = RANDOM.permutation(np.arange(ROWS) % 2)
FLOATS = np.stack([0.5 - LABEL, np.full(ROWS, 0.25)], axis=-1).astype(np.float32)
SCALE = FixedPoint.of(FLOATS)
PAIRS = SCALE.encode(FLOATS)
PARAMS = TrainParams(min_child_weight=0.0, xgboost_arithmetic=OLDEST)
SETS = np.arange(2**PEOPLE)[:, np.newaxis] >> np.arange(PEOPLE) & 1


def asked(people: np.ndarray) -> DrawnLevel:
    """The root of the first tree, and all sets of five of its rows for candidates."""
    left = (SETS @ PAIRS[people])[np.newaxis]
    totals = PAIRS.sum(axis=0)[np.newaxis]
    return DrawnLevel(left, totals, SCALE, PARAMS, Field(SCALE.value_bits + 8 + 2), (PAIRS,))


def test_a_node_tells_as_many_labels_as_an_index_has_bits() -> None:
    """What remains: an answer for each node is all that a passive party gets back."""
    session, told = LevelPair(), 0
    for start in range(0, 40, PEOPLE):
        people = np.arange(start, start + PEOPLE)
        answer = session.run(asked(people), np.zeros(1, np.float32))
        doubt, won = 1, 1  # labels; beside a doubt, all that the node tells comes with a claim
        assert size(answer.sent[-1]) == 16 * (doubt + won + PEOPLE)
        [index] = answer.index
        alike = SETS[index].astype(np.bool_)
        told += len(np.unique(LABEL[people][alike])) == len(np.unique(LABEL[people][~alike])) == 1
    assert told >= 6  # of 8 nodes; five people of one label have no second set


def test_sets_of_few_people_do_not_win_against_a_column_that_tells_something() -> None:
    """Who sees neither sums nor gains has to invent sets that are better than a true split."""
    column = LABEL + RANDOM.normal(0, 1, ROWS)
    left = PAIRS[column < np.median(column)].sum(axis=0)[np.newaxis]
    sides = (left, PAIRS.sum(axis=0) - left, PAIRS.sum(axis=0))
    [own] = split_gains(*map(SCALE.to_float, sides), PARAMS)
    answer = LevelPair().run(asked(np.arange(PEOPLE)), np.array([own], np.float32))
    assert answer.won == answer.seen_won == [False]
    assert answer.index == [0]
