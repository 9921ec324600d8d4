"""Complete sessions on file: what happened to each party, and what it did about it.

A history has a line for each life of a party's session (an attempt, with the trees it began from),
and a line for each event with the effects that followed. Results of computations are not kept:
they are computed again, in the order in which they were handed out. ``python -m
tests.histories.record`` writes the files anew; that is a new protocol, and should be meant.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.params import TrainParams
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import PROTOCOL_VERSION
from fedmq.party.store.journal import Row, checkpoint_of, row_of
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    CancelTimer,
    Effect,
    Fail,
    Finish,
    Interrupted,
    Pause,
    Report,
    Resume,
    Save,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
    Waiting,
)
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.online.active import AskAgain, Deadline, GiveUp
from fedmq.protocol.session import (
    Acknowledgement,
    Address,
    Mailbox,
    Probing,
    Resend,
    RetryPolicy,
    Session,
    Stall,
)
from fedmq.protocol.session_records import ActiveTree, ConsentUsed, PassiveTree
from tests.crash_simulator import Build
from tests.stepper import Computed, RunComputation, SteppedSession

FOLDER = Path(__file__).parent

Line = dict[str, Any]


class RecordedSession(SteppedSession):
    """Notes everything that happens to it."""

    def __init__(
        self, session: Session, life: int, lines: list[Line], saved: Sequence[Row]
    ) -> None:
        super().__init__(session)
        self._life, self._lines = life, lines
        address = session.mailbox.address
        begun = {"party": address.party, "attempt": address.attempt}
        lines.append({"life": life, "begun": begun | {"saved": [_row(row) for row in saved]}})

    def handle(self, event: Any) -> list[Any]:
        effects = super().handle(event)
        effect_lines = [effect_line(effect) for effect in effects]
        self._lines.append(
            {"life": self._life, "event": event_line(event), "effects": effect_lines}
        )
        return effects


class Recorder:
    """Collects the lives of a simulation's parties."""

    def __init__(self) -> None:
        self.lines: list[Line] = [{"protocol": PROTOCOL_VERSION, "names_early": True}]
        self._lives = 0

    def __call__(self, session: Session, saved: Sequence[Row]) -> Session:
        self._lives += 1
        return RecordedSession(session, self._lives, self.lines, saved)

    def write(self, name: str) -> None:
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in self.lines)
        (FOLDER / f"{name}.jsonl").write_text(text + "\n")


def replay(name: str, builds: Mapping[str, Build]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each event of a history, with the effects on file and the effects of today's machines."""
    text = (FOLDER / f"{name}.jsonl").read_text()
    first, *lines = [json.loads(line) for line in text.splitlines()]
    assert first["protocol"] == PROTOCOL_VERSION, "a new protocol: record the histories anew"
    lives: dict[int, tuple[Session, dict[int, Any]]] = {}
    for number, line in enumerate(lines, start=2):
        if "begun" in line:
            # Those of 0.1.0 did not name early messages.
            named = first.get("names_early", False)
            lives[line["life"]] = (_session(line["begun"], builds, names_early=named), {})
            continue
        session, computations = lives[line["life"]]
        effects = session.handle(happened(line["event"], computations))
        for effect in effects:
            if isinstance(effect, RunComputation):
                computations[effect.number] = effect.computation
        where = f"{name}.jsonl:{number}: {session.mailbox.address.party}, {line['event'][0]}"
        yield where, line["effects"], [effect_line(effect) for effect in effects]


def _session(begun: Line, builds: Mapping[str, Build], *, names_early: bool) -> Session:
    saved = [
        checkpoint_of((tree, data, None if margin is None else base64.b64decode(margin)))
        for tree, data, margin in begun["saved"]
    ]
    machine = builds[begun["party"]](saved)
    address = Address("demo", "session", begun["attempt"], begun["party"])
    random = np.random.default_rng(0)
    mailbox = Mailbox(
        address, machine.peers, RetryPolicy(jitter=0), random, names_early=names_early
    )
    return SteppedSession(Session(machine, mailbox))


def _row(row: Row) -> list[Any]:
    tree, data, margin = row
    return [tree, data, None if margin is None else base64.b64encode(margin).decode()]


TIMERS: dict[str, Callable[..., Hashable]] = {
    "stall": Stall,
    "resend": Resend,
    "probe": Probing,
    "acknowledge": Acknowledgement,
    "deadline": Deadline,
    "again": AskAgain,
    "away": GiveUp,
}
"""The timers by the names under which they stand on file."""


def timer_name(key: Any) -> str:
    """The name of a timer on file, such as ``resend:telco`` or ``again:3``."""
    [name] = [name for name, kind in TIMERS.items() if kind is type(key)]
    return ":".join([name, *(str(value) for value in astuple(key))])


def timer_key(name: str) -> Hashable:
    """The timer of that name."""
    kind, _, value = name.partition(":")
    values: list[str | int] = [int(value) if value.isdigit() else value] if value else []
    return TIMERS[kind](*values)


def event_line(event: Any) -> list[Any]:
    """``event`` as it stands in a history."""
    match event:
        case Arrived(envelope):
            return ["arrived", base64.b64encode(encode(envelope)).decode()]
        case TimerFired(key):
            return ["timer", timer_name(key)]
        case Computed(number):
            return ["computed", number]
        case Cancelled(reason):
            return ["cancelled", reason]
    return [type(event).__name__.lower()]


def happened(event: list[Any], computations: dict[int, Any]) -> Any:
    """The event on file; its computation is taken out of ``computations`` and done."""
    match event:
        case ["arrived", data]:
            return Arrived(decode(base64.b64decode(data)))
        case ["timer", name]:
            return TimerFired(timer_key(name))
        case ["computed", number]:
            return Computed(number, computations.pop(number).run())
        case ["cancelled", reason]:
            return Cancelled(reason)
        case [name]:
            return {"start": Start, "pause": Pause, "resume": Resume}[name]()
    raise AssertionError(f"no event: {event}")


def effect_line(effect: Effect | RunComputation) -> list[Any]:
    """``effect`` as it stands in a history."""
    match effect:
        case Transmit(envelope):
            header = envelope.header
            return ["transmit", header.recipient, header.kind, header.id, digest(encode(envelope))]
        case RunComputation(number, computation):
            return ["run", number, computation.label]
        case SetTimer(key, seconds):
            return ["set timer", timer_name(key), round(seconds, 6)]
        case CancelTimer(key):
            return ["cancel timer", timer_name(key)]
        case Waiting(peer, retry, retries):
            return ["waiting", peer, retry, retries]
        case Report(done, total, unit, details):
            return [
                "report",
                done,
                total,
                unit,
                {key: round(value, 5) for key, value in details.items()},
            ]
        case Save(ActiveTree() | PassiveTree() as step):
            if isinstance(step, PassiveTree):
                step = replace(step, nodes=())  # of a later version than the recordings
            tree, data, margin = row_of(step)
            return ["checkpoint", tree, digest(data.encode() + (margin or b""))]
        case Interrupted(peer):
            return ["interrupted", peer]
        case Save(ConsentUsed()):
            return ["use consent"]
        case Finish(result):
            return ["finish", _result(result)]
        case Fail(error):
            return ["fail", type(error).__name__, str(error)]
    raise AssertionError(f"no effect for the outside: {effect}")


RECORDED_PARAMETERS = {
    "active_only_trees",
    "base_score",
    "colsample_bytree",
    "early_stopping_rounds",
    "eta",
    "eval_metric",
    "gamma",
    "goss",
    "gradient_bits",
    "max_bin",
    "max_depth",
    "min_child_weight",
    "num_boost_round",
    "objective",
    "other_rate",
    "reg_lambda",
    "seed",
    "subsample",
    "top_rate",
}
"""Parameters of a training that there were when the histories were recorded."""


def _result(result: Any) -> str:
    if isinstance(result, PassiveShare):
        document = result.model_dump_json(
            exclude={"places", "withheld"}
        )  # later than the recordings
        return digest(document.encode())
    if isinstance(result, ActiveShare):
        later = {
            "params": set(TrainParams.model_fields) - RECORDED_PARAMETERS,
            "withheld": True,
            "inexact_engine": True,
            "earlier_trees": True,
            "earlier_departures": True,
            "tree_weights": True,
            "lacked_at": True,
        }
        return digest(result.model_dump_json(exclude=later).encode())
    if isinstance(result, Scores):
        return digest(result.margins.tobytes())
    # The common ids of an alignment, in the order in which this party keeps them.
    return "" if result is None else digest("\n".join(result).encode())


def digest(data: bytes) -> str:
    """Enough of a hash to tell that something has changed."""
    return hashlib.sha256(data).hexdigest()[:16]
