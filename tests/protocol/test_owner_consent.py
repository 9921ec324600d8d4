"""Sessions that wait for an owner: nothing is read before the yes, and a no ends it everywhere."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import pytest

from fedmq.computation import Computation
from fedmq.errors import ProtocolError, Refused
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.messages.training import SessionAccept
from fedmq.protocol.events import ConsentPending, Effect, Received
from fedmq.protocol.machine import Machine, PeerConsents, Table, Transition
from tests.how_often import each_seed
from tests.protocol.alignment import alignments
from tests.protocol.federation import ACTIVE, ran, shares, small
from tests.simulator import Link, Simulation

LATE = 10_000.0
"""Seconds after which an owner answers: longer than the session may stand still otherwise."""


class Loaded:
    """A computation that remembers whether it was run."""

    label = "_Loaded"

    def __init__(self, inner: Computation) -> None:
        self.inner = inner
        self.at: list[int] = []

    def run(self) -> object:
        self.at.append(1)
        return self.inner.run()


@each_seed(6)
def test_a_training_waits_for_all_owners_and_ends_with_the_same_model(seed: int) -> None:
    federation = small()
    asked = federation.having(asked={"telco": 86_400, "shop": 60})
    link = Link(drop=0.1 * (seed % 3), repeat=0.2, delay=0.2 * (seed % 2))
    owners = {"telco": (LATE, ""), "shop": (5.0, "")}
    simulation = ran(asked.training(), seed=seed, link=link, owners=owners)
    assert shares(simulation) == shares(federation.train())
    awaited = [awaited for party, awaited in simulation.consents if party == ACTIVE]
    assert set(awaited[:2]) == {ConsentPending("telco", 86_400), ConsentPending("shop", 60)}
    assert awaited[2:] == [ConsentPending("shop", 0), ConsentPending("telco", 0)]


def test_an_alignment_waits_for_all_owners() -> None:
    owners = alignments.people(3)
    machines = alignments.machines(owners, asked={"telco": 60, "retail": 60})
    ran(machines, owners={"telco": (LATE, ""), "retail": (1.0, "")})
    assert {len(owner.stored) for owner in owners.values()} == {len(owners["bank"].stored)}
    assert owners["bank"].stored


@pytest.mark.parametrize("refusal", ["", "telco refused: ask in May"])
def test_nothing_is_read_before_the_owner_has_answered(refusal: str) -> None:
    federation = small()
    machines = federation.having(asked={"telco": 60}).training()
    telco = machines["telco"]
    loaded = telco._load = Loaded(telco._load)  # type: ignore[attr-defined]
    simulation = Simulation(machines, owners={"telco": (30.0, refusal)})
    simulation.run()
    assert bool(loaded.at) == (not refusal)


def test_a_refusal_reaches_the_active_party_alone() -> None:
    said: list[tuple[str, str, object]] = []
    simulation = ran(
        small().having(asked={"telco": 60}).training(),
        owners={"telco": (30.0, "telco refused: ask in May")},
        tap=lambda sent: said.append((sent.header.sender, sent.header.recipient, sent.body)),
    )
    error = simulation.errors[ACTIVE]
    assert isinstance(error, Refused)
    assert str(error) == "telco refused the session: telco refused: ask in May"
    assert "May" not in str(simulation.errors["shop"])
    bodies = [body for sender, _, body in said if sender == "telco"]
    assert ConsentPendingMessage(seconds=60) in bodies
    assert SessionRefuse(reason="telco refused: ask in May") in bodies
    assert not any(isinstance(body, SessionAccept) for body in bodies)


class _Phase(Enum):
    OPENING = "peers are asked"
    FAILED = "no session"


class _Opening(Machine):
    """An active party's machine that does nothing but wait for what its peers say."""

    TABLE: ClassVar[Table] = {(_Phase.OPENING, ConsentPendingMessage): Transition(_Phase.OPENING)}
    PARTS = (PeerConsents,)
    failed_state = _Phase.FAILED

    def __init__(self) -> None:
        super().__init__(_Phase.OPENING, ("telco", "shop"))
        self.consents = PeerConsents(self)
        self._attach(self.consents)

    def hears_that_the_owner_is_asked(self, peer: str) -> list[Effect]:
        return self.handle(Received(peer, ConsentPendingMessage(seconds=60)))

    def hears_that_it_takes_part(self, peer: str) -> list[Effect]:
        self._effects = []
        self.consents.answered(peer)
        return self._effects


def test_who_asks_twice_or_after_its_answer_breaks_the_protocol() -> None:
    bank = _Opening()
    assert bank.hears_that_the_owner_is_asked("telco") == [ConsentPending("telco", 60)]
    assert bank.consents
    with pytest.raises(ProtocolError, match="asked before"):
        bank.hears_that_the_owner_is_asked("telco")
    assert bank.hears_that_it_takes_part("telco") == [ConsentPending("telco", 0)]
    assert bank.hears_that_it_takes_part("shop") == []
    for party in ("telco", "shop"):
        with pytest.raises(ProtocolError, match="asked before"):
            bank.hears_that_the_owner_is_asked(party)
    assert not bank.consents
