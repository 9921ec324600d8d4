"""An active party seals powers of two in place of leaves, so that a sum tells which were allowed.

One number of 30 bits is all that a score tells, whatever was sealed: 29 leaves of one party, and
no row is asked about twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.privacy.sealed_scores.packing import FixedPoint
from tests.protocol.federation import ACTIVE, ran, small

_LEAVES = 29


def test_a_sealed_score_tells_29_leaves_to_an_active_party_that_lies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = small(counts=(1, 4), num_boost_round=5, max_depth=4)
    shares = federation.train().results
    slots = LeafSlots.of(shares[ACTIVE])
    count = len(slots.roots)
    assert count > _LEAVES
    first = count - _LEAVES  # any of them

    def powers(_: FixedPoint, numbers: Any) -> Any:
        lie = np.zeros(numbers.shape, np.int64)
        lie[:, first : first + _LEAVES] = 1 << np.arange(_LEAVES)
        return lie

    told: list[np.ndarray] = []

    def read(_: FixedPoint, sums: Any) -> Any:
        told.append(sums)
        return sums.astype(np.float64)

    monkeypatch.setattr(FixedPoint, "of", powers)
    monkeypatch.setattr(FixedPoint, "read", read)
    simulation = ran(federation.sealed_scoring(shares))
    assert not simulation.errors

    ranges = slots.ranges[1]
    table, values = shares["telco"].lookup_table, federation.columns["telco"]
    rows = np.repeat(np.arange(len(values)), len(ranges.record))
    left = table.directions(values, rows, np.tile(ranges.record, len(values)))
    allowed = ranges.allowed(left.reshape(len(values), -1), count)
    sums = np.concatenate(told)[:, 0]
    found = (sums[:, np.newaxis] >> np.arange(_LEAVES)) & 1 == 1
    np.testing.assert_array_equal(found, allowed[:, first : first + _LEAVES])
    assert 0.05 < found.mean() < 0.95
