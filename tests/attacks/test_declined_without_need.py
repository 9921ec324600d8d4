"""A passive party that declines nodes, or names candidates, against what it announced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import Inconsistent
from fedmq.messages import training
from fedmq.messages.array import pack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from tests.protocol.best_engine import BestOfAll
from tests.protocol.federation import ACTIVE, OU, PLAIN, Federation, shares, small
from tests.protocol.hidden_rows_engine import HiddenRows

FEDERATION = small(counts=(0, 2, 1))
CARRYING = int((~FEDERATION.evaluation).sum())


def declining(federation: Federation, announced: int) -> Inconsistent:
    """How the active party ends when ``telco`` declines the root, after it announced a policy."""

    def lying(envelope: Envelope) -> Body:
        body: Any = envelope.body
        if envelope.header.sender != "telco":
            return envelope.body
        if isinstance(body, training.SessionAccept):
            return body.model_copy(update={"smallest_node": announced})
        if isinstance(body, training.HistogramReply):
            return training.NodeDeclined(tree=body.tree, node=body.node)
        return envelope.body

    error = federation.train(rewrite=lying).errors[ACTIVE]
    assert isinstance(error, Inconsistent), error
    assert error.party == "telco"
    return error


@pytest.mark.parametrize("engine", [PLAIN, OU], ids=lambda engine: engine.name)
@pytest.mark.parametrize("announced", [0, CARRYING])
def test_a_node_of_as_many_rows_as_were_announced_is_not_declined(
    engine: Engine, announced: int
) -> None:
    error = declining(FEDERATION.having(engine=engine), announced)
    assert f"tree 0, node 1: the party declines a node of {announced} rows or more" in str(error)


@pytest.mark.parametrize("engine", [Lattice(), HiddenRows()], ids=lambda engine: engine.name)
def test_who_does_not_see_the_rows_of_a_node_declines_none(engine: Engine) -> None:
    declining(FEDERATION.having(engine=engine), CARRYING + 1)


@pytest.mark.parametrize("engine", [PLAIN, OU], ids=lambda engine: engine.name)
def test_an_honest_party_declines_what_it_announced(engine: Engine) -> None:
    federation = FEDERATION.having(engine=engine, smallest_node={"telco": CARRYING + 1})
    assert shares(federation.train())
    assert shares(federation.having(subsample=0.5).train())


def test_the_best_candidate_is_one_of_those_that_were_announced() -> None:
    announced: list[int] = []

    def lying(envelope: Envelope) -> Body:
        body: Any = envelope.body
        if envelope.header.sender != "telco":
            return envelope.body
        if isinstance(body, training.SessionAccept):
            announced.append(body.candidates)
        if isinstance(body, training.HistogramReply):
            beyond = np.array(announced, np.uint32)
            best = pack_payload({"gain": 1e6, "candidates": beyond})
            return body.model_copy(update={"payload": best})
        return envelope.body

    engine = BestOfAll(FEDERATION.params)
    error = FEDERATION.having(engine=engine).train(rewrite=lying).errors[ACTIVE]
    [most] = announced
    assert isinstance(error, Inconsistent), error
    assert f"{most + 1} candidates in a node; the party announced at most {most}" in str(error)
