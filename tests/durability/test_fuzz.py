"""Whatever is sent to a session, it goes on or ends with a reason: no other exception, no hang."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import FedmqError, MessageError
from fedmq.messages.body import Body, SessionRefuse
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import SessionAccept
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    Pause,
    PeerLost,
    Resume,
    RunPlan,
    Start,
    TimerFired,
)
from fedmq.protocol.session import (
    Acknowledgement,
    Address,
    Decision,
    Mailbox,
    Probing,
    Resend,
    RetryPolicy,
    Session,
    StoredState,
    decide,
)
from tests.how_often import examples
from tests.messages.bodies import STRATEGIES, bodies, envelopes
from tests.protocol.federation import ACTIVE, small
from tests.simulator import Hang, Simulation

_PARTIES = (ACTIVE, "telco", "shop")
_MOST_BYTES = 64 * 2**20


def alike(body: Body) -> st.SearchStrategy[Body]:
    """Bodies of the same kind as ``body``, so that a fault in one is found late."""
    return st.one_of(bodies, STRATEGIES[type(body)])


@examples(60)
@given(st.integers(0, 120), st.booleans(), st.data())
def test_a_message_that_is_something_else_ends_in_a_model_or_a_reason(
    number: int, scoring: bool, data: st.DataObject
) -> None:
    federation = small(rows=20)
    machines = federation.training()
    if scoring:
        calm = Simulation(machines)
        calm.run()
        machines = federation.scoring(calm.results, [str(row) for row in range(20)])
    counted = 0

    def rewrite(envelope: Envelope) -> Body:
        nonlocal counted
        counted += envelope.header.sequence > 0
        if counted == number and envelope.header.sequence > 0:
            return data.draw(alike(envelope.body))
        return envelope.body

    simulation = Simulation(machines, rewrite=rewrite)
    try:
        simulation.run()  # what a machine raises fails the test, and a hang
    except Hang:  # but for waits that a daemon ends: it opens another attempt, or says that a
        # session which has ended is unknown
        machines_now = [session.machine for session in simulation.sessions.values()]
        is_interrupted = any(machine.state is machine.interrupted_state for machine in machines_now)
        assert is_interrupted or ACTIVE in simulation.results

    for error in simulation.errors.values():
        assert isinstance(error, FedmqError)
        assert str(error)


def test_who_is_taken_to_have_refused_hears_of_the_end() -> None:
    machines = small(rows=20).training()

    def rewrite(envelope: Envelope) -> Body:
        is_consent = isinstance(envelope.body, SessionAccept) and envelope.header.sender == "telco"
        return SessionRefuse(reason="no") if is_consent else envelope.body

    simulation = Simulation(machines, rewrite=rewrite)
    simulation.run()
    assert set(simulation.errors) == set(_PARTIES)


@st.composite
def heard(draw: st.DrawFn) -> Any:
    """Something that may happen to the bank's session, in or out of place."""
    envelope = draw(envelopes(bodies))
    header = envelope.header.model_copy(
        update={
            "federation": "demo",
            "session": "session",
            "attempt": 1,
            "sender": draw(st.sampled_from([*_PARTIES, "stranger"])),
            "recipient": ACTIVE,
            "sequence": draw(st.integers(0, 6) | st.integers(0, 2**62 - 1)),
            "acknowledged": draw(st.integers(0, 3) | st.integers(0, 2**62 - 1)),
        }
    )
    timers = st.sampled_from([Resend("telco"), Probing("telco"), Acknowledgement("telco")])
    return draw(
        st.one_of(
            st.just(Arrived(Envelope(header, envelope.body))),
            timers.map(TimerFired),
            st.sampled_from([Pause(), Resume(), Cancelled("enough")]),
        )
    )


@examples(200)
@given(st.lists(heard(), max_size=25))
def test_a_session_takes_anything_in_any_order(events: list[Any]) -> None:
    machine = small(rows=30).training()[ACTIVE]
    address = Address("demo", "session", 1, ACTIVE)
    random = np.random.default_rng(0)
    session = Session(machine, Mailbox(address, machine.peers, RetryPolicy(), random))
    session.handle(Start())
    tracemalloc.start()
    try:
        for event in events:
            before = machine.state
            try:
                effects = session.handle(event)
            except MessageError:
                assert machine.state is before  # what does not belong here changes nothing
            except FedmqError:
                assert isinstance(event, Pause | Resume)  # its owner is told at once
            else:
                assert not any(isinstance(effect, PeerLost | RunPlan) for effect in effects)
        assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES
    finally:
        tracemalloc.stop()


@examples(300)
@given(
    envelopes(bodies),
    st.none() | st.builds(StoredState, st.integers(1, 2**31 - 1), st.booleans()),
    st.booleans(),
    st.booleans(),
)
def test_every_unexpected_message_has_a_fate(
    envelope: Envelope, standing: StoredState | None, opens: bool, drives: bool
) -> None:
    decided = decide(envelope.header, envelope.body, standing, opens=opens, drives=drives)

    if standing is not None and envelope.header.attempt < standing.attempt:
        assert decided is Decision.DROP
    if decided is Decision.JOIN:
        assert opens
        assert standing is None or not standing.failed
    if decided is Decision.GO_ON:
        assert drives
