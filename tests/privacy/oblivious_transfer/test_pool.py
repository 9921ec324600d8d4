"""Transfers of random choices become those of real ones, each used once."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.extension import (
    PoolReceiver,
    PoolSender,
    Tweaks,
    turned_bytes,
)
from tests.privacy.oblivious_transfer.base import extension

COUNT = 1000


def pools() -> tuple[PoolReceiver, PoolSender, np.ndarray]:
    receiver, sender = extension()
    chooses = PoolReceiver(receiver, COUNT, Tweaks(0, COUNT))
    sends = PoolSender(sender, chooses.message, COUNT, Tweaks(0, COUNT))
    return chooses, sends, sender.secret


def test_rows_differ_by_the_secret_where_1_was_chosen() -> None:
    chooses, sends, secret = pools()
    random = np.random.default_rng(0)
    seen = set()
    for count in (1, 8, 0, 503):
        choices = random.random(count) < 0.5
        turned, rows = chooses.choose(choices)
        assert turned.nbytes == turned_bytes(count)
        other = sends.take(turned, count)
        np.testing.assert_array_equal(rows[~choices], other[~choices])
        np.testing.assert_array_equal(rows[choices], other[choices] ^ secret)
        seen |= {row.tobytes() for row in rows}
    assert len(seen) == 512


def test_rows_in_blocks_are_the_same_and_a_block_ends_once_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver, sender = extension()
    message, _ = receiver.extend(np.zeros(70_000, np.bool_), Tweaks(0, 70_000))
    whole = sender.extend(message, 70_000, Tweaks(0, 70_000))
    monkeypatch.setattr("fedmq.privacy.oblivious_transfer.extension._BLOCK_BYTES", 2048)
    monkeypatch.setattr("fedmq.privacy.oblivious_transfer.extension._BLOCK_ROWS", 8 * 2048)
    again, rows = receiver.extend(np.zeros(70_000, np.bool_), Tweaks(0, 70_000))
    np.testing.assert_array_equal(again.column_hashes, message.column_hashes)
    np.testing.assert_array_equal(rows, whole)
    sends = PoolSender(sender, again, 70_000, Tweaks(0, 70_000))
    first = sends.drawn(3)
    ends = weakref.ref(first.base)
    taken = [first.copy(), sends.drawn(2 * 8 * 2048)]
    del first
    assert ends() is None
    sends.drop_used()
    taken += [sends.drawn(70_000 - 3 - 2 * 8 * 2048), sends.drawn(0)]
    np.testing.assert_array_equal(np.concatenate(taken), whole)


def test_what_is_turned_shows_no_choice_to_the_eye() -> None:
    for choice in (False, True):
        turned, _ = pools()[0].choose(np.full(COUNT, choice))
        assert abs(np.unpackbits(turned).mean() - 0.5) < 0.08


def test_a_pool_has_no_more_than_it_has() -> None:
    chooses, sends, _ = pools()
    with pytest.raises(ValueError, match="1001 transfers of a pool of 1000"):
        chooses.choose(np.zeros(COUNT + 1, np.bool_))
    with pytest.raises(MessageError, match="1001 transfers of a pool of 1000"):
        sends.take(np.zeros(126, np.uint8), COUNT + 1)
