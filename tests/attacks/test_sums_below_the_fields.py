"""With hidden sums on a lattice, an active party encrypts a number that is below g and h.

A passive party masks g and h. Below them lies its noise, which is less than half of the room there:
so an active party that lies puts people into this room, and reads whether an odd number of them
goes left.
"""

from __future__ import annotations

import numpy as np

from fedmq.privacy.lattice.answer import MaskSums
from fedmq.privacy.lattice.parameters import Layout
from fedmq.privacy.lattice.query import DecryptAnswer, EncryptNode
from tests.privacy.lattice.computed import QUERY_SEED, Computed, binned, integers

ROWS = 200


class Below(Layout):
    """The layout of a query whose h stands in the highest bit of the noise."""

    def h_offset(self, node: int) -> int:
        return self.noise_bits - 1


def told(computed: Computed, people: np.ndarray) -> np.ndarray:
    """Of each candidate, whether an odd number of ``people`` goes left, as is read."""
    layout = computed.layout
    pairs = np.zeros((ROWS, 2), np.int64)
    pairs[:, 1] = 1
    lying = Below(layout.rows, layout.degree, layout.value_bits, layout.hidden)
    query = EncryptNode(pairs, [people], computed.public, lying, QUERY_SEED).run()
    answer, _ = MaskSums(computed.answering(query)).run()
    pieces = [{"numbers": np.arange(len(answer), dtype=np.uint32), "sums": answer}]
    [(_, limbs)] = DecryptAnswer([pieces], computed.hints, layout, [QUERY_SEED]).limbs()
    room = 1 << layout.noise_bits
    return np.array([abs(number % room - room // 2) > room // 4 for number in integers(limbs)])


def test_a_person_side_of_every_cut_is_read_from_one_question() -> None:
    """What remains: hidden sums are for parties that keep the protocol."""
    bins = binned(ROWS)
    computed = Computed(bins, 64, hidden=True)
    ones = np.ones((ROWS, 2), np.int64)
    for people in (np.array([7]), np.array([150]), np.arange(0, ROWS, 3)):
        left = computed.expected(ones, people)[:, 1]
        np.testing.assert_array_equal(told(computed, people), left % 2 == 1)
        assert 0 < (left % 2).sum() < len(left)
