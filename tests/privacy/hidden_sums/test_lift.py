"""Shares of fields become shares of integers, whatever the shares and sums are."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.hidden_sums.shares import (
    Field,
    carries_to_offer,
    chosen_carries,
    offset,
    receiver_lift,
    sender_lift,
)
from fedmq.privacy.oblivious_transfer.correlated import Wide, add, negate, subtract, wide


def lifted(field: Field, own: np.ndarray, other: np.ndarray) -> Wide:
    """What both sides' shares of G add up to, with transfers in the clear."""
    moved = offset(own, field)
    chosen, offered = chosen_carries(moved, field), carries_to_offer(other, field)
    random = np.random.default_rng(0)
    masks = random.integers(0, 2**64, offered.shape, np.uint64)
    received = add(masks, np.where(chosen[:, np.newaxis, np.newaxis], offered, np.uint64(0)))
    return add(receiver_lift(moved, received, field), sender_lift(other, negate(masks), field))


def test_all_sums_and_shares_of_a_small_ring() -> None:
    field = Field(6)
    g, h = np.meshgrid(np.arange(-15, 16), np.arange(16), indexing="ij")
    sums = np.stack([g.ravel(), h.ravel()], axis=-1)
    joint = sums[:, 0] * 64 + sums[:, 1]
    p = np.arange(4096)
    a = (joint[:, np.newaxis] - p) % 4096
    shares = [np.stack([part >> 6, part & 63], axis=-1).astype(np.uint64) for part in (a, p)]
    own = shares[0].reshape(-1, 2)
    other = np.tile(shares[1], (len(sums), 1))
    wanted = wide(np.repeat(sums[:, 0], len(p)))
    np.testing.assert_array_equal(lifted(field, own, other), wanted)


@pytest.mark.parametrize("bits", [20, 57, 63, 64])
def test_the_largest_sums_of_any_ring(bits: int) -> None:
    field = Field(bits)
    largest = field.bound - 1
    random = np.random.default_rng(bits)
    g = np.array([-largest, largest, 0, 1, -1] * 200, np.int64)
    h = np.array([0, largest, 1] * 400, np.int64)[: len(g)]
    other = random.integers(0, 2**64, (len(g), 2), np.uint64) & field.mask
    other[:50] = field.mask
    other[50:100] = 0
    joint = field.joined(np.stack([g, h], axis=-1).view(np.uint64))
    own = field.parted(subtract(joint, field.joined(other)))
    np.testing.assert_array_equal(lifted(field, own, other), wide(g))


@pytest.mark.parametrize("bits", [6, 57, 64])
def test_fields_are_joined_parted_and_subtracted(bits: int) -> None:
    field = Field(bits)
    random = np.random.default_rng(0)
    above, beside = random.integers(0, 2**64, (2, 500, 2), np.uint64) & field.mask
    np.testing.assert_array_equal(field.parted(field.joined(above)), above)
    numbers = [[(int(g) << bits) + int(h) for g, h in shares] for shares in (above, beside)]
    left = [(x - y) % 4**bits for x, y in zip(*numbers, strict=True)]
    found = field.less(above, beside)
    assert [(int(g) << bits) + int(h) for g, h in found] == left
