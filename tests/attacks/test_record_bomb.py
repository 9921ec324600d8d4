"""A passive party gives a split a record so large that a table of its records fills the memory."""

from __future__ import annotations

import json

import pytest

from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import DataError, Inconsistent
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import SplitOutcome
from tests.protocol.federation import ACTIVE, small

BOMB = 2**28


@pytest.mark.parametrize("record", [1, BOMB, 2**31 - 1])
def test_a_record_that_is_not_the_next_is_refused_when_it_is_named(record: int) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, SplitOutcome):
            return body.model_copy(update={"record": record})
        return body

    simulation = small(counts=(0, 2)).train(rewrite=rewrite)
    error = simulation.errors[ACTIVE]
    assert isinstance(error, Inconsistent)
    assert str(error) == f"telco: tree 0, node 1: record {record}; the next record is 0"


def test_a_share_with_such_a_record_is_not_loaded() -> None:
    share: ActiveShare = small(counts=(0, 2)).train().results[ACTIVE]
    document = json.loads(share.dumps())
    assert document["trees"][0]["owner"][0] == 1
    document["trees"][0]["record"][0] = BOMB
    with pytest.raises(DataError, match=f"record {BOMB} of telco, which has"):
        ActiveShare.loads(json.dumps(document), "share.json")
