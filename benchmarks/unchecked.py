"""Trainings whose parties do not check each other, to see what the checks cost.

What is left out, as long as `unchecked` lasts:

- at the active party: bounds of candidates, one name for those that tie, the sums of who went left,
  the number of a record, the length of a reply;
- at a passive party: the canonical order of candidates that part as many rows, for which it counts
  its cells, and the slot layout.

Everything is patched in this process. Nothing a user can set does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import Gradients
from fedmq.privacy.engine import SplitOffer
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.passive import AdditivePassive
from fedmq.privacy.plan import Plan
from fedmq.protocol.training.candidates import CandidateOrders
from fedmq.protocol.training.claims import ConsistencyCheck
from fedmq.protocol.training.offers import ScoreAnswer

__all__ = ["unchecked"]


@contextmanager
def unchecked() -> Iterator[None]:
    """Parties believe each other in here, and grow the same trees."""
    replaced = (
        (Gradients, "bounds", _totals),
        (ScoreAnswer, "best", _scored),
        (ConsistencyCheck, "check_count", _nothing),
        (ConsistencyCheck, "check_size", _nothing),
        (ConsistencyCheck, "check_record", _nothing),
        (CandidateOrders, "draw", _drawn),
        (AdditivePassive, "_needed", _as_sent),
    )
    with ExitStack() as stack:
        for owner, name, other in replaced:
            stack.enter_context(patch.object(owner, name, other))
        yield


def _nothing(*_: object) -> None:
    pass


def _as_sent(_: AdditivePassive, layout: SlotLayout) -> SlotLayout:
    return layout


def _totals(gradients: Gradients, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """The totals in the place of bounds, which add up to them."""
    total = gradients.totals(rows)
    return np.stack((np.zeros_like(total), total))


def _scored(answer: ScoreAnswer) -> SplitOffer:
    return answer.score.run()


def _drawn(
    orders: CandidateOrders,
    nodes: Mapping[int, NDArray[np.int32]],
    shown: Mapping[int, NDArray[np.int64]],
) -> Plan[None]:
    for node in nodes:
        seed = np.random.SeedSequence(orders._secret, spawn_key=(orders._tree, node))
        random = np.random.Generator(np.random.Philox(seed))
        orders.by_node[node] = shown[node][random.permutation(len(shown[node]))]
    yield from ()
