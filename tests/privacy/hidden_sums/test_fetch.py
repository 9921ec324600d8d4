"""Both parties get fresh shares of what stands at places that neither knows."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.hidden_sums.filtering import (
    chosen_entries,
    fresh_shares,
    hidden_entries,
    index_choices,
    offered_entries,
)
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.correlated import add
from fedmq.privacy.oblivious_transfer.extension import Permutation, Tweaks
from tests.privacy.oblivious_transfer.base import extension_of

FIELD = Field(57)
PERMUTATION = Permutation(b"public")
NODES, SLOTS = 3, 4


def read(table: Shares, own: np.ndarray, places: np.ndarray, masks: Shares, bits: int, party: int):
    """What the other party reads at ``places`` of a table permuted by ``own``, and the table."""
    receiver, sender = extension_of(party)
    offered = offered_entries(table, own, masks, bits, FIELD)
    choices = index_choices(places, bits)
    count = len(choices)
    sent, rows = receiver.extend(choices, Tweaks(0, count))
    of_sender = sender.extend(sent, count, Tweaks(0, count))
    use = (count, 2 * count)
    hidden = hidden_entries(offered, of_sender, sender.secret, PERMUTATION, Tweaks(*use))
    return chosen_entries(hidden, rows, places, PERMUTATION, Tweaks(*use)), offered, hidden


@pytest.mark.parametrize("candidates", [8, 11, 78])
def test_fresh_shares_add_up_to_what_stands_at_the_place(candidates: int) -> None:
    random = np.random.default_rng(candidates)
    bits = (candidates - 1).bit_length()

    def drawn(*shape: int) -> Shares:
        return random.integers(0, 2**64, (*shape, 2), np.uint64) & FIELD.mask

    a, p = drawn(NODES, candidates), drawn(NODES, candidates)
    places = random.integers(0, candidates, (NODES, SLOTS))
    of_a = random.integers(0, 1 << bits, places.shape)
    of_p = places ^ of_a
    mask_a, mask_p = drawn(NODES, SLOTS), drawn(NODES, SLOTS)
    got_a, offered, hidden = read(p, of_p, of_a, mask_p, bits, 1)
    got_p, _, _ = read(a, of_a, of_p, mask_a, bits, 2)
    new_a, new_p = fresh_shares(got_a, mask_a, FIELD), fresh_shares(got_p, mask_p, FIELD)
    found = FIELD.parted(add(FIELD.joined(new_a), FIELD.joined(new_p)))
    at = np.arange(NODES)[:, np.newaxis], places
    wanted = FIELD.parted(add(FIELD.joined(a[at]), FIELD.joined(p[at])))
    np.testing.assert_array_equal(found, wanted)
    assert not (new_a == a[at]).any()
    assert not (offered == hidden).any()


def test_no_place_at_all() -> None:
    nothing = np.zeros((0, SLOTS), np.int64)
    shares = np.zeros((0, 9, 2), np.uint64)
    got, _, _ = read(shares, nothing, nothing, np.zeros((0, SLOTS, 2), np.uint64), 4, 1)
    assert got.shape == (0, 2)
