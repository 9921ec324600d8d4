"""A shift of the margins of some rows, so that their predictions fit their labels on the whole."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.intercept import FEWEST_ROWS, shift_to_labels
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror", "count:poisson"])
@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_have_the_mean_of_the_labels(objective: str, weighted: bool) -> None:
    random = np.random.default_rng(5)
    loss = objective_of(TrainParams(objective=objective))
    margins = random.normal(-2, 1, 500).astype(np.float32)
    labels = (random.random(500) < 0.4).astype(np.float32)
    weight = random.uniform(0.5, 3, 500).astype(np.float32) if weighted else None
    moved = margins + np.float32(shift_to_labels(loss, margins, labels, weight))
    expected = np.average(labels, weights=weight)
    assert np.average(loss.predictions(moved), weights=weight) == pytest.approx(expected, abs=1e-4)


def test_no_shift_follows_from_few_rows_one_class_or_a_loss_of_pairs() -> None:
    logistic = objective_of(TrainParams(objective="binary:logistic"))
    rows = FEWEST_ROWS
    margins, some = np.zeros(rows, np.float32), (np.arange(rows) % 3 == 0).astype(np.float32)
    assert shift_to_labels(logistic, margins, some) < 0
    assert shift_to_labels(logistic, margins[:-1], some[:-1]) == 0
    assert shift_to_labels(logistic, margins, np.zeros(rows, np.float32)) == 0
    ranks = objective_of(TrainParams(objective="rank:pairwise"))
    assert shift_to_labels(ranks, margins, some) == 0
