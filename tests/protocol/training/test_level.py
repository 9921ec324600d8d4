"""Nodes that are asked about at once, while what is asked about them is still made."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import pack_payload
from fedmq.privacy.engine import SizeLimit
from fedmq.privacy.plan import Exchange, single
from fedmq.protocol.machine import PlanState
from fedmq.protocol.training.active_growth import LevelRequests
from fedmq.protocol.training.states import OFFER

NODES = (4, 6)
WAITING = PlanState(OFFER, single(None), lambda _: None, None)


def asked() -> LevelRequests:
    level = LevelRequests(0, NODES, owners=2)
    largest = dict.fromkeys(NODES, SizeLimit(1, 100))
    level.ask("telco", largest, Exchange(later={4: 1, 6: 2}), WAITING)
    return level


def made(level: LevelRequests) -> None:
    for node, pieces in ((6, 2), (4, 1)):
        level.add_part(node, 0, [{"limbs": np.full(1, node)}] * pieces)


def reply(node: int) -> training.HistogramReply:
    return training.HistogramReply(
        tree=0,
        node=node,
        round=0,
        piece=0,
        pieces=1,
        payload=pack_payload({"sums": np.full(1, node)}),
    )


def test_one_request_is_about_all_of_them() -> None:
    [(peer, request)] = asked().requests()
    assert peer == "telco"
    assert isinstance(request, training.HistogramRequest)
    assert [(query.node, query.pieces) for query in request.nodes] == [(4, 1), (6, 2)]


def test_pieces_follow_as_they_are_made() -> None:
    level = asked()
    level.requests()
    made(level)
    sent = [body for _, body in level.requests() if isinstance(body, training.QueryPiece)]
    assert [(piece.node, piece.piece) for piece in sent] == [(6, 0), (6, 1), (4, 0)]


def test_the_plan_resumes_with_what_was_answered_about_each() -> None:
    level = asked()
    made(level)
    assert level.reply("telco", reply(6)) is None
    complete = level.reply("telco", reply(4))
    assert complete is not None
    running, replies = complete
    assert running is WAITING
    assert isinstance(replies, dict)
    assert {node: piece["sums"].tolist() for node, [piece] in replies.items()} == {4: [4], 6: [6]}


def test_an_answer_before_its_last_piece_was_sent_is_refused() -> None:
    level = asked()
    level.add_part(4, 0, [{"limbs": np.zeros(1)}])
    with pytest.raises(ProtocolError, match="an unrequested reply about node 6"):
        level.reply("telco", reply(6))
