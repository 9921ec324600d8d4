"""What a party says about sessions that do not run at it."""

from __future__ import annotations

import logging

from fedmq.errors import LinkError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.identity.sealer import Sealer
from fedmq.transport.link import Link

__all__ = ["UnsequencedSender"]

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 2.0


class UnsequencedSender:
    """Sends bodies that belong to no running session, so that no mailbox repeats them."""

    def __init__(self, federation: str, link: Link, sealer: Sealer) -> None:
        self._federation = federation
        self._link = link
        self._sealer = sealer

    async def send(self, recipient: str, session: str, attempt: int, body: Body) -> None:
        """Send ``body`` about an attempt at a session; LinkError if the link does not take it."""
        party = self._link.party
        header = Header.unsequenced(
            f"{session}/{attempt}/{party}/{recipient}/{body.kind}",
            federation=self._federation,
            session=session,
            attempt=attempt,
            sender=party,
            recipient=recipient,
            kind=body.kind,
        )
        await self._sealer.ready(header, _HANDSHAKE_SECONDS)
        data = self._sealer.seal(Envelope(header, body))
        await self._link.publish(recipient, "training", data, message_id=header.id)

    async def reply(self, header: Header, body: Body) -> None:
        """Answer the sender of ``header``; one that misses the answer sends its message again."""
        try:
            await self.send(header.sender, header.session, header.attempt, body)
        except LinkError as error:
            log.warning("%s: could not answer %s: %s", self._link.party, header.sender, error)
