"""An active party scores a file, or continues a model, and asks about everybody at all records.

That tells on which side of every threshold each person stands: a score takes one way a tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.protocol.tree_walk import OneWay
from tests.protocol.federation import ACTIVE, Federation, ran, small


@pytest.fixture(scope="module")
def trained() -> tuple[Federation, dict[str, Any]]:
    federation = small(counts=(1, 4), num_boost_round=3, max_depth=4)
    return federation, federation.train().results


class AskingForAll:
    """Makes all records, or two of a tree, of the first hop; counts the answers."""

    def __init__(self, records: list[int]) -> None:
        self.records = records
        self.answers = 0
        self._lied = False

    def __call__(self, sent: Envelope) -> Body:
        body = sent.body
        self.answers += isinstance(body, HopReply)
        if not isinstance(body, InferenceHop) or self._lied:
            return body
        self._lied = True
        records, rows = np.array(self.records, np.uint32), np.arange(80, dtype=np.uint32)
        return InferenceHop(
            hop=body.hop,
            records=Array.of(records),
            counts=Array.of(np.full(len(records), len(rows), np.uint32)),
            rows=Array.of(np.tile(rows, len(records))),
        )


def beside(places: Any) -> list[int]:
    """Two records of which none lies below the other."""
    (tree, _), *_ = ((tree, node) for tree, node in places if node in (2, 3))
    return [places.index((tree, node)) for node in (2, 3)]


@pytest.mark.parametrize("asked", ["all records", "two beside each other"])
@pytest.mark.parametrize("continued", [False, True], ids=["a file", "a continued model"])
def test_directions_beside_a_way_are_told_to_nobody(
    trained: tuple[Federation, dict[str, Any]], continued: bool, asked: str
) -> None:
    federation, shares = trained
    places = list(shares["telco"].places)
    records = list(range(len(places))) if asked == "all records" else beside(places)
    machines = (
        federation.having(earlier=shares).training() if continued else federation.scoring(shares)
    )
    liar = AskingForAll(records)
    simulation = ran(machines, rewrite=liar)
    assert "asked about beside its one way through a tree" in str(simulation.errors["telco"])
    assert ACTIVE in simulation.errors
    assert not liar.answers


def test_a_share_put_back_from_a_backup_is_named_as_a_cause(
    trained: tuple[Federation, dict[str, Any]],
) -> None:
    """Of an earlier training under the same name: nobody lies."""
    federation, shares = trained
    earlier = small(counts=(1, 4), num_boost_round=1, max_depth=2).train().results
    simulation = ran(federation.scoring({**shares, "telco": earlier["telco"]}))
    for party in (ACTIVE, "telco"):
        assert "the share of the model here is of another training" in str(simulation.errors[party])


def test_each_way_is_told_whole_and_again_and_no_other() -> None:
    way = OneWay([(4, 1), (4, 2), (4, 3), (9, 5), (4, 6)], rows=3)
    rows, left = np.array([0, 2]), np.array([True, False])
    way.ask(rows, np.array([0, 0]))
    way.answer(rows, np.array([0, 0]), left)
    way.ask(rows, np.array([1, 2]))  # left to node 2, right to node 3
    way.ask(rows, np.array([0, 0]))
    way.ask(rows, np.array([3, 3]))
    for row, record in ((0, 2), (2, 1), (0, 4)):
        with pytest.raises(ProtocolError, match=f"row {row} is asked about beside"):
            way.ask(np.array([row]), np.array([record]))
    way.ask(np.array([2, 1]), np.array([4, 4]))
    with pytest.raises(ProtocolError, match="row 1 is"):
        way.ask(np.array([1]), np.array([1]))
    with pytest.raises(ProtocolError, match="row 1 is"):
        OneWay([(0, 2), (0, 3)], rows=2).ask(np.array([1, 1]), np.array([0, 1]))
