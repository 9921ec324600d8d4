"""With hidden sums on a lattice, an active party encrypts a number that is below g and h.

Two of a person there are a whole unit of h, and one is half of it: an active party that reads
halves knows whether an odd number of its people goes left. So a passive party's noise is uniform
over all that is below its mask: the answer to any query is a uniform number.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.lattice.answer import MaskSums
from fedmq.privacy.lattice.parameters import Layout
from fedmq.privacy.lattice.query import DecryptAnswer, EncryptNode
from tests.privacy.lattice.computed import QUERY_SEED, Computed, binned, integers

ROWS = 200
ANSWERS = 400


class Below(Layout):
    """The layout of a query whose h stands in the highest bit of the noise."""

    def h_offset(self, node: int) -> int:
        return self.noise_bits - 1


def rooms(computed: Computed, people: np.ndarray) -> np.ndarray:
    """What stands below the fields, from 0 to 1, as is read: (answers, candidates)."""
    layout = computed.layout
    pairs = np.zeros((ROWS, 2), np.int64)
    pairs[:, 1] = 1
    lying = Below(layout.rows, layout.degree, layout.value_bits, layout.hidden)
    query = EncryptNode(pairs, [people], computed.public, lying, QUERY_SEED).run()
    answers = [
        MaskSums(computed.answering(query, seed.to_bytes(32, "little"))).run()[0]
        for seed in range(ANSWERS)
    ]
    numbers = np.arange(len(answers[0]), dtype=np.uint32)
    pieces = [[{"numbers": numbers, "sums": answer}] for answer in answers]
    read = DecryptAnswer(pieces, computed.hints, layout, [QUERY_SEED] * ANSWERS).limbs()
    room = 1 << layout.noise_bits
    return np.array([[number % room / room for number in integers(limbs)] for _, limbs in read])


@pytest.mark.parametrize("people", [np.array([7]), np.array([150]), np.arange(0, ROWS, 3)])
def test_the_side_of_people_below_the_fields_is_not_read(people: np.ndarray) -> None:
    computed = Computed(binned(ROWS), 64, hidden=True)
    odd = computed.expected(np.ones((ROWS, 2), np.int64), people)[:, 1] % 2 == 1
    assert 0 < odd.sum() < len(odd)
    read = rooms(computed, people)
    told = abs(read - 0.5) > 0.25  # as it was read from noise that fills half of the room
    assert abs((told == odd).mean() - 0.5) < 5 * np.sqrt(0.25 / told.size)
    # Whoever reads otherwise: what is read is uniform, of those who go left and of the others.
    for side in (odd, ~odd):
        counts = np.histogram(read[:, side], 16, (0, 1))[0]
        expected = counts.sum() / 16
        assert ((counts - expected) ** 2 / expected).sum() < 60  # 15 degrees: chance of 2e-7
