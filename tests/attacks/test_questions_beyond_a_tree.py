"""An active party that asks again, or of nodes that no tree has, and fills up its questions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedmq.messages import training
from fedmq.messages.array import Array, pack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from tests.attacks.test_splits_counted_at_the_broker import hiding
from tests.protocol.federation import ACTIVE, OU, PLAIN, small
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.simulator import Simulation


def sent_after(kind: type[Body], more: Callable[[Any], list[Body]], engine: Engine) -> str:
    """How ``telco`` ends when the active party sends ``more`` after its first message of a kind."""
    simulation = Simulation(small(counts=(0, 3)).having(engine=engine).training())
    seen: list[Body] = []

    def tap(envelope: Envelope) -> None:
        if isinstance(envelope.body, kind) and not seen:
            seen.append(envelope.body)
            for body in more(envelope.body):
                simulation.send(ACTIVE, "telco", body)

    simulation.tap = tap
    simulation.run()
    return str(simulation.errors["telco"])


@pytest.mark.parametrize("engine", [PLAIN, OU, Lattice(), HiddenRows()], ids=lambda spec: spec.name)
def test_the_same_request_again_ends_the_session(engine: Engine) -> None:
    reason = sent_after(training.HistogramRequest, lambda body: [body], engine)
    assert "round 0 of questions about node 1 is not due" in reason


@pytest.mark.parametrize("engine", [Lattice(directions="all"), HiddenRows()], ids=lambda s: s.name)
def test_so_does_the_same_split_again_where_rows_are_hidden(engine: Engine) -> None:
    other = Array.of(np.array([0], np.uint32))
    reason = sent_after(
        training.SplitDecision,
        lambda body: [body.model_copy(update={"candidates": other})],
        engine,
    )
    assert "node 1 has been split before" in reason


def test_a_split_of_every_node_there_could_be_ends_it() -> None:
    reason = sent_after(
        training.SplitDecision,
        lambda body: [body.model_copy(update={"node": node}) for node in range(2, 8)],
        Lattice(directions="all"),
    )
    assert "a split of node 2, but no question about its level" in reason


@pytest.mark.parametrize("engine", [PLAIN, OU, Lattice(), HiddenRows()], ids=lambda spec: spec.name)
def test_a_query_of_more_pieces_than_its_engine_asks_ends_it(engine: Engine) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, training.HistogramRequest):
            return body
        nodes = tuple(query.model_copy(update={"pieces": 2**20 - 1}) for query in body.nodes)
        return body.model_copy(update={"nodes": nodes})

    simulation = small(counts=(0, 3)).having(engine=engine).train(rewrite=rewrite)
    assert "a query of 1048575 pieces about node 1" in str(simulation.errors["telco"])


PADDING = pack_payload({"more": "x" * 700_000})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (training.QueryPiece, "bytes or more about node 1"),
        (training.DirectionsQuery, "a query about directions of node 2 that is too long"),
    ],
)
def test_so_does_one_that_is_filled_up(kind: type[Body], reason: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body: Any = envelope.body
        if not isinstance(body, kind):
            return envelope.body
        padded: Body = body.model_copy(update={"payload": {**body.payload, **PADDING}})
        return padded

    simulation = small(counts=(0, 3)).having(engine=Lattice()).train(rewrite=rewrite)
    assert reason in str(simulation.errors["telco"])


def test_directions_of_one_node_are_asked_about_at_a_time() -> None:
    reason = sent_after(
        training.DirectionsQuery,
        lambda body: [body.model_copy(update={"node": 3, "piece": 0})],
        Lattice(),
    )
    assert "a query about directions of node 3, out of place" in reason


def decided_again(more: Callable[[training.SplitDecision], Body]) -> str:
    """How ``telco`` ends when ``more`` comes after its first decoy."""
    federation = small(rows=120, counts=(0, 3, 3)).having(engine=PLAIN)
    simulation = Simulation(hiding(federation))
    seen: list[Body] = []

    def tap(envelope: Envelope) -> None:
        body = envelope.body
        if envelope.header.recipient != "telco" or not isinstance(body, training.SplitDecision):
            return
        if body.is_decoy and not seen:
            seen.append(body)
            simulation.send(ACTIVE, "telco", more(body))

    simulation.tap = tap
    simulation.run()
    return str(simulation.errors["telco"])


def test_a_second_decoy_about_a_node_ends_it() -> None:
    assert "a second decoy about node" in decided_again(lambda decoy: decoy)


def test_a_decoy_about_a_node_that_is_split_here_is_no_cover_for_a_second_answer() -> None:
    first = Array.of(np.array([0], np.uint32))
    reason = decided_again(lambda decoy: decoy.model_copy(update={"candidates": first}))
    assert re.search(r"a split of node \d+ after a decoy about it", reason)


def test_an_engine_that_hides_rows_is_asked_with_no_decoys() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, training.TrainingOpen):
            return body
        return body.model_copy(update={"decoys": True})

    simulation = small(counts=(0, 3)).having(engine=HiddenRows()).train(rewrite=rewrite)
    assert "has no decoys" in str(simulation.errors["telco"])
