"""Who does not want, cannot, or breaks the rules: every party hears of it, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.computation import Given
from fedmq.errors import Aborted, ConfigError, DataError, MessageError, Refused
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.engine import AskedNode, Engine
from fedmq.privacy.engines import plain
from fedmq.privacy.engines.paillier import Paillier
from fedmq.protocol.events import Arrived
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import PassiveTable
from tests.how_often import seldom
from tests.protocol.best_engine import BestOfAll
from tests.protocol.failing_computation import FailingComputation
from tests.protocol.federation import (
    ACTIVE,
    OU,
    PAILLIER,
    PLAIN,
    Federation,
    names,
    ran,
    small,
)
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.simulator import Link, Simulation

# Refusals


def refusal_of(federation: Federation, **changes: Any) -> Simulation:
    """A training whose telco differs in ``changes`` from what it should be."""
    values = federation.columns["telco"]
    right: dict[str, Any] = {
        "load": Given(PassiveTable(values, names("telco", values.shape[1]), "the same ids")),
        "engine": lambda _: federation.engine,
    }
    telco = PassiveTraining("telco", ACTIVE, secret=1, **{**right, **changes})
    return ran({**federation.training(), "telco": telco})


def assert_refused(simulation: Simulation, reason: str) -> None:
    refused = simulation.errors[ACTIVE]
    assert isinstance(refused, Refused)
    assert str(refused).startswith("telco refused the session: ")
    assert reason in str(refused)
    heard = simulation.errors["shop"]
    # What telco lacks, or how much it holds, is between telco and the bank.
    assert str(heard) == "bank gave up: telco refused the session"
    assert isinstance(heard, Aborted)
    assert "telco" in simulation.errors
    assert not simulation.results


def test_another_number_of_rows_is_refused_with_both_numbers() -> None:
    federation = small()
    table = PassiveTable(federation.columns["telco"][:-1], names("telco", 2), "the same ids")
    simulation = refusal_of(federation, load=Given(table))
    assert_refused(simulation, "the rows do not match: telco holds 79, bank 80")


def test_other_ids_are_refused() -> None:
    federation = small()
    table = PassiveTable(federation.columns["telco"], names("telco", 2), "other ids")
    assert_refused(refusal_of(federation, load=Given(table)), "the ids do not match")


def test_an_engine_that_a_party_does_not_want_is_refused_with_its_reason() -> None:
    def find(name: str) -> Engine:
        raise Refused(f"engine {name} is not among those that telco allows")

    simulation = refusal_of(small(), engine=find)
    assert_refused(simulation, "engine plain is not among those that telco allows")


def test_a_key_that_is_too_short_for_a_party_is_refused() -> None:
    federation = small().having(engine=PAILLIER)
    simulation = refusal_of(federation, engine=lambda _: Paillier())
    assert_refused(simulation, "2048")


def test_data_that_cannot_be_loaded_is_a_refusal_and_its_reason_stays_at_home() -> None:
    failing = FailingComputation(DataError("telco.csv: row 7, column age: 'x' is no number"))
    simulation = refusal_of(small(), load=failing)
    assert isinstance(simulation.errors["telco"], DataError)
    assert_refused(simulation, "its own data could not be loaded")
    for party in (ACTIVE, "shop"):
        assert "age" not in str(simulation.errors[party])


def test_the_longest_reason_still_fits_its_message() -> None:
    def find(name: str) -> Engine:
        raise Refused("no " * 5000)

    assert_refused(refusal_of(small(), engine=find), "no no no")


@pytest.mark.parametrize("engine", [PLAIN, PAILLIER], ids=lambda engine: engine.name)
def test_arithmetic_that_fails_in_the_middle_ends_the_session_everywhere(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Any) -> None:
        raise DataError("bank: label in row 3 is 7")

    monkeypatch.setattr("fedmq.protocol.training.offers.ScoreCandidates.run", run)
    simulation = small().having(engine=engine).train()
    assert isinstance(simulation.errors[ACTIVE], DataError)
    for party in ("telco", "shop"):
        assert isinstance(simulation.errors[party], Aborted)
        assert "row 3" not in str(simulation.errors[party])


def test_a_key_without_room_for_the_sums_ends_the_session_before_anybody_is_asked() -> None:
    tiny = Paillier(key_bits=64, allow_weak_keys=True)
    simulation = small().having(engine=tiny).train()
    assert isinstance(simulation.errors[ACTIVE], ConfigError)
    assert "key_bits" in str(simulation.errors[ACTIVE])
    assert set(simulation.errors) == {ACTIVE}


# Breaches

Forgery = Callable[[Any], Body]


def _rewritten(kind: type[Body], forge: Forgery) -> Callable[[Envelope], Body]:
    return lambda sent: forge(sent.body) if isinstance(sent.body, kind) else sent.body


def _with(**changes: Any) -> Forgery:
    return lambda body: type(body)(**{**dict(body), **changes})


def _shifted(name: str, by: int = 1) -> Forgery:
    return lambda body: type(body)(**{**dict(body), name: getattr(body, name) + by})


def _payload(**values: Any) -> Forgery:
    return lambda body: type(body)(**{**dict(body), "payload": pack_payload(values)})


def _beyond_the_rows(body: Any) -> Body:
    return _with(rows=Array.of(body.rows.numpy() + np.uint32(80)))(body)


SHORT = Bitmap.of(np.ones(3, np.bool_))
STRAY = training.SplitOutcome(tree=0, node=1, record=0, left=SHORT)
TOO_MANY = Array.of(np.array([10_000], np.uint32))
NONE = Array.of(np.empty(0, np.uint32))

BREACHES: list[tuple[str, type[Body], Forgery]] = [
    ("a split of another tree", training.SplitOutcome, _shifted("tree")),
    ("a split of another node", training.SplitOutcome, _shifted("node", 4)),
    ("a split of too few rows", training.SplitOutcome, _with(left=SHORT)),
    ("a split instead of sums", training.HistogramReply, lambda _: STRAY),
    ("sums of another tree", training.HistogramReply, _shifted("tree")),
    ("sums of another node", training.HistogramReply, _shifted("node", 8)),
    ("sums of another round", training.HistogramReply, _shifted("round")),
    ("sums that begin in the middle", training.HistogramReply, _shifted("piece")),
    ("a refusal in the middle", training.SplitOutcome,
     lambda _: training.SessionAccept(setup_pieces=0, trees=0)),
    ("setup pieces that were not announced", training.SessionAccept, lambda _: training.EngineSetup(
        piece=0, payload={})),
    ("a decision about another tree", training.SplitDecision, _shifted("tree")),
    ("a decision about a node that is not there", training.SplitDecision, _shifted("node", 64)),
    ("a decision for a candidate that is not there", training.SplitDecision,
     _with(candidates=TOO_MANY)),
    ("a decision for nothing", training.SplitDecision, _with(candidates=NONE)),
    ("an assignment of too few rows", training.NodeAssignment, _with(left=SHORT)),
    ("an assignment of another tree", training.NodeAssignment, _shifted("tree")),
    ("an assignment of a node that is not there", training.NodeAssignment, _shifted("node", 64)),
    ("gradients of another tree", training.GradientBroadcast, _shifted("tree")),
    ("gradients of rows that are not there", training.GradientBroadcast, _beyond_the_rows),
    ("a request about another tree", training.HistogramRequest, _shifted("tree")),
    ("a tree that is past the last", training.TreeStarted, _shifted("tree", 99)),
    ("the end of another tree", training.TreeFinished, _shifted("tree")),
    ("the end of a model that has more trees", training.SessionFinished, _with(trees=0)),
    ("a question that nobody asked", training.SplitDecision, lambda body: training.QueryPiece(
        tree=body.tree, node=body.node, round=0, piece=0, payload={})),
    ("an end before the answers", training.GradientBroadcast,
        lambda _: training.TreeFinished(tree=0)),
    ("a second opening", training.TreeStarted,
        lambda _: training.SessionAccept(setup_pieces=0, trees=0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "forge"), [forgery for _, *forgery in BREACHES], ids=[name for name, *_ in BREACHES]
)
@pytest.mark.parametrize("engine", [PLAIN, PAILLIER], ids=lambda engine: engine.name)
def test_a_breach_ends_the_session_on_both_sides_with_a_reason(
    kind: type[Body], forge: Forgery, engine: Engine
) -> None:
    federation = small(counts=(1, 2, 2)).having(engine=engine)
    simulation = federation.train(rewrite=_rewritten(kind, forge))
    assert simulation.errors
    over = simulation.results.keys() | simulation.errors.keys()
    assert over == {ACTIVE, "telco", "shop"}
    for error in simulation.errors.values():
        assert "broke the protocol" in str(error)


def test_what_came_before_an_illegal_message_is_for_the_party_that_got_it_alone() -> None:
    again = training.SessionAccept(setup_pieces=0, trees=0)
    simulation = small(counts=(1, 2, 2)).train(
        rewrite=lambda envelope: (
            again if isinstance(envelope.body, training.HistogramReply) else envelope.body
        )
    )
    breach = "broke the protocol: ActiveTraining in state GROWING cannot take SessionAccept from "
    own, *others = (simulation.errors[party] for party in (ACTIVE, "telco", "shop"))
    assert breach in str(own)
    assert "; before it came: " in str(own)
    for error in others:
        assert breach in str(error)
        assert "before it came" not in str(error)


MALFORMED: dict[str, Any] = {
    "nothing": {},
    "another key": {"rubbish": 1},
    "a number": {"left": 1, "pairs": 1, "packed": 1, "ciphertexts": 1, "part": 1},
    "a text": {"left": "x", "pairs": "x", "packed": "x", "ciphertexts": "x", "part": "x"},
}
for _dtype in (np.uint8, np.int64, np.float32, np.float64):
    for _shape in [(0,), (3,), (0, 2), (3, 2), (2, 3, 4), (80, 64), (64, 2), (4, 64)]:
        _values = np.zeros(_shape, _dtype)
        MALFORMED[f"{_dtype.__name__} {_shape}"] = {
            "left": _values, "pairs": _values, "packed": _values, "count": 2,
            "ciphertexts": _values, "h": 50, "slot": 101, "part": _values,
        }  # fmt: skip


@pytest.mark.parametrize("engine", [PLAIN, OU, *seldom(PAILLIER)], ids=lambda engine: engine.name)
@pytest.mark.parametrize("kind", [training.HistogramReply, training.GradientBroadcast])
@pytest.mark.parametrize("values", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_payload_never_ends_the_session_on_one_side_alone(
    values: dict[str, Any], kind: type[Body], engine: Engine
) -> None:
    federation = small(counts=(1, 2, 2)).having(engine=engine)
    simulation = federation.train(rewrite=_rewritten(kind, _payload(**values)))
    # No more pairs than were announced are well-formed to the plain engine.
    fits = engine is PLAIN and kind is training.HistogramReply and _is_pairs(values.get("left"))
    assert simulation.errors.keys() == (set() if fits else {ACTIVE, "telco", "shop"})


FITTING = {(0, 2), (3, 2)}


def _is_pairs(value: Any) -> bool:
    fits = isinstance(value, np.ndarray) and value.dtype in (np.int64, np.float32)
    return fits and value.shape in FITTING


@pytest.mark.parametrize("values", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("engine", [PAILLIER, OU], ids=lambda engine: engine.name)
def test_a_malformed_key_is_refused(values: dict[str, Any], engine: Engine) -> None:
    federation = small().having(engine=engine)
    public = pack_payload({"n": next(iter(values.values()), 0)})
    simulation = federation.train(rewrite=_rewritten(training.TrainingOpen, _with(public=public)))
    assert isinstance(simulation.errors[ACTIVE], Refused)


def test_a_reply_that_follows_a_complete_one_is_a_breach() -> None:
    simulation = Simulation(small(counts=(1, 2)).training())
    more: list[training.HistogramReply] = []

    def tap(envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, training.HistogramReply) and not more and body.piece == body.pieces - 1:
            more.append(body)
            simulation.send("telco", ACTIVE, more[0])

    simulation.tap = tap
    simulation.run()
    assert "unrequested" in str(simulation.errors[ACTIVE])
    assert "broke the protocol" in str(simulation.errors["telco"])


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_that_ends_before_the_sums_are_answered_is_a_breach(seed: int) -> None:
    federation = small(counts=(1, 2)).having(engine=PAILLIER)
    simulation = Simulation(federation.training(), seed, Link(delay=2.0))
    asked: list[int] = []

    def tap(envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, training.HistogramRequest) and body.nodes[0].node > 1 and not asked:
            asked.append(body.tree)
            simulation.send(ACTIVE, "telco", training.TreeFinished(tree=body.tree))

    simulation.tap = tap
    simulation.run()
    assert simulation.errors.keys() == {ACTIVE, "telco"}
    assert "bank broke the protocol" in str(simulation.errors["telco"])


def test_a_node_that_is_split_while_it_is_asked_about_is_a_breach() -> None:
    federation = small(counts=(0, 2, 2))
    machines = federation.having(engine=BestOfAll(federation.params)).training()
    simulation = Simulation(machines)
    put_off: list[training.QueryPiece] = []
    went_left: list[Bitmap] = []

    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, training.SplitOutcome) and body.node == 1:
            went_left.append(body.left)
        if not isinstance(body, training.QueryPiece) or body.node != 2 or put_off:
            return body
        put_off.append(body)
        simulation.send(ACTIVE, envelope.header.recipient, body)
        standing = int(went_left[0].numpy().sum())
        left = Bitmap.of(np.ones(standing, np.bool_))
        return training.NodeAssignment(tree=body.tree, node=body.node, left=left)

    simulation.rewrite = rewrite
    simulation.run()
    assert "split meanwhile" in str(simulation.errors["telco"])
    assert simulation.errors.keys() == {ACTIVE, "telco", "shop"}


def test_an_engine_that_gives_up_in_the_middle_of_a_wave_asks_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = plain._Active.ask

    def give_up(self: Any, peer: str, asked: AskedNode) -> Any:
        if asked.node == 3:
            raise ConfigError("key_bits: no room")
        return (yield from ask(self, peer, asked))

    monkeypatch.setattr(plain._Active, "ask", give_up)
    bodies: list[Any] = []
    simulation = small(counts=(1, 2)).train(tap=lambda envelope: bodies.append(envelope.body))
    assert str(simulation.errors[ACTIVE]) == "key_bits: no room"
    assert isinstance(simulation.errors["telco"], Aborted)
    requests = [body for body in bodies if isinstance(body, training.HistogramRequest)]
    assert [[query.node for query in request.nodes] for request in requests] == [[1]]


def test_more_setup_pieces_than_were_announced_are_a_breach() -> None:
    federation = small().having(engine=HiddenRows())
    fewer = _rewritten(training.SessionAccept, _with(setup_pieces=2))
    simulation = federation.train(rewrite=fewer)
    assert simulation.errors.keys() == {ACTIVE, "telco", "shop"}


@pytest.mark.parametrize("record", [2**31, 2**32 - 1])
def test_a_record_beyond_what_a_tree_can_hold_is_no_message(record: int) -> None:
    with pytest.raises(ValueError, match="record"):
        training.SplitOutcome(tree=0, node=1, record=record, left=SHORT)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_generator_takes_is_no_message(seed: int) -> None:
    opening: list[Any] = []
    small().train(tap=lambda envelope: opening.append(envelope.body))
    with pytest.raises(ValueError, match="seed"):
        type(opening[0])(**{**dict(opening[0]), "seed": seed})


def test_an_envelope_of_a_foreign_party_is_refused_and_changes_nothing() -> None:
    federation = small()
    simulation = Simulation(federation.training())
    envelopes: list[Envelope] = []
    simulation.tap = envelopes.append
    simulation.run()
    foreign = envelopes[0].header.model_copy(update={"sender": "stranger"})
    fresh = Simulation(federation.training()).sessions["telco"]
    with pytest.raises(MessageError, match="stranger takes no part"):
        fresh.handle(Arrived(replace(envelopes[0], header=foreign)))
    assert fresh.machine.state.name == "READY"
