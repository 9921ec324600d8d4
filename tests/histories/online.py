"""Batches of online scores on file: what happened to a batch, and what the parties answered.

Computations are done again, as in the histories of sessions. Two requests share a batch, over a
link that loses, repeats and reorders.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.messages.body import Body
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import PROTOCOL_VERSION, Envelope, Header
from fedmq.messages.online import OnlineBitmaps, OnlineExits, OnlineHop, OnlineRows
from fedmq.protocol.events import Answer, Effect, Received, Send
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.options import AskedRows, Mode, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from tests.crash_simulator import CrashSimulation, Faults
from tests.histories.history import FOLDER, Line, digest, effect_line, event_line, happened
from tests.histories.scenes import IDS, OTHERS, OWN, training
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.simulator import Link
from tests.stepper import RunComputation, Stepper

MODES: tuple[Mode, ...] = ("hop", "bitmap")

_WEATHER = Link(drop=0.3, repeat=0.3, delay=0.2)


class RecordedBatch(OnlineBatch):
    """Notes everything that happens to it."""

    lines: list[Line]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._stepper = Stepper(super().handle)

    def handle(self, event: Any) -> list[Any]:
        effects = self._stepper.handle(event)
        self.lines.append(
            {"event": _event(event), "effects": [_effect(effect) for effect in effects]}
        )
        return effects


@dataclass(frozen=True, slots=True)
class RecordedShare(AnsweringShare):
    """Notes everything that it is asked."""

    party: str
    lines: list[Line] = field(repr=False)

    def exits(self, hop: OnlineHop) -> OnlineExits:
        return self._noted(hop, AnsweringShare.exits(self, hop))

    def bitmaps(self, asked: OnlineRows) -> OnlineBitmaps:
        return self._noted(asked, AnsweringShare.bitmaps(self, asked))

    def _noted(self, asked: Body, answer: Any) -> Any:
        packed = base64.b64encode(_packed(asked)).decode()
        self.lines.append({"party": self.party, "asked": packed, "said": digest(_packed(answer))})
        return answer


def scene(mode: Mode, lines: list[Line]) -> tuple[RecordedBatch, dict[str, RecordedShare]]:
    """A batch and the parties that it asks, which all write into ``lines``."""
    grown = CrashSimulation(training(), Faults())
    grown.run()
    served = ServedForest.of(grown.results["bank"])
    requests = [AskedRows(0, 1, 60.0), AskedRows(1, 30, 60.0)]
    batch = RecordedBatch(0, served, IDS[:30], OWN.values[:30], requests, mode, "fail", Timeouts())
    batch.lines = lines
    row_of = {name: row for row, name in enumerate(IDS[:25])}  # the others are unknown there
    shares = {}
    for owner, party in served.asked.items():
        values = np.vstack(
            [OTHERS[party].values[:25], np.full_like(OTHERS[party].values[:1], np.nan)]
        )
        share = grown.results[party]
        shares[party] = RecordedShare(share, served.chains(owner), values, row_of, party, lines)
    return batch, shares


def record(mode: Mode) -> int:
    """Write the history anew; how many lines it has."""
    lines: list[Line] = [{"protocol": PROTOCOL_VERSION}]
    batch, shares = scene(mode, lines)
    OnlineSchedule([batch], shares, 18, _WEATHER, handle_of=lambda recorded: recorded.handle).run()
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (FOLDER / f"online-{mode}.jsonl").write_text(text + "\n")
    return len(lines)


def replay_online(mode: Mode) -> Iterator[tuple[str, Line, Line]]:
    """Each line of a history, and the same line by today's code."""
    name = f"online-{mode}.jsonl"
    first, *lines = [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
    assert first["protocol"] == PROTOCOL_VERSION, "a new protocol: record the histories anew"
    today: list[Line] = []
    batch, shares = scene(mode, today)
    computations: dict[int, Any] = {}
    for number, line in enumerate(lines, start=2):
        if "party" in line:
            asked = decode(base64.b64decode(line["asked"])).body
            share = shares[line["party"]]
            if isinstance(asked, OnlineHop):
                share.exits(asked)
            elif isinstance(asked, OnlineRows):
                share.bitmaps(asked)
        else:
            effects = batch.handle(_happened(line["event"], computations))
            for effect in effects:
                if isinstance(effect, RunComputation):
                    computations[effect.number] = effect.computation
        yield f"{name}:{number}", line, json.loads(json.dumps(today[-1]))


def _packed(body: Body, sender: str = "x") -> bytes:
    header = Header(
        id="x", federation="demo", session="online", attempt=1, sender=sender,
        recipient="x", sequence=0, acknowledged=0, kind=body.kind,
    )  # fmt: skip
    return encode(Envelope(header, body))


def _event(event: Any) -> list[Any]:
    if isinstance(event, Received):
        packed = _packed(event.body, sender=event.sender)
        return ["received", base64.b64encode(packed).decode()]
    return event_line(event)


def _happened(event: list[Any], computations: dict[int, Any]) -> Any:
    if event[0] == "received":
        envelope = decode(base64.b64decode(event[1]))
        return Received(envelope.header.sender, envelope.body)
    return happened(event, computations)


def _effect(effect: Effect | RunComputation) -> list[Any]:
    match effect:
        case Send(recipient, body):
            return ["send", recipient, body.kind, digest(_packed(body))]
        case Answer(request, result):
            unknown = {
                party: np.flatnonzero(rows).tolist() for party, rows in result.unknown.items()
            }
            return ["answer", request, digest(result.margins.tobytes()), unknown]
    return effect_line(effect)
