"""Shares of what depends on a bit of one party and a number of the other add up to it."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.correlated import (
    Wide,
    add,
    factor_choices,
    joined_products,
    multiply,
    offer,
    offered_factors,
    receive,
)
from fedmq.privacy.oblivious_transfer.extension import Permutation, Tweaks
from tests.privacy.oblivious_transfer.base import extension

PERMUTATION = Permutation(b"public")


def transferred(choices: np.ndarray, numbers: Wide) -> tuple[Wide, Wide, Wide]:
    """The sender's shares, what is sent, and the receiver's shares."""
    receiver, sender = extension()
    count, width, _ = numbers.shape
    message, rows = receiver.extend(choices, Tweaks(0, count))
    own = sender.extend(message, count, Tweaks(0, count))
    use = (count, 2 * count)
    shares, sent = offer(own, sender.secret, numbers, PERMUTATION, Tweaks(*use))
    return shares, sent, receive(rows, choices, sent, width, PERMUTATION, Tweaks(*use))


def drawn(*shape: int) -> Wide:
    return np.random.default_rng(sum(shape)).integers(0, 2**64, (*shape, 2), np.uint64)


@pytest.mark.parametrize("width", [1, 5])
def test_shares_are_of_the_number_where_1_was_chosen(width: int) -> None:
    choices = np.random.default_rng(0).random(500) < 0.5
    numbers = drawn(500, width)
    shares, _, received = transferred(choices, numbers)
    together = add(shares, received)
    np.testing.assert_array_equal(together[choices], numbers[choices])
    assert not together[~choices].any()


def test_neither_what_is_sent_nor_a_share_shows_the_number() -> None:
    numbers = np.zeros((4000, 2, 2), np.uint64)
    for found in transferred(np.arange(4000) % 2 == 0, numbers):
        assert abs(np.unpackbits(found.view(np.uint8)).mean() - 0.5) < 0.005


@pytest.mark.parametrize("bits", [1, 57, 128])
def test_products(bits: int) -> None:
    factors, others = drawn(30), drawn(30, 3)
    if bits < 128:
        factors = factors & np.array([2 ** min(bits, 64) - 1, 0], np.uint64)
    shares, _, received = transferred(factor_choices(factors, bits), offered_factors(others, bits))
    together = add(joined_products(shares, bits), joined_products(received, bits))
    np.testing.assert_array_equal(together, multiply(factors[:, np.newaxis], others))


@pytest.mark.parametrize(
    "sent",
    [None, np.zeros((3, 2, 2), np.int64), np.zeros((3, 1, 2), np.uint64)],
    ids=["none", "signed", "narrow"],
)
def test_malformed_numbers_are_refused(sent: object) -> None:
    rows = drawn(3)
    with pytest.raises(MessageError, match=r"not uint64 \(3, 2, 2\)"):
        receive(rows, np.ones(3, np.bool_), sent, 2, PERMUTATION, Tweaks(0, 3))
