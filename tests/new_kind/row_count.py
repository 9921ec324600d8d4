"""The active party asks another how many rows it has: a session kind in one module."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from fedmq.errors import Refused
from fedmq.messages.body import Body, SessionRefuse
from fedmq.messages.envelope import Envelope
from fedmq.messages.fields import Index
from fedmq.party.data.table import read_table
from fedmq.party.services.service import Command, Service
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.kinds import SessionKind, Side
from fedmq.protocol.machine import REFUSES, Machine, When, on, on_message, session_table

__all__ = ["KIND", "RowCountService"]


# Messages


class RowCountAsk(Body):
    """Active to passive: how many rows do you have?"""

    kind: ClassVar[str] = "row count ask"


class RowCount(Body):
    """Passive to active: so many."""

    kind: ClassVar[str] = "row count"

    rows: Index


# Machines


class Asking(Enum):
    """Where the active party stands."""

    READY = "not begun"
    WAITING = "the other party is asked"
    FINISHED = "it has answered"
    FAILED = "it refused, or gave no answer"


class Asked(Enum):
    """Where the passive party stands."""

    READY = "not begun"
    DECIDED = "its owner's policy has decided"
    FINISHED = "answered"
    FAILED = "refused"


ANSWERS = When("it answers")
ASKING = session_table(
    {
        Asking.READY: {Start: Asking.WAITING},
        Asking.WAITING: {RowCount: Asking.FINISHED, SessionRefuse: Asking.FAILED},
    },
    (Asking.FINISHED, Asking.FAILED),
    Asking,
)
ASKED = session_table(
    {
        Asked.READY: {RowCountAsk: Asked.DECIDED},
        Asked.DECIDED: {ANSWERS: Asked.FINISHED, REFUSES: Asked.FAILED},
    },
    (Asked.FINISHED, Asked.FAILED),
    Asked,
)


class ActiveRowCount(Machine):
    """Asks ``peer``."""

    TABLE, failed_state = ASKING, Asking.FAILED

    def __init__(self, peer: str) -> None:
        super().__init__(Asking.READY, (peer,))

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._send(self.peers[0], RowCountAsk())

    @on_message(RowCount)
    def _on_count(self, _: str, body: RowCount) -> None:
        self._emit(Finish(body.rows))

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not tell")


class PassiveRowCount(Machine):
    """Answers ``peer`` with ``rows``, or with why it does not."""

    TABLE, failed_state = ASKED, Asked.FAILED

    def __init__(self, peer: str, rows: int | Refused) -> None:
        super().__init__(Asked.READY, (peer,))
        self._rows = rows

    @on_message(RowCountAsk)
    def _on_ask(self, peer: str, _: RowCountAsk) -> None:
        if isinstance(self._rows, Refused):
            self._move(REFUSES)
            self._send(peer, SessionRefuse(reason=str(self._rows)))
            self._fail(self._rows, except_for=peer)
        else:
            self._move(ANSWERS)
            self._send(peer, RowCount(rows=self._rows))
            self._emit(Finish(self._rows))


KIND = SessionKind(
    name="row count",
    bodies=(RowCountAsk, RowCount),
    lane="inference",
    policy="inference",
    outlives_crash=False,
    sides=(
        Side("Row count: the active party", ASKING, Asking),
        Side("Row count: a passive party", ASKED, Asked),
    ),
)


# What owners ask, and how a party joins


class RowCountService(Service):
    """Tells how many rows a party has, where its policy lets it take part in predictions."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {RowCountAsk: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"row_count": self._ask}

    async def _ask(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        machine = ActiveRowCount(str(request["of"]))
        running = self.context.sessions.open(secrets.token_hex(8), 1, KIND.name, "rows", machine)
        running.runner.start()
        return await running.runner.outcome

    async def _join(self, envelope: Envelope) -> RunningSession:
        header = envelope.header
        machine = PassiveRowCount(header.sender, await self._rows())
        return self.context.sessions.open(
            header.session, header.attempt, KIND.name, "rows", machine
        )

    async def _rows(self) -> int | Refused:
        if KIND.policy not in self.context.config.policy.sessions:
            return Refused(f"{self.context.party} tells nobody how many rows it has")
        read = read_table.bind(self.context.party, self.context.config.data)
        return len((await self.context.pool.run(read)).ids)
