"""An active party sends two copies under one number, and an honest party shows the wrong one."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pytest

from fedmq.messages.body import Body
from fedmq.messages.codec import pack
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import TreeFinished
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.store.journal import NullJournal
from fedmq.protocol import session as mailbox_module
from fedmq.protocol.machine import Machine, Table, Transition, on_message
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address, Mailbox, Session
from fedmq.protocol.session_records import RunningHash, Signing, TranscriptMessage, message_hash
from fedmq.protocol.training.transcripts import Transcripts


class _State(Enum):
    TAKING = 0
    FAILED = 1


class _Taking(Machine):
    """Telco's machine, which takes the ends of trees."""

    TABLE: ClassVar[Table] = {(_State.TAKING, TreeFinished): Transition(_State.TAKING)}
    failed_state = _State.FAILED

    def __init__(self) -> None:
        signing = Signing("0123", 1, lambda _: b"", lambda *_: True)
        super().__init__(_State.TAKING, ("bank",))
        self._transcripts = Transcripts(self, "telco", ("bank",), signing, active="bank")
        self.witness = self._transcripts
        self.taken: list[Body] = []

    @property
    def questions(self) -> RunningHash:
        return self._transcripts.by_peer["bank"].questions

    @on_message(TreeFinished)
    def _on_finished(self, _: str, body: TreeFinished) -> None:
        self.taken.append(body)


class _Kept(NullJournal):
    def __init__(self) -> None:
        self.messages: list[TranscriptMessage] = []

    def note(self, message: TranscriptMessage) -> None:
        self.messages.append(message)


async def nowhere(
    recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
) -> None: ...


def _envelope(sequence: int, body: Body) -> Envelope:
    fields: dict[str, Any] = {"federation": "demo", "session": "0123", "attempt": 1}
    parties = {"sender": "bank", "recipient": "telco"}
    header = Header(
        id=f"{sequence}", sequence=sequence, acknowledged=0, kind=body.kind, **fields, **parties
    )
    return Envelope(header, body)


async def test_a_copy_that_was_dropped_is_not_kept_in_place_of_the_one_that_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, dropped, second = (TreeFinished(tree=0, lot=lot) for lot in (1, 2, 3))
    early = len(pack(_envelope(2, dropped)).body)
    monkeypatch.setattr(mailbox_module, "_EARLY_BYTES", early - 1)
    machine, kept, pool = _Taking(), _Kept(), ThreadPool()
    mailbox = Mailbox(
        Address("demo", "0123", 1, "telco"), ("bank",), RetryPolicy(), np.random.default_rng(0)
    )
    runner = SessionRunner(Session(machine, mailbox), publish=nowhere, pool=pool, journal=kept)
    for sequence, body in ((2, dropped), (1, first), (2, second), (2, dropped)):
        runner.deliver(_envelope(sequence, body))

    assert machine.taken == [first, second]
    assert [message.body for message in kept.messages] == [first, second]
    assert [message.number for message in kept.messages] == [1, 2]
    running = RunningHash()
    for message in kept.messages:
        running = running.after(message_hash(message.body))
    assert running == machine.questions
    runner.stop()
    await pool.close()
