"""The tables are all there is: every state is reached, and what they lack is refused."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.changes import TargetScore
from fedmq.boosting.params import OLDEST
from fedmq.errors import FedmqError, ProtocolError
from fedmq.messages.codec import KINDS
from fedmq.privacy.engines.lattice import Lattice
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
    ConsentDecided,
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
from fedmq.protocol.machine import REFUSES, Done, Key, Machine, Transition, When, Yields, event_type
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import PassiveModelRequest
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.sealed_active import SealedBatch
from fedmq.protocol.overlap import passing_lists as passing_lists
from fedmq.protocol.overlap.active import ActiveOverlap
from fedmq.protocol.overlap.passive import PassiveOverlap
from fedmq.protocol.screen.active import ActiveScreen
from fedmq.protocol.screen.active_pair import ActivePair
from fedmq.protocol.screen.passive import PassiveScreen
from fedmq.protocol.screen.passive_pair import PassivePair
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from tests.messages.bodies import example
from tests.protocol.alignment import alignments
from tests.protocol.best_engine import BestOfAll
from tests.protocol.federation import ACTIVE, Federation, ran, small
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.protocol.inference.test_changes import changing
from tests.protocol.inference.test_explained import IDS, explaining
from tests.protocol.overlap import counts
from tests.protocol.screen import screens
from tests.simulator import Link, Simulation

MACHINES: list[type[Machine]] = [
    ActiveAlignment,
    PassiveAlignment,
    ActiveOverlap,
    PassiveOverlap,
    ActiveScreen,
    PassiveScreen,
    ActivePair,
    PassivePair,
    ActiveTraining,
    PassiveTraining,
    ActiveInference,
    PassiveInference,
]
SERVING: list[type[Machine]] = [
    OnlineBatch,
    SealedBatch,
    ActiveDeployment,
    PassiveDeployment,
    ActiveModelRequest,
    PassiveModelRequest,
]
"""Their own tests drive these; here their tables are looked at."""
LOCAL: list[Event] = [
    Start(),
    PlanReturned(0, Ended(None)),
    ComputationFailed(1, FedmqError("no")),
    PeerLost("telco", "gone"),
    Cancelled("enough"),
    Pause(),
    Resume(),
    ConsentDecided(),
]
machines = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
tables = pytest.mark.parametrize(
    "machine", [*MACHINES, *SERVING], ids=lambda machine: machine.__name__
)


def states(machine: type[Machine]) -> type[Enum]:
    return type(machine.failed_state)


def over(machine: type[Machine]) -> list[Enum]:
    """FINISHED and FAILED."""
    return list(states(machine))[-2:]


@cache
def everything(sender: str) -> tuple[Event, ...]:
    """One event of each class."""
    received = [Received(sender, example(kind)) for kind in KINDS.values()]
    return (*LOCAL, *received)


def test_every_machine_is_drawn() -> None:
    assert [drawing.table for drawing in diagram.MACHINES] == [
        machine.TABLE for machine in [*MACHINES, *SERVING]
    ]


@tables
def test_a_machine_handles_what_its_table_has_and_nothing_else(machine: type[Machine]) -> None:
    events = {key for _, key in machine.TABLE if isinstance(key, type)}
    assert machine.HANDLERS.keys() == events - {PlanReturned}


@tables
def test_every_handler_is_marked(machine: type[Machine]) -> None:
    kinds = (machine, *machine.PARTS)
    handlers = {name for kind in kinds for name in dir(kind) if name.startswith("_on_")}
    handlers -= {"_on_exchange"}
    assert handlers == {handler.__name__ for handler in machine.HANDLERS.values()}


@tables
def test_every_plan_and_condition_of_a_table_is_one_of_its_machine(machine: type[Machine]) -> None:
    keys = {key for _, key in machine.TABLE if not isinstance(key, type)}
    ground = sys.modules[Machine.__module__]
    kinds = [*machine.__mro__[:-1], *machine.PARTS]
    modules = {sys.modules[kind.__module__] for kind in kinds}
    modules -= {ground}
    named = {key for module in modules for key in vars(module).values() if isinstance(key, Done)}
    named |= {Yields(key.plan) for key in named}
    found = {key for module in modules for key in vars(module).values() if isinstance(key, When)}
    common = {key for key in vars(ground).values() if isinstance(key, When)}
    assert keys <= named | found | common
    assert {key for key in named | found if not isinstance(key, Yields)} - common <= keys


@tables
def test_every_state_can_be_reached(machine: type[Machine]) -> None:
    first, *_ = states(machine)
    reached = {first}
    for _ in states(machine):
        reached |= {
            transition.to for (state, _), transition in machine.TABLE.items() if state in reached
        }
    assert reached == set(states(machine))


@tables
def test_a_table_speaks_of_its_own_states_alone(machine: type[Machine]) -> None:
    for (state, _), transition in machine.TABLE.items():
        assert isinstance(state, states(machine))
        assert isinstance(transition.to, states(machine))


@tables
def test_what_is_over_stays_over(machine: type[Machine]) -> None:
    for (state, _), transition in machine.TABLE.items():
        if state in over(machine):
            assert transition == Transition(state, ignored=True)


@machines
def test_any_live_state_ends_when_the_session_breaks_down(machine: type[Machine]) -> None:
    breakdowns = (PeerLost, Cancelled, ComputationFailed, KINDS["abort"])
    for state, event in itertools.product(states(machine), breakdowns):
        aside = state is machine.interrupted_state and event in (PeerLost, ComputationFailed)
        if state not in over(machine) and not aside:
            end = machine.TABLE[state, event].to
            if event is ComputationFailed and (state, REFUSES) in machine.TABLE:
                assert end is state  # it looks why, and refuses
                end = machine.TABLE[state, REFUSES].to
            assert end is machine.failed_state


@machines
def test_any_live_state_is_interrupted_by_a_party_that_was_restarted(
    machine: type[Machine],
) -> None:
    for state in states(machine):
        if state not in (*over(machine), machine.interrupted_state):
            step = machine.TABLE[state, KINDS["session unknown"]]
            assert step.to is (machine.interrupted_state or machine.failed_state)


@machines
def test_what_is_interrupted_only_waits_or_ends(machine: type[Machine]) -> None:
    for (state, event), step in machine.TABLE.items():
        if state is machine.interrupted_state and event not in (Cancelled, KINDS["abort"]):
            assert step == Transition(state, ignored=True)


@tables
def test_whatever_is_legal_while_it_lives_is_let_pass_when_it_is_over(
    machine: type[Machine],
) -> None:
    for event in {key for _, key in machine.TABLE if isinstance(key, type)} - {Start}:
        for state in over(machine):
            assert (state, event) in machine.TABLE


# Machines in the middle of their work


def federations() -> Iterator[Federation]:
    """Those first that take the transitions which few others do."""
    yield small(counts=(0, 3)).having(smallest_node={"telco": 1000})
    yield small(counts=(0, 3)).having(engine=Lattice())
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
    yield continuing(small(counts=(1, 2, 2)))
    yield continuing(small(counts=(1, 2, 2))).having(refreshes=True)


def continuing(federation: Federation) -> Federation:
    """The same, with a model that is continued."""
    return federation.having(earlier=federation.train().results)


Watch = Callable[[dict[str, Machine]], dict[str, Machine]]


def watched(see: Callable[[str, Machine, Event], None]) -> Iterator[None]:
    """Run sessions of many kinds, one at each step; ``see`` each machine before each event."""

    def watch(machines: dict[str, Machine]) -> dict[str, Machine]:
        for party, machine in machines.items():
            handle = machine.handle
            machine.handle = (  # type: ignore[method-assign]
                lambda event, party=party, machine=machine, handle=handle: (
                    see(party, machine, event) or handle(event)
                )
            )
        return machines

    for _ in itertools.zip_longest(
        disturbed(watch),
        asked(watch),
        chained(watch),
        sealed(watch),
        trained_and_scored(watch),
        aligned(watch),
        screened(watch),
        paused(watch),
    ):
        yield


def chained(watch: Watch) -> Iterator[None]:
    """A training whose sums nobody sees, by two passive parties one after the other."""
    few = {"max_depth": 1, "max_bin": 4, "num_boost_round": 1, "xgboost_arithmetic": OLDEST}
    hiding = small(counts=(1, 1, 1), **few).having(engine=Lattice(sums="hidden"))
    ran(watch(hiding.training()))
    yield


def sealed(watch: Watch) -> Iterator[None]:
    """Scores of which nobody learns the way, by two passive parties one after the other."""
    federation = small()
    simulation = ran(federation.training())
    ran(watch(federation.sealed_scoring(simulation.results)), link=Link(delay=1.0))
    yield


def trained_and_scored(watch: Watch) -> Iterator[None]:
    """Trainings of many kinds, and the scores of their models."""
    for seed, federation in itertools.product(range(4), federations()):
        link = Link(repeat=0.2, delay=3.0 * (seed % 2))
        simulation = ran(watch(federation.training()), seed=seed, link=link)
        scoring = federation.scoring(simulation.results, [str(row) for row in range(80)])
        ran(watch(scoring), seed=seed, link=link)
        ran(watch(explaining(federation, simulation.results, IDS)), seed=seed, link=link)
        if federation.params.outputs == 1:
            target = TargetScore(0.5, bool(seed % 2))
            changes = changing(federation, simulation.results, seed, target)
            ran(watch(changes), seed=seed, link=link)
        yield


def aligned(watch: Watch) -> Iterator[None]:
    """Alignments over bad links."""
    for seed in (3, 6):  # here a party hears of the list of the active one before it may begin
        parties = alignments.machines(alignments.people(3, seed))
        ran(watch(parties), seed=seed, link=Link(drop=0.4, repeat=0.2, delay=0.2))
        parties = counts.machines(alignments.people(4, seed))
        ran(watch(parties), seed=seed, link=Link(drop=0.4, repeat=0.2, delay=0.2))
        yield
    for seed, count in itertools.product(range(6), (2, 3, 4)):
        owners = alignments.people(count, seed)
        owners["bank"].rows_of = np.full(len(owners["bank"].names), 2, np.uint32)
        parties = alignments.machines(owners)
        ran(watch(parties), seed=seed, link=Link(drop=0.2, repeat=0.2, delay=1.0))
        parties = counts.machines(alignments.people(count, seed))
        ran(watch(parties), seed=seed, link=Link(drop=0.2, repeat=0.2, delay=1.0))
        yield


def screened(watch: Watch) -> Iterator[None]:
    """Screens that measure, that only describe, that correlate, and that hide sums."""
    for seed, measured in itertools.product(range(3), (True, False)):
        parties = screens.machines(
            measured=measured, correlated=seed == 1, classes=(2, 4, 0)[seed % 3]
        )
        ran(watch(parties), seed=seed, link=Link(drop=0.2, repeat=0.2, delay=1.0))
        ran(watch(screens.pair()), seed=seed, link=Link(drop=0.2, repeat=0.2, delay=1.0))
        yield
    hidden = screens.machines(least_steps=1)
    ran(watch(hidden), link=Link(drop=0.2, repeat=0.2, delay=1.0))
    yield


def disturbed(watch: Watch) -> Iterator[None]:
    """Sessions at whose beginning a peer does not know of them, or a plan returns at once."""
    federation = small()
    simulation = ran(federation.training())
    for machines in (
        federation.training(),
        federation.scoring(simulation.results),
        alignments.machines(alignments.people(3)),
        counts.machines(alignments.people(3)),
        screens.machines(),
        screens.pair(),
    ):
        for machine in watch(machines).values():
            machine.handle(Received(machine.peers[0], KINDS["session unknown"]()))
            machine.handle(PlanReturned(0, Ended(None)))
        yield


def asked(watch: Watch) -> Iterator[None]:
    """Sessions of which the owner of telco has to approve."""
    owners = {"telco": (30.0, "")}
    ran(watch(small().having(asked={"telco": 60}).training()), owners=owners)
    ran(watch(alignments.machines(alignments.people(3), asked={"telco": 60})), owners=owners)
    ran(watch(counts.machines(alignments.people(3), asked={"telco": 60})), owners=owners)
    ran(watch(screens.machines(asked=60)), owners=owners)
    ran(watch(screens.pair(asked=60)), owners=owners)
    yield


def paused(watch: Watch) -> Iterator[None]:
    """Trainings whose owner pauses them twice, and lets them go on, at all sorts of times."""
    plain = small(num_boost_round=3)
    more = continuing(plain)
    preparing = plain.having(engine=BestOfAll(plain.params))
    for seed in (25, 12, *range(60)):  # these two meet states that pass in a moment
        federation, length = ((plain, 15), (preparing, 60), (more, 8))[seed % 3]
        random = np.random.default_rng(seed)
        simulation = Simulation(watch(federation.training()), seed=seed, link=Link(delay=1.0))
        for event in (Pause(), Pause(), Resume(), Resume()):
            simulation.cause(random.random() * length, ACTIVE, event)
        for second in (1.0, 40.0):
            simulation.cause(length + second, ACTIVE, Resume())
        simulation.run()
        yield


def test_every_transition_but_the_failing_and_interrupting_ones_is_taken_by_some_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.protocol.inference.active._IDS_PER_PIECE", 30)
    monkeypatch.setattr(blinded_lists, "POINTS", 7)
    monkeypatch.setattr(blinded_lists, "_PLACES", 5)
    monkeypatch.setattr(blinded_lists, "IN_ONE_GO", 1)
    monkeypatch.setattr(passing_lists, "POINTS", 7)
    monkeypatch.setattr(passing_lists, "IN_ONE_GO", 1)
    monkeypatch.setattr("fedmq.privacy.lattice.query.LARGEST_PIECE_BYTES", 1)
    monkeypatch.setattr("fedmq.privacy.lattice.passive._PIECES_AT_ONCE", 1)
    taken: set[tuple[type, Enum, Key]] = set()
    move = Machine._move

    def tabled_as(machine: Machine) -> type[Machine]:
        return next(kind for kind in MACHINES if isinstance(machine, kind))

    def see(_: str, machine: Machine, event: Event) -> None:
        taken.add((tabled_as(machine), machine.state, event_type(event)))

    def moved(machine: Machine, key: Done | Yields | When) -> None:
        taken.add((tabled_as(machine), machine.state, key))
        move(machine, key)

    monkeypatch.setattr(Machine, "_move", moved)
    tabled = {
        (machine, state, key)
        for machine in MACHINES
        for (state, key), transition in machine.TABLE.items()
        if transition.to not in (machine.failed_state, machine.interrupted_state)
        and state not in over(machine)
        and (key is not ComputationFailed)
    }
    for _ in watched(see):
        if tabled <= taken:
            break
    never = {
        f"{machine.__name__}: {state.name} --{key}-->" for machine, state, key in tabled - taken
    }
    assert never == set()


def test_a_refused_event_is_told_with_what_came_before_it() -> None:
    machine = small().training()[ACTIVE]
    machine.handle(Start())
    machine.handle(Pause())
    with pytest.raises(ProtocolError) as refused:
        machine.handle(Received("telco", KINDS["session unknown"]()))
        machine.handle(Start())
    assert str(refused.value) == "ActiveTraining in state INTERRUPTED cannot take Start"
    assert refused.value.__notes__ == ["before it came: Start, Pause, SessionUnknown from telco"]


def test_what_a_table_lacks_is_refused_and_leaves_the_machine_as_it_was() -> None:
    met: dict[tuple[type, Enum], Machine] = {}

    def see(party: str, machine: Machine, _: Event) -> None:
        key = (type(machine), machine.state)
        if key in met:
            return
        met.update({(kind, machine.state): machine for kind in type(machine).__mro__})
        before = snapshot(machine)
        for event in everything("telco" if party == ACTIVE else ACTIVE):
            if (machine.state, event_type(event)) not in machine.TABLE:
                with pytest.raises(ProtocolError, match=f"in state {machine.state.name} cannot"):
                    type(machine).handle(machine, event)
        assert snapshot(machine) == before

    live = {(machine, state) for machine in MACHINES for state in states(machine)} - {
        (machine, state) for machine in MACHINES for state in over(machine)
    }
    for _ in watched(see):
        if met.keys() >= live:
            break
    assert met.keys() >= live


@machines
def test_what_comes_after_the_end_changes_nothing(machine: type[Machine]) -> None:
    ended: dict[type, list[Machine]] = {kind: [] for kind in MACHINES}
    federation = small()
    training = federation.training()
    simulation = ran(training)
    scoring = federation.scoring(simulation.results)
    ran(scoring)
    aligning = alignments.machines(alignments.people(3))
    ran(aligning)
    counting = counts.machines(alignments.people(3))
    ran(counting)
    screening = screens.machines()
    ran(screening)
    pairing = screens.pair()
    ran(pairing)
    for ended_machine in (
        *pairing.values(),
        *screening.values(),
        *counting.values(),
        *aligning.values(),
        *training.values(),
        *scoring.values(),
    ):
        ended[type(ended_machine)].append(ended_machine)
    failing = federation.training() | {
        f"scoring {k}": v for k, v in federation.scoring(simulation.results).items()
    }
    failing |= {f"aligning {k}": v for k, v in alignments.machines(alignments.people(3)).items()}
    failing |= {f"counting {k}": v for k, v in counts.machines(alignments.people(3)).items()}
    failing |= {f"screening {k}": v for k, v in screens.machines().items()}
    failing |= {f"pairing {k}": v for k, v in screens.pair().items()}
    for ended_machine in failing.values():
        ended_machine.handle(Cancelled("enough"))
        ended[type(ended_machine)].append(ended_machine)
    for ended_machine in ended[machine]:
        for event in everything(ended_machine.peers[0]):
            before = snapshot(ended_machine)
            if (ended_machine.state, event_type(event)) in machine.TABLE:
                assert ended_machine.handle(event) == []
            else:
                with pytest.raises(ProtocolError):
                    ended_machine.handle(event)
            assert snapshot(ended_machine) == before
    assert {ended_machine.state for ended_machine in ended[machine]} == set(over(machine))


def snapshot(machine: Machine) -> Any:
    """All that a machine holds, in a form that can be compared, and shares nothing with it."""
    held = {name: value for name, value in vars(machine).items() if name != "handle"}
    return _frozen(held, set())


def _frozen(value: Any, seen: set[int]) -> Any:
    """``seen``: objects that were met before, as the parts of a machine know the machine."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return [(key, _frozen(held, seen)) for key, held in value.items()]
    if isinstance(value, list | tuple):
        return [_frozen(held, seen) for held in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if type(value).__module__.startswith(("fedmq", "tests")) and not isinstance(value, Enum):
        if id(value) in seen:
            return type(value).__name__
        seen.add(id(value))
        held = {name: getattr(value, name, None) for name in _fields(value)}
        return (type(value).__name__, _frozen(held, seen))
    return copy.copy(value) if isinstance(value, int | float | str | bytes) else id(value)


def _fields(value: Any) -> list[str]:
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    return sorted({*getattr(value, "__dict__", {}), *slots} - {"__weakref__", "__dict__"})
