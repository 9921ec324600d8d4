"""A feature holder announces a reply of a million pieces, and fills the label holder's memory."""

from __future__ import annotations

import pytest

from fedmq.errors import Inconsistent
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import Engine
from tests.protocol.federation import ACTIVE, OU, PAILLIER, PLAIN, small


@pytest.mark.parametrize("engine", [PLAIN, PAILLIER, OU], ids=lambda engine: engine.name)
def test_a_reply_longer_than_its_candidates_take_ends_the_session(engine: Engine) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, HistogramReply):
            return body.model_copy(update={"pieces": 2**20 - 1})
        return body

    federation = small(counts=(0, 2)).having(engine=engine)
    error = federation.train(rewrite=rewrite).errors[ACTIVE]
    assert isinstance(error, Inconsistent)
    assert "a reply of 1048575 pieces, 1 hold all its candidates" in str(error)
