"""Engines of other shapes go through the same machines, and come to the same model."""

from __future__ import annotations

from typing import Any

import pytest

from fedmq.messages import training
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engine import Engine
from tests.how_often import seldom, some_seeds
from tests.protocol.best_engine import BestOfAll
from tests.protocol.federation import Federation, shares, small
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.simulator import Link

COUNTS = [(2, 3), (2, 2, 1), (0, 3)]


def engines(federation: Federation) -> list[Engine]:
    return [HiddenRows(), BestOfAll(federation.params)]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("params", [{}, *seldom({"subsample": 0.7}, {"max_depth": 1})], ids=str)
@some_seeds(8)
def test_the_model_is_the_one_that_the_plain_engine_learns(
    counts: tuple[int, ...], params: dict[str, Any], seeds: range
) -> None:
    federation = small(counts=counts, **params)
    plain = shares(federation.train())
    for engine in engines(federation):
        for seed in seeds:
            link = Link(drop=0.1 * (seed % 3), repeat=0.2, delay=1.0 * (seed % 2))
            simulation = federation.having(engine=engine).train(seed=seed, link=link)
            assert shares(simulation) == plain, f"{engine.name}, seed {seed}"


def test_an_engine_that_hides_rows_tells_nobody_who_stands_where() -> None:
    federation = small(counts=(2, 2, 1)).having(engine=HiddenRows())
    envelopes: list[Envelope] = []
    federation.train(tap=envelopes.append)
    bodies = [envelope.body for envelope in envelopes]
    assert not any(
        isinstance(body, training.NodeAssignment | training.GradientBroadcast) for body in bodies
    )
    outcomes = [body for body in bodies if isinstance(body, training.SplitOutcome)]
    assert outcomes
    assert {outcome.left.count for outcome in outcomes} == {len(federation.label)}


def test_the_pieces_of_setup_queries_and_replies_arrive_in_their_numbers() -> None:
    federation = small(counts=(2, 2)).having(engine=HiddenRows())
    bodies: list[Any] = []
    federation.train(tap=lambda envelope: bodies.append(envelope.body))
    setups = [body.piece for body in bodies if isinstance(body, training.EngineSetup)]
    assert setups == [0, 1, 2]
    roots = [body for body in bodies if isinstance(body, training.QueryPiece) and body.node == 1]
    of_first_tree = [(body.round, body.piece) for body in roots if body.tree == 0]
    assert of_first_tree == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
