"""What becomes of a message that no running session expects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fedmq.errors import Replayed
from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.consent.consent import Consent
from fedmq.party.sessions.open_sessions import Sessions
from fedmq.party.sessions.resumption import Resumption
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.sessions.running import RunningSession
from fedmq.party.sessions.unsequenced_sender import UnsequencedSender
from fedmq.party.store.disk import DiskTroubles, until_taken
from fedmq.party.store.opened_sessions import OpenedSessions
from fedmq.party.store.sessions import SessionStore, StoredSession
from fedmq.protocol.session import Decision, StoredState, decide

__all__ = ["Opening", "StrayMessages"]

Opening = Callable[[Envelope], Awaitable[RunningSession]]
"""Joins the session, or the new attempt at one, that an envelope opens."""


class StrayMessages:
    """Decides about each message of an attempt that does not run at ``party``, and acts on it.

    ``openings`` join sessions that the ``active`` party opens, by the body that opens them.
    """

    def __init__(
        self,
        *,
        party: str,
        active: str,
        openings: Mapping[type[Body], Opening],
        sessions: Sessions,
        store: SessionStore,
        opened_sessions: OpenedSessions,
        resumption: Resumption,
        consent: Consent,
        sender: UnsequencedSender,
    ) -> None:
        self._disk_troubles = DiskTroubles()
        self._party = party
        self._active = active
        self._openings = openings
        self._sessions = sessions
        self._store = store
        self._opened_sessions = opened_sessions
        self._resumption = resumption
        self._consent = consent
        self._sender = sender

    @property
    def disk_trouble(self) -> str:
        """Why no session can be joined now; empty while the disk takes what has to be kept."""
        return str(self._disk_troubles)

    async def take(self, envelope: Envelope) -> SessionRunner | None:
        """The runner that takes ``envelope``, if it opens a session or an attempt here.

        Raises:
            Replayed: it opens one that was opened before.
        """
        header, body = envelope.header, envelope.body
        opening = self._openings.get(type(body))
        stored = await self._store.find(header.session)
        match decide(
            header,
            body,
            None if stored is None else StoredState(stored.attempt, stored.state == "failed"),
            opens=opening is not None and header.sender == self._active != self._party,
            drives=self._party == self._active,
        ):
            case Decision.JOIN:
                assert opening is not None
                return await self._join(opening, envelope)
            case Decision.GO_ON:
                assert stored is not None
                self._resumption.resume(stored)
            case Decision.END:
                assert isinstance(body, Abort)
                await self._end(header, body)
            case Decision.REFUSE:
                await self._refuse(header, stored)
            case Decision.REPLY_UNKNOWN:
                await self._sender.reply(header, SessionUnknown())
            case Decision.DROP:
                pass
        return None

    async def _join(self, opening: Opening, envelope: Envelope) -> SessionRunner:
        header = envelope.header
        if not await until_taken(
            lambda: self._opened_sessions.record_opening(header),
            on_trouble=self._disk_troubles.another(),
        ):
            await self._sender.reply(header, SessionUnknown())
            raise Replayed(f"{header.sender} opened session {header.session} here before")
        # Who joins asks for consent first, which has to be recorded.
        await self._consent.audit.until_recordable(self._disk_troubles.another())
        return (await opening(envelope)).runner

    async def _end(self, header: Header, body: Abort) -> None:
        reason = f"{header.sender} gave up: {body.reason}"
        await self._resumption.end(header.session, reason)
        earlier = self._sessions.running.get(header.session)
        if earlier is not None:
            earlier.runner.cancel(reason)
            earlier.runner.silence(header.sender)

    async def _refuse(self, header: Header, stored: StoredSession | None) -> None:
        earlier = self._sessions.running.get(header.session)
        if earlier is not None:
            earlier.runner.silence(header.sender)
        reason = stored.reason if stored else f"{self._party} has no such session"
        await self._sender.reply(header, Abort(reason=reason))
