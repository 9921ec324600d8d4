"""Gradients of few bits: rounded without bias, by lots that the active party alone can draw."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.gradients import Gradients, most_value_bits
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import leaf_weights
from fedmq.errors import ConfigError
from fedmq.protocol.training.offers import NodeRows

ROWS = 200
RANDOM = np.random.default_rng(0)
MARGINS = RANDOM.normal(size=ROWS).astype(np.float32)
LABELS = RANDOM.integers(0, 2, ROWS).astype(np.float32)
ALL = np.ones(ROWS, np.bool_)


def gradients(bits: int | None, tree: int = 0, labels: np.ndarray = LABELS) -> Gradients:
    params = TrainParams(gradient_bits=bits, seed=7)
    return Gradients.of(MARGINS, labels, ALL, params, tree)


@pytest.mark.parametrize("bits", [2, 4, 16])
def test_a_rounded_gradient_has_no_more_than_its_bits(bits: int) -> None:
    held = gradients(bits)
    most = 2 ** (bits - 1)
    assert held.scale.value_bits == bits - 1 == most_value_bits(held.params)
    assert most / 2 < np.abs(held.pairs).max() <= most
    assert (held.pairs[:, 1] >= 0).all()
    assert len(np.unique(held.pairs[:, 0])) <= 2 * most + 1


def test_the_mean_over_many_trees_is_the_gradient() -> None:
    exact = gradients(None)
    floats = exact.scale.to_float(exact.pairs)
    held = [gradients(3, tree) for tree in range(400)]
    mean = np.mean([rounded.scale.to_float(rounded.pairs) for rounded in held], axis=0)
    unit = held[0].scale.to_float(np.ones((1, 2), np.int64))
    # Half a unit at most deviates a rounding, a fortieth their mean; six deviations are allowed.
    assert (np.abs(mean - floats) < 6 * unit / 40).all()
    assert np.abs((mean - floats) / unit).mean() < 0.025


def test_the_same_tree_is_rounded_the_same_again_and_another_differently() -> None:
    first = gradients(4).pairs
    np.testing.assert_array_equal(gradients(4).pairs, first)
    assert (gradients(4, tree=1).pairs != first).any()


def test_who_knows_the_seed_but_not_the_labels_does_not_know_the_lots() -> None:
    other = LABELS.copy()
    other[0] = 1 - other[0]
    # Of all other rows the gradients are the same, and yet they are rounded differently.
    assert (gradients(4, labels=other).pairs[1:] != gradients(4).pairs[1:]).any()


def test_leaves_and_covers_are_of_the_exact_gradients() -> None:
    exact, rounded = gradients(None), gradients(2)
    builder = NodeRows(rounded, rounded.params)
    left = MARGINS < 0
    builder.split(1, 0, 0, 1.0, left)
    tree, increments = builder.finish()
    for side in (left, ~left):
        sums = exact.scale.to_float(exact.totals(np.flatnonzero(side)))
        assert set(increments[side]) == {np.float32(leaf_weights(sums, exact.params))}
        assert np.float32(sums[1]) in tree.cover
    coarse = rounded.scale.to_float(rounded.totals(np.flatnonzero(left)))[1]
    assert np.float32(coarse) not in tree.cover


def test_only_the_rows_of_the_sample_carry_a_rounded_gradient() -> None:
    params = TrainParams(gradient_bits=4, goss=True)
    held = Gradients.of(MARGINS, LABELS, ALL, params, 0)
    assert not held.pairs[~held.carried].any()
    assert held.carried.sum() == 60


@pytest.mark.parametrize("bits", [1, 17, 4.0])
def test_bits_that_cannot_be_are_refused(bits: float) -> None:
    with pytest.raises(ConfigError, match="gradient_bits"):
        TrainParams(gradient_bits=bits)  # type: ignore[arg-type] # wrong on purpose
