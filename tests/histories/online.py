"""Batches of online scores on file: what happened to a batch, and what the parties answered.

Computations are done again, as in the histories of sessions. Two requests share a batch, over a
link that loses, repeats and reorders. Ciphertexts are on file as their hashes: today's, if they are
the same, stand for them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.messages.body import Body
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import PROTOCOL_VERSION, Envelope, Header
from fedmq.messages.online import OnlineHop, OnlineRows
from fedmq.protocol.events import Answer, Effect, Received, Send
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.options import AskedRows, Mode, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_active import SealedBatch
from fedmq.protocol.sealed_sums import SealedModel
from tests.crash_simulator import CrashSimulation, Faults
from tests.histories.history import FOLDER, Line, digest, effect_line, event_line, happened
from tests.histories.scenes import IDS, OTHERS, OWN, training
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.protocol.online.sealed_parties import Multiplying, multiplying
from tests.simulator import Link
from tests.stepper import RunComputation, Stepper

MODES: tuple[Mode, ...] = ("hop", "bitmap", "sealed")
_LONGEST = 20_000  # bytes of a message that is on file as it is

_WEATHER = Link(drop=0.3, repeat=0.3, delay=0.2)


class Scene:
    """A batch and the parties that it asks; everything that happens to them is in ``lines``."""

    def __init__(self, mode: Mode) -> None:
        grown = CrashSimulation(training(), Faults())
        grown.run()
        served = ServedForest.of(grown.results["bank"])
        requests = [AskedRows(0, 1, 60.0), AskedRows(1, 30, 60.0)]
        people = IDS[:30], OWN.values[:30], requests
        row_of = {name: row for row, name in enumerate(IDS[:25])}  # the others are unknown there
        shares = {}
        for owner, party in served.asked.items():
            values = np.vstack(
                [OTHERS[party].values[:25], np.full_like(OTHERS[party].values[:1], np.nan)]
            )
            share = grown.results[party]
            shares[party] = AnsweringShare(share, served.chains(owner), values, row_of)
        self.lines: list[Line] = []
        self.batch: OnlineBatch | SealedBatch
        self.parties: Mapping[str, AnsweringShare | Multiplying] = shares
        if mode == "sealed":
            sealed = SealedModel.of(served.share, bytes(32))
            self.batch = SealedBatch(0, served, sealed, *people, Timeouts(), bytes(32))
            self.parties = multiplying(sealed, shares)
        else:
            self.batch = OnlineBatch(0, served, *people, mode, "fail", Timeouts())
        self._stepper = Stepper(self.batch.handle)
        self._long: dict[str, bytes] = {}

    def handle(self, event: Any) -> list[Any]:
        """Let it happen to the batch."""
        effects = self._stepper.handle(event)
        self.lines.append(
            {
                "event": self._event(event),
                "effects": [self._effect(effect) for effect in effects],
            }
        )
        return effects

    def answer(self, party: str, asked: Body) -> Body:
        """What ``party`` says."""
        here = self.parties[party]
        match asked:
            case OnlineHop():
                said: Body = here.exits(asked)
            case OnlineRows():
                said = here.bitmaps(asked)
            case _:
                said = here.products(asked)
        packed = _packed(said, sender=party)
        self._long[digest(packed)] = packed
        asked_for = self._kept(_packed(asked))
        self.lines.append({"party": party, "asked": asked_for, "said": digest(_packed(said))})
        return said

    def found(self, kept: str) -> Envelope:
        """The message that is ``kept`` on file, or whose hash is."""
        return decode(self._long[kept] if kept in self._long else base64.b64decode(kept))

    def _kept(self, packed: bytes) -> str:
        if len(packed) > _LONGEST:
            return digest(packed)
        return base64.b64encode(packed).decode()

    def _event(self, event: Any) -> list[Any]:
        if isinstance(event, Received):
            return ["received", self._kept(_packed(event.body, sender=event.sender))]
        return event_line(event)

    def happened(self, event: list[Any], computations: dict[int, Any]) -> Any:
        """An event that is on file."""
        if event[0] == "received":
            envelope = self.found(event[1])
            return Received(envelope.header.sender, envelope.body)
        return happened(event, computations)

    def _effect(self, effect: Effect | RunComputation) -> list[Any]:
        match effect:
            case Send(recipient, body):
                packed = _packed(body)
                self._long[digest(packed)] = packed
                return ["send", recipient, body.kind, digest(packed)]
            case Answer(request, result):
                unknown = {
                    party: np.flatnonzero(rows).tolist() for party, rows in result.unknown.items()
                }
                return ["answer", request, digest(result.margins.tobytes()), unknown]
        return effect_line(effect)


class _Asked:
    """A party of a scene, as a schedule asks it."""

    def __init__(self, scene: Scene, party: str) -> None:
        self.exits = self.bitmaps = self.products = partial(scene.answer, party)


def record(mode: Mode) -> int:
    """Write the history anew; how many lines it has."""
    scene = Scene(mode)
    parties = {party: _Asked(scene, party) for party in scene.parties}
    OnlineSchedule([scene.batch], parties, 18, _WEATHER, handle_of=lambda _: scene.handle).run()
    lines: list[Line] = [{"protocol": PROTOCOL_VERSION}, *scene.lines]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (FOLDER / f"online-{mode}.jsonl").write_text(text + "\n")
    return len(lines)


def replay_online(mode: Mode) -> Iterator[tuple[str, Line, Line]]:
    """Each line of a history, and the same line by today's code."""
    name = f"online-{mode}.jsonl"
    first, *lines = [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
    assert first["protocol"] == PROTOCOL_VERSION, "a new protocol: record the histories anew"
    scene = Scene(mode)
    computations: dict[int, Any] = {}
    for number, line in enumerate(lines, start=2):
        if "party" in line:
            scene.answer(line["party"], scene.found(line["asked"]).body)
        else:
            for effect in scene.handle(scene.happened(line["event"], computations)):
                if isinstance(effect, RunComputation):
                    computations[effect.number] = effect.computation
        yield f"{name}:{number}", line, json.loads(json.dumps(scene.lines[-1]))


def _packed(body: Body, sender: str = "x") -> bytes:
    header = Header(
        id="x", federation="demo", session="online", attempt=1, sender=sender,
        recipient="x", sequence=0, acknowledged=0, kind=body.kind,
    )  # fmt: skip
    return encode(Envelope(header, body))
