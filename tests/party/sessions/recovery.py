"""One party with a store on disk and a link in memory, as it stands after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from fedmq.messages.body import Body
from fedmq.messages.codec import decode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import TrainingOpen
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.identity.sealer import Clear
from fedmq.party.sessions.recovery import (
    RestartNotice,
    Resumable,
    Resume,
    Resumption,
    UnexpectedMessages,
    UnsequencedSender,
)
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import RunningSession, Sessions
from fedmq.party.store.database import Database
from fedmq.party.store.journal import OpenedSessions, SessionStore, StoredSession
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.transport.link import Delivery
from fedmq.transport.memory import MemoryBroker, MemoryLink

__all__ = ["SESSION", "RestartedParty", "Trainings", "until"]

SESSION = StoredSession("s1", "m", 1)


async def until(seen: Callable[[], bool]) -> None:
    """Wait until ``seen``."""
    for _ in range(1000):
        if seen():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it was never seen")


class Trainings:
    """Reads the data of sessions when it is let, and notes which were resumed."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.reloaded = 0
        self.resumed: list[str] = []

    def drives(self, session: str) -> bool:
        return session in self.resumed

    async def reload(self, session: StoredSession) -> Resume:
        self.reloaded += 1
        if self._errors:
            raise self._errors.pop(0)
        return lambda: self.resumed.append(session.id)


class RestartedParty:
    """``party`` of a federation whose active party is bank; ``heard`` is what its peer gets."""

    def __init__(self, folder: Path, party: str, trainings: Resumable | None = None) -> None:
        broker = MemoryBroker()
        self.party = party
        self.heard: asyncio.Queue[Envelope] = asyncio.Queue()
        self.withdrawn: list[str] = []
        """Sessions about which the owner is no longer asked."""
        self.database = Database(folder / "fedmq.sqlite")
        self.store = SessionStore(self.database)
        self.link = MemoryLink(broker, party)
        sender = UnsequencedSender("demo", self.link, Clear())
        notice = RestartNotice(self.store, sender, "bank")
        self.sessions = Sessions(
            federation="demo",
            link=self.link,
            inbox=Inbox("demo", party),
            pool=ThreadPool(),
            retry=RetryPolicy(),
        )
        self.resumption = Resumption(
            store=self.store,
            sessions=self.sessions,
            notice=notice,
            trainings=trainings,
            state=folder,
            withdraw=self._withdraw,
        )
        self.opened_sessions = OpenedSessions(folder)
        self.unexpected_messages = UnexpectedMessages(
            party=party,
            active="bank",
            openings={TrainingOpen: self._never},
            sessions=self.sessions,
            store=self.store,
            opened_sessions=self.opened_sessions,
            resumption=self.resumption,
            consent=PolicyConsent(party, PolicySection(), AuditLog(folder)),
            sender=sender,
        )
        self._peer = MemoryLink(broker, "telco" if party == "bank" else "bank")
        broker.declare(party)
        broker.declare(self._peer.party)

    async def _withdraw(self, session: str) -> None:
        self.withdrawn.append(session)

    @property
    def peer(self) -> str:
        """Who hears what the party sends."""
        return self._peer.party

    def envelope(self, body: Body, attempt: int = 1, sequence: int = 0) -> Envelope:
        """``body`` as the peer sends it, about ``SESSION``."""
        header = Header.unsequenced(
            "1",
            federation="demo",
            session=SESSION.id,
            attempt=attempt,
            sender=self.peer,
            recipient=self.party,
            kind=body.kind,
        )
        return Envelope(header.model_copy(update={"sequence": sequence}), body)

    async def reply(self) -> Body:
        """What the peer hears next."""
        async with asyncio.timeout(15):
            return (await self.heard.get()).body

    async def state(self) -> tuple[str, str]:
        """Of ``SESSION`` in the store, with the reason."""
        stored = await self.store.find(SESSION.id)
        return ("", "") if stored is None else (stored.state, stored.reason)

    async def _never(self, envelope: Envelope) -> RunningSession:
        raise AssertionError(f"{envelope.header.session} was joined")

    async def __aenter__(self) -> Self:
        async def take(delivery: Delivery) -> None:
            self.heard.put_nowait(decode(delivery.body))
            await delivery.ack()

        async def ignore(delivery: Delivery) -> None:
            await delivery.ack()

        await self.database.open()
        await self._peer.open(take)
        await self.link.open(ignore)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.resumption.cancel()
        await self.sessions.close("the test is over")
        await self.link.close()
        await self._peer.close()
        await self.database.close()
