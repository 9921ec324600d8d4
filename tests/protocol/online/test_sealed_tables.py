"""On real tables sealed scores are those of mode hop but for the last digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq import TrainParams
from tests.boosting.tables import pooled
from tests.how_often import seldom_several
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.protocol.online.sealed_parties import Sealing
from tests.protocol.online.test_online import World

ALIKE = 2**-20
_LEARNED = 4_000  # people
_SCORED = 300


def _thirds(label: Any) -> Any:
    """Three classes, that all tables have: by the label, and by the row."""
    return label + (np.arange(len(label)) % 2) * (label == 0)


@pytest.mark.parametrize(
    ("table", "parties", "classes"),
    [
        ("breast", 3, 1),
        *seldom_several(
            ("breast", 4, 1),
            ("breast", 3, 3),
            ("credit1", 2, 1),
            ("credit1", 3, 3),
            ("credit2", 3, 1),
            ("credit2", 4, 1),
            ("credit2", 3, 3),
        ),
    ],
)
def test_sealed_scores_are_those_of_mode_hop(table: str, parties: int, classes: int) -> None:
    people = pooled(table, _LEARNED)
    label = _thirds(people.y) if classes > 1 else people.y
    params: dict[str, Any] = {"num_boost_round": 20, "max_depth": 4, "max_bin": 32}
    if classes > 1:
        params |= {"objective": "multi:softprob", "num_class": classes}
    values = people.X.copy()
    values[np.random.default_rng(1).random(values.shape) < 0.05] = np.nan
    world = World.of(values, label, parties, TrainParams(**params))
    rows = np.arange(min(_SCORED, len(label)))

    hop = OnlineSchedule([world.batch(rows)], world.shares).run()[0, 0].margins
    sealing = Sealing(world)
    found = OnlineSchedule([sealing.batch(rows)], sealing.parties()).run()[0, 0].margins

    assert len(sealing.model.chain) == parties - 1
    assert len(np.unique(hop)) > 20
    assert np.abs(found - hop).max() <= ALIKE * np.abs(hop).max()
