"""An active party seals powers of two in place of leaves, and asks about one person online.

Each score tells 29 leaves of its choice, and the eleventh within the hour is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.errors import Refused
from fedmq.privacy.sealed_scores.packing import FixedPoint
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World

_LEAVES = 29
_ROW = 17


async def test_sealed_online_scores_tell_29_leaves_each_and_ten_of_them_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(trees=30)
    harness = ServingHarness(world, mode="sealed")
    count = len(LeafSlots.of(world.model.share).roots)
    assert count > 11 * _LEAVES
    first = 0
    told: list[int] = []

    def powers(_: FixedPoint, numbers: Any) -> Any:
        lie = np.zeros(numbers.shape, np.int64)
        lie[:, first : first + _LEAVES] = 1 << np.arange(_LEAVES)
        return lie

    def read(_: FixedPoint, sums: Any) -> Any:
        told.append(int(sums[0, 0]))
        return np.zeros(sums.shape)

    monkeypatch.setattr(FixedPoint, "of", powers)
    monkeypatch.setattr(FixedPoint, "read", read)
    for first in range(0, 10 * _LEAVES, _LEAVES):  # noqa: B007 (the lie reads it)
        await harness.margins([world.ids[_ROW]])
    with pytest.raises(Refused, match="more than 10 scores per id and hour"):
        await harness.margins([world.ids[_ROW]])

    found = (np.array(told)[:, np.newaxis] >> np.arange(_LEAVES)) & 1 == 1
    allowed = np.ones(count, np.bool_)
    for party, answering in harness.parties.items():
        (here,) = answering.shares.values()
        assert here.sealed is not None
        allowed &= here.sealed.share.allowed(world.columns[party][[_ROW]])[0]
    np.testing.assert_array_equal(found.ravel(), allowed[: 10 * _LEAVES])
    assert 0.05 < found.mean() < 0.95
