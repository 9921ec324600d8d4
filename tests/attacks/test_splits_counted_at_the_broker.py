"""The broker's operator counts decisions per recipient: they tell whose columns matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import ConfigError, DaemonError
from fedmq.leakage.view import SessionView
from fedmq.messages.array import Bitmap
from fedmq.messages.body import Body
from fedmq.messages.codec import encode, unframe
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import (
    HistogramRequest,
    NodeAssignment,
    SplitDecision,
    SplitOutcome,
    TrainingOpen,
)
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.terms import ActiveTable
from fedmq.transport.sealing.connection import padded_length
from tests.accountability.audited import AuditedDaemons
from tests.how_often import seldom
from tests.party.daemons_in_memory import PARTIES
from tests.protocol.federation import (
    ACTIVE,
    OU,
    PAILLIER,
    PLAIN,
    Federation,
    names,
    ran,
    shares,
    small,
)
from tests.simulator import Link, Simulation

ABOUT_SPLITS = ("split decision", "split outcome", "node assignment")
GROWTHS: tuple[dict[str, Any], ...] = ({}, {"grow_policy": "lossguide", "max_leaves": 7})
Seen = Counter[tuple[str, str, str, int]]


def hiding(federation: Federation) -> Mapping[str, Machine]:
    """The machines of a training with decoys."""
    machines = federation.training()
    columns = federation.columns[ACTIVE]
    own = ActiveTable(
        columns,
        names(ACTIVE, columns.shape[1]),
        federation.label,
        federation.evaluation,
        alignment="the same ids",
    )
    machines[ACTIVE] = ActiveTraining(
        "model", ACTIVE, federation.peers, own, federation.params, federation.engine, decoys=True
    )
    return machines


def watched(machines: Mapping[str, Machine]) -> tuple[Simulation, Seen]:
    """A training, and what the operator counts: sender, recipient, kind and length in steps."""
    seen: Seen = Counter()

    def tap(envelope: Envelope) -> None:
        header = envelope.header
        if header.kind in ABOUT_SPLITS:
            length = padded_length(len(unframe(encode(envelope)).body))
            seen[header.sender, header.recipient, header.kind, length] += 1

    return ran(machines, tap=tap), seen


def of(party: str, seen: Seen) -> Seen:
    """What passed between the active party and ``party``."""
    return Counter(
        {
            (sender == party, kind, length): count
            for (sender, recipient, kind, length), count in seen.items()
            if party in (sender, recipient)
        }
    )


def splits(simulation: Simulation, owner: int) -> int:
    """How many nodes the party of this number splits."""
    return sum(int((tree.owner == owner).sum()) for tree in simulation.results[ACTIVE].trees)


@pytest.mark.parametrize("engine", [PLAIN, *seldom(PAILLIER, OU)], ids=lambda engine: engine.name)
@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.get("grow_policy", "levels"))
def test_with_decoys_every_party_gets_as_many_messages_as_long(
    engine: Engine, growth: dict[str, Any]
) -> None:
    federation = small(rows=120, counts=(1, 3, 2), **growth).having(engine=engine)
    usual, open_to_all = watched(federation.training())
    hidden, seen = watched(hiding(federation))
    assert of("telco", open_to_all) != of("shop", open_to_all)
    assert of("telco", seen) == of("shop", seen)
    assert shares(hidden) == shares(usual)


@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.get("grow_policy", "levels"))
def test_the_order_of_messages_does_not_tell_who_splits(growth: dict[str, Any]) -> None:
    federation = small(rows=200, counts=(3, 2, 2), **{"max_depth": 5, **growth})
    columns = federation.columns
    swapped = replace(
        federation, columns={**columns, "telco": columns["shop"], "shop": columns["telco"]}
    )
    sent: list[list[tuple[str, str, int, int]]] = []

    def tap(envelope: Envelope) -> None:
        header, body = envelope.header, envelope.body
        if isinstance(body, SplitDecision | NodeAssignment):
            sent[-1].append((header.kind, header.recipient, body.tree, body.node))

    for which in (federation, swapped):
        sent.append([])
        simulation = ran(hiding(which), tap=tap)
        assert splits(simulation, 1)
        assert splits(simulation, 2)
        assigned = [(tree, node) for kind, _, tree, node in sent[-1] if kind == "node assignment"]
        assert growth or assigned == sorted(assigned)
    assert sent[0] == sent[1]


@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.get("grow_policy", "levels"))
def test_two_parties_show_no_splits_of_the_active_party_either(growth: dict[str, Any]) -> None:
    federation = small(rows=120, counts=(2, 2), **growth)
    simulation, seen = watched(hiding(federation))
    kinds: Counter[str] = Counter()
    for (_, kind, _), count in of("telco", seen).items():
        kinds[kind] += count
    assert kinds["split decision"] == kinds["split outcome"]
    assert splits(simulation, 0) and splits(simulation, 1)
    assert kinds["split decision"] >= splits(simulation, 0) + splits(simulation, 1)


def test_decoys_are_as_long_as_decisions_that_name_many_candidates() -> None:
    class Rounded(Plain):
        """Its sums are not compared, so that all candidates that tie are named."""

        traits = replace(Plain.traits, exact=False)

    federation = small(rows=120, counts=(1, 2, 2)).having(engine=Rounded())
    columns = {party: np.repeat(values, 10, axis=1) for party, values in federation.columns.items()}
    federation = replace(federation, columns=columns)
    lengths: dict[tuple[int, int], set[int]] = {}
    decided: list[SplitDecision] = []

    def tap(envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, SplitDecision):
            place, length = (body.tree, body.node), len(unframe(encode(envelope)).body)
            lengths.setdefault(place, set()).add(length)
            decided.append(body)

    ran(hiding(federation), tap=tap)
    assert any(len(body.candidates.numpy()) > 9 for body in decided if not body.is_decoy)
    assert all(len(of_node) == 1 for of_node in lengths.values())


def test_a_party_is_asked_about_nodes_that_nobody_splits() -> None:
    federation = small(rows=120, counts=(2, 2), gamma=2.0)
    asked: dict[str, set[tuple[int, int]]] = {"sums": set(), "splits": set()}

    def tap(envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, HistogramRequest):
            asked["sums"] |= {(body.tree, query.node) for query in body.nodes}
        elif isinstance(body, SplitDecision):
            asked["splits"].add((body.tree, body.node))

    simulation = ran(hiding(federation), tap=tap)
    assert asked["splits"] == asked["sums"]
    assert len(asked["splits"]) > splits(simulation, 0) + splits(simulation, 1)


@pytest.mark.parametrize(
    "params",
    [
        {"active_only_trees": 1},
        {"subsample": 0.6, "colsample_bynode": 0.5},
        {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 6},
        {"max_leaves": 4},
        {"max_depth": 1},
    ],
)
def test_the_model_is_that_without_decoys(params: dict[str, Any]) -> None:
    federation = small(rows=120, counts=(1, 2, 2), num_boost_round=3).having(**params)
    assert shares(ran(hiding(federation))) == shares(federation.train())


def test_answers_to_decoys_of_another_length_end_the_session() -> None:
    federation = small(rows=120, counts=(1, 2, 2))
    decoys: set[tuple[str, int, int]] = set()

    def rewrite(envelope: Envelope) -> Body:
        body, header = envelope.body, envelope.header
        if isinstance(body, SplitDecision) and body.is_decoy:
            decoys.add((header.recipient, body.tree, body.node))
        if isinstance(body, SplitOutcome) and (header.sender, body.tree, body.node) in decoys:
            return body.model_copy(update={"left": Bitmap.of(np.zeros(3, np.bool_))})
        return body

    simulation = ran(hiding(federation), rewrite=rewrite)
    assert "directions for 3 rows of node 1, which has 120" in str(simulation.errors[ACTIVE])


def test_a_decoy_that_was_not_announced_is_refused() -> None:
    federation = small(rows=120, counts=(1, 2, 2))
    simulation = ran(
        hiding(federation),
        rewrite=lambda envelope: (
            envelope.body.model_copy(update={"decoys": False})
            if isinstance(envelope.body, TrainingOpen)
            else envelope.body
        ),
    )
    assert "by a candidate that it lacks" in " ".join(map(str, simulation.errors.values()))


def test_engines_that_learn_directions_by_questions_are_refused_by_name() -> None:
    federation = small().having(engine=Lattice())
    with pytest.raises(
        ConfigError, match="decoys: engine 'lattice' asks for directions by extra questions"
    ):
        hiding(federation)


def test_decoys_through_delays_losses_and_repetitions() -> None:
    federation = small(rows=120, counts=(1, 2, 2))
    calm = shares(federation.train())
    for seed in range(5):
        assert shares(ran(hiding(federation), seed=seed, link=Link(0.1, 0.1, 1.0))) == calm


@pytest.mark.parametrize("who", [ACTIVE, "telco"])
def test_what_a_party_records_is_read_as_without_decoys(who: str) -> None:
    federation = small(rows=120, counts=(1, 2, 2))
    parts = []
    for machines in (federation.training(), hiding(federation)):
        recorded: list[Envelope] = []

        def tap(envelope: Envelope, recorded: list[Envelope] = recorded) -> None:
            if who in (envelope.header.sender, envelope.header.recipient):
                recorded.append(envelope)

        ran(machines, tap=tap)
        view = SessionView(Recording(who, tuple(recorded)))
        parts.append(
            {
                (number, node): [rows.tolist(), left.tolist()]
                for number, tree in view.trees.items()
                for (_, node), (rows, left) in tree.parts.items()
            }
        )
    assert parts[0] == parts[1]


async def test_daemons_train_with_decoys_and_their_transcripts_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    await daemons.ask("bank", "train", job=job("hidden", decoys=True))
    for party in PARTIES[1:]:
        assert daemons.verified(party).trees == 2
    await daemons.ask("bank", "train", job=job("usual"))
    models = daemons.daemons["bank"].parts.context.model_store
    hidden, usual = (
        [tree.model_dump_json() for tree in models.active(model).trees]
        for model in ("hidden", "usual")
    )
    assert hidden == usual
    await daemons.stop()


async def test_a_job_with_decoys_and_lattice_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    with pytest.raises(DaemonError, match="decoys: engine 'lattice'"):
        await daemons.ask("bank", "train", job=job("hidden", engine="lattice", decoys=True))
    assert not await daemons.daemons["bank"].parts.context.session_store.running()
    await daemons.stop()


def job(model: str, **changes: Any) -> dict[str, Any]:
    """What is asked of the bank's daemon."""
    params = {"num_boost_round": 2, "max_depth": 3, "max_bin": 8}
    asked = {"model": model, "engine": "plain", "params": params, **changes}
    return TrainingJob.model_validate(asked).model_dump(mode="json")
