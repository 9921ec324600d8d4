"""Shares of what depends on a bit of one party and a number of the other add up to it."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.correlated import (
    Wide,
    add,
    bits_at,
    factor_choices,
    joined_products,
    multiply,
    offer,
    offer_narrow,
    offered_factors,
    receive,
    receive_narrow,
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


@pytest.mark.parametrize("bits", [1, 8, 22, 54, 63])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_shares_of_short_numbers_add_up_to_what_was_chosen(bits: int, width: int) -> None:
    receiver, sender = extension()
    random = np.random.default_rng(bits)
    choices = random.random(40) < 0.5
    modulus = np.uint64((1 << bits) - 1)
    numbers = random.integers(0, 2**64, (40, width), np.uint64) & modulus
    message, rows = receiver.extend(choices, Tweaks(0, 40))
    own = sender.extend(message, 40, Tweaks(0, 40))
    kept, sent = offer_narrow(own, sender.secret, numbers, bits, PERMUTATION, Tweaks(40, 80))
    assert sent.shape == (40, width, -(-bits // 8))
    received = receive_narrow(rows, choices, sent, bits, PERMUTATION, Tweaks(40, 80))
    wanted = np.where(choices[:, np.newaxis], numbers, np.uint64(0))
    np.testing.assert_array_equal(kept + received & modulus, wanted)
    assert kept.max() <= modulus


def test_bits_of_any_place_of_a_wide_number() -> None:
    numbers = drawn(30)
    whole = [int(low) + (int(high) << 64) for low, high in numbers]
    for place in (-70, -5, 0, 1, 40, 63, 64, 100, 127):
        for count in (1, 17, 63):
            shifted = [number >> place if place >= 0 else number << -place for number in whole]
            wanted = [number % 2**count for number in shifted]
            assert bits_at(numbers, place, count).tolist() == wanted
