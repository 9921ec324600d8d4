"""The tables are all there is: every state is reached, and what they lack is refused."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedmq.errors import FedmqError, ProtocolError
from fedmq.messages.codec import KINDS
from fedmq.privacy.plan import Ended
from fedmq.protocol import diagram
from fedmq.protocol.alignment import blinded_lists as blinded_lists
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
from fedmq.protocol.events import (
    Cancelled,
    ComputationFailed,
    Event,
    Pause,
    PeerLost,
    PlanReturned,
    Received,
    Resume,
    Start,
)
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.passive import PassiveInference
from fedmq.protocol.machine import Machine, event_type
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.table import Transition
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.states import PassiveTrainingState
from tests.messages.bodies import example
from tests.protocol.alignment import alignments
from tests.protocol.best_engine import BestOfAll
from tests.protocol.federation import ACTIVE, Federation, ran, small
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.simulator import Link, Simulation

MACHINES: list[type[Machine]] = [
    ActiveAlignment,
    PassiveAlignment,
    ActiveTraining,
    PassiveTraining,
    ActiveInference,
    PassiveInference,
]
SERVING: list[type[Machine]] = [OnlineBatch, ActiveDeployment, PassiveDeployment]
"""Their own tests drive these; here their tables are looked at."""
LOCAL: list[Event] = [
    Start(),
    PlanReturned(1, Ended(None)),
    ComputationFailed(1, FedmqError("no")),
    PeerLost("telco", "gone"),
    Cancelled("enough"),
    Pause(),
    Resume(),
]
machines = pytest.mark.parametrize("machine", MACHINES, ids=lambda each: each.__name__)
tables = pytest.mark.parametrize("machine", [*MACHINES, *SERVING], ids=lambda each: each.__name__)


def states(machine: type[Machine]) -> type[Enum]:
    return type(machine.failed_state)


def over(machine: type[Machine]) -> list[Enum]:
    """FINISHED and FAILED."""
    return list(states(machine))[-2:]


@cache
def everything(sender: str) -> tuple[Event, ...]:
    """One event of each class."""
    said = [Received(sender, example(kind)) for kind in KINDS.values()]
    return (*LOCAL, *said)


def test_every_machine_is_drawn() -> None:
    assert [each.table for each in diagram.MACHINES] == [
        each.TABLE for each in [*MACHINES, *SERVING]
    ]


@tables
def test_every_handler_of_a_table_exists(machine: type[Machine]) -> None:
    for transition in machine.TABLE.values():
        assert callable(getattr(machine, transition.handler))


@tables
def test_every_handler_of_a_machine_stands_in_its_table(machine: type[Machine]) -> None:
    handlers = {name for name in vars(machine) if name.startswith("_on_")} - {"_on_exchange"}
    assert handlers <= {transition.handler for transition in machine.TABLE.values()}


@tables
def test_every_state_can_be_reached(machine: type[Machine]) -> None:
    first, *_ = states(machine)
    reached = {first}
    for _ in states(machine):
        reached |= {
            target
            for (state, _), transition in machine.TABLE.items()
            if state in reached
            for target in transition.to
        }
    assert reached == set(states(machine))


@tables
def test_a_table_speaks_of_its_own_states_alone(machine: type[Machine]) -> None:
    for (state, _), transition in machine.TABLE.items():
        assert isinstance(state, states(machine))
        assert all(isinstance(target, states(machine)) for target in transition.to)


@tables
def test_what_is_over_stays_over(machine: type[Machine]) -> None:
    for (state, _), transition in machine.TABLE.items():
        if state in over(machine):
            assert transition == Transition("_ignore", (state,))


@machines
def test_any_live_state_ends_when_the_session_breaks_down(machine: type[Machine]) -> None:
    breakdowns = (PeerLost, Cancelled, ComputationFailed, KINDS["abort"])
    for state, event in itertools.product(states(machine), breakdowns):
        aside = state is machine.interrupted_state and event in (PeerLost, ComputationFailed)
        if state not in over(machine) and not aside:
            ends = set(machine.TABLE[state, event].to)
            if (state, event) == (PassiveTrainingState.PREPARING, ComputationFailed):
                ends.discard(machine.interrupted_state)  # its data may be in reach later
            assert ends == {machine.failed_state}


@machines
def test_any_live_state_is_interrupted_by_a_party_that_was_restarted(
    machine: type[Machine],
) -> None:
    for state in states(machine):
        if state not in (*over(machine), machine.interrupted_state):
            step = machine.TABLE[state, KINDS["session unknown"]]
            assert step.to == (machine.interrupted_state or machine.failed_state,)


@machines
def test_what_is_interrupted_only_waits_or_ends(machine: type[Machine]) -> None:
    for (state, event), step in machine.TABLE.items():
        if state is machine.interrupted_state and event not in (Cancelled, KINDS["abort"]):
            assert step == Transition("_ignore", (state,))


@tables
def test_whatever_is_legal_while_it_lives_is_let_pass_when_it_is_over(
    machine: type[Machine],
) -> None:
    for event in {event for _, event in machine.TABLE} - {Start}:
        for state in over(machine):
            assert (state, event) in machine.TABLE


# Machines in the middle of their work


def federations() -> Iterator[Federation]:
    for params in ({}, {"active_only_trees": 1}, {"max_depth": 1}):
        federation = small(**params)
        yield federation
        yield federation.having(engine=HiddenRows())
        yield federation.having(engine=BestOfAll(federation.params))
    alone = small(counts=(3, 0))
    yield alone.having(engine=BestOfAll(alone.params))
    yield small(counts=(3,))
    yield small(counts=(0, 3))
    yield small(num_boost_round=9, early_stopping_rounds=1)
    yield small(counts=(1, 2, 2)).having(smallest_node={"telco": 30, "shop": 1000})
    yield small(counts=(0, 3)).having(smallest_node={"telco": 1000})


def watched(see: Callable[[str, Machine, Event], None]) -> None:
    """Run sessions of many kinds; ``see`` each machine before each event."""

    def watch(machines: dict[str, Machine]) -> dict[str, Machine]:
        for party, machine in machines.items():
            handle = machine.handle
            machine.handle = (  # type: ignore[method-assign]
                lambda event, party=party, machine=machine, handle=handle: (
                    see(party, machine, event) or handle(event)
                )
            )
        return machines

    for federation, seed in itertools.product(federations(), range(4)):
        link = Link(repeat=0.2, delay=3.0 * (seed % 2))
        simulation = ran(watch(federation.training()), seed=seed, link=link)
        scoring = federation.scoring(simulation.results, [str(row) for row in range(80)])
        ran(watch(scoring), seed=seed, link=link)
    for count, seed in itertools.product((2, 3, 4), range(6)):
        parties = alignments.machines(alignments.people(count, seed))
        ran(watch(parties), seed=seed, link=Link(drop=0.2, repeat=0.2, delay=1.0))
    paused(watch)
    federation = small()
    simulation = ran(federation.training())
    for machines in (
        federation.training(),
        federation.scoring(simulation.results),
        alignments.machines(alignments.people(3)),
    ):
        for machine in watch(machines).values():
            machine.handle(Received(machine.peers[0], KINDS["session unknown"]()))
            machine.handle(PlanReturned(1, Ended(None)))


def paused(watch: Callable[[dict[str, Machine]], dict[str, Machine]]) -> None:
    """Trainings whose owner pauses them twice, and lets them go on, at all sorts of times."""
    plain = small(num_boost_round=3)
    preparing = plain.having(engine=BestOfAll(plain.params))
    for seed in range(60):
        federation, length = (plain, 15) if seed % 2 else (preparing, 60)
        random = np.random.default_rng(seed)
        simulation = Simulation(watch(federation.training()), seed=seed, link=Link(delay=1.0))
        for event in (Pause(), Pause(), Resume(), Resume()):
            simulation.cause(random.random() * length, ACTIVE, event)
        for second in (1.0, 40.0):
            simulation.cause(length + second, ACTIVE, Resume())
        simulation.run()


def test_every_transition_but_the_failing_and_interrupting_ones_is_taken_by_some_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.protocol.inference.active._IDS_PER_PIECE", 30)
    monkeypatch.setattr(blinded_lists, "_POINTS", 7)
    monkeypatch.setattr(blinded_lists, "_PLACES", 5)
    taken: set[tuple[type, Enum, type, Enum]] = set()
    before: dict[int, tuple[Machine, Enum, type]] = {}

    def see(_: str, machine: Machine, event: Event) -> None:
        if id(machine) in before:
            last, state, kind = before[id(machine)]
            taken.add((type(last), state, kind, last.state))
        before[id(machine)] = (machine, machine.state, event_type(event))

    watched(see)
    taken |= {(type(last), state, kind, last.state) for last, state, kind in before.values()}
    tabled = {
        (machine, state, event, target)
        for machine in MACHINES
        for (state, event), transition in machine.TABLE.items()
        for target in transition.to
        if target not in (machine.failed_state, machine.interrupted_state)
        and state not in over(machine)
    }
    never = {
        f"{machine.__name__}: {state.name} --{event.__name__}--> {target.name}"
        for machine, state, event, target in tabled - taken
    }
    assert never == set()


def test_what_a_table_lacks_is_refused_and_leaves_the_machine_as_it_was() -> None:
    met: dict[tuple[type, Enum], Machine] = {}

    def see(party: str, machine: Machine, _: Event) -> None:
        key = (type(machine), machine.state)
        if key in met:
            return
        met[key] = machine
        for event in everything("telco" if party == ACTIVE else ACTIVE):
            if (machine.state, event_type(event)) not in machine.TABLE:
                before = snapshot(machine)
                with pytest.raises(ProtocolError, match=f"in state {machine.state.name} cannot"):
                    type(machine).handle(machine, event)
                assert snapshot(machine) == before

    watched(see)
    live = {(machine, state) for machine in MACHINES for state in states(machine)} - {
        (machine, state) for machine in MACHINES for state in over(machine)
    }
    assert met.keys() >= live


@machines
def test_what_comes_after_the_end_changes_nothing(machine: type[Machine]) -> None:
    ended: dict[type, list[Machine]] = {each: [] for each in MACHINES}
    federation = small()
    training = federation.training()
    simulation = ran(training)
    scoring = federation.scoring(simulation.results)
    ran(scoring)
    aligning = alignments.machines(alignments.people(3))
    ran(aligning)
    for each in (*aligning.values(), *training.values(), *scoring.values()):
        ended[type(each)].append(each)
    failing = federation.training() | {
        f"scoring {k}": v for k, v in federation.scoring(simulation.results).items()
    }
    for each in (*alignments.machines(alignments.people(3)).values(), *failing.values()):
        each.handle(Cancelled("enough"))
        ended[type(each)].append(each)
    for each in ended[machine]:
        for event in everything(each.peers[0]):
            before = snapshot(each)
            if (each.state, event_type(event)) in machine.TABLE:
                assert each.handle(event) == []
            else:
                with pytest.raises(ProtocolError):
                    each.handle(event)
            assert snapshot(each) == before
    assert {each.state for each in ended[machine]} == set(over(machine))


def snapshot(machine: Machine) -> Any:
    """All that a machine holds, in a form that can be compared, and shares nothing with it."""
    return _frozen({name: value for name, value in vars(machine).items() if name != "handle"}, 0)


def _frozen(value: Any, depth: int) -> Any:
    assert depth < 40
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return [(key, _frozen(each, depth + 1)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_frozen(each, depth + 1) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if type(value).__module__.startswith(("fedmq", "tests")) and not isinstance(value, Enum):
        held = {name: getattr(value, name, None) for name in _fields(value)}
        return (type(value).__name__, _frozen(held, depth + 1))
    return copy.copy(value) if isinstance(value, int | float | str | bytes) else id(value)


def _fields(value: Any) -> list[str]:
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    return sorted({*getattr(value, "__dict__", {}), *slots} - {"__weakref__", "__dict__"})
