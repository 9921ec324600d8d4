"""The machines that count the people whom parties share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedmq.computation import Given
from fedmq.messages import overlap
from fedmq.protocol.machine import Machine
from fedmq.protocol.overlap.active import ActiveOverlap
from fedmq.protocol.overlap.passive import OverlapLimits, PassiveOverlap
from tests.protocol.alignment.alignments import Own

EXACT = OverlapLimits(exact=True)


def machines(
    owners: Mapping[str, Own],
    limits: Mapping[str, OverlapLimits] | None = None,
    agree: Callable[[overlap.OverlapOpen], None] = lambda _: None,
    seed: int = 0,
    noise: int = 0,
    asked: Mapping[str, int] | None = None,
) -> dict[str, Machine]:
    """``limits`` by party: exact numbers, of any size, where left out."""
    parties = tuple(owners)
    keys = np.random.default_rng(seed).bytes(32 * len(parties))
    made: dict[str, Machine] = {
        parties[0]: ActiveOverlap(
            "customers", parties, owners[parties[0]].ids, ("trim",), keys[:32]
        )
    }
    for number, party in enumerate(parties[1:], start=1):
        made[party] = PassiveOverlap(
            party,
            parties,
            Given(owners[party].ids),
            agree,
            keys[32 * number : 32 * number + 32],
            noise,
            (limits or {}).get(party, EXACT),
            consent_within=(asked or {}).get(party, 0),
        )
    return made
