"""How an online message leaves: outside of any session, without order or acknowledgement."""

from __future__ import annotations

import itertools
import logging

from fedmq.errors import LinkError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.identity.sealer import Clear, Sealer
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import Link

__all__ = ["OnlineSender"]

log = logging.getLogger(__name__)


class OnlineSender:
    """Sends the online messages of one party, each once: whoever misses an answer asks again.

    ``sealer`` makes the bytes of an envelope; without one they are in the clear.
    """

    def __init__(self, federation: str, link: Link, sealer: Sealer | None = None) -> None:
        self.lost = 0
        """Messages that the link did not take."""
        self._federation = federation
        self._link = link
        self._sealer = sealer or Clear()
        self._numbers = itertools.count(1)
        self._tasks = BackgroundTasks()

    def send(self, recipient: str, body: Body, session: str, seconds: float) -> None:
        """Send ``body``, which is of use for ``seconds``, in the background."""
        party = self._link.party
        header = Header.unsequenced(
            f"{session}/{party}/{next(self._numbers)}",
            federation=self._federation,
            session=session,
            attempt=1,
            sender=party,
            recipient=recipient,
            kind=body.kind,
        )
        self._tasks.spawn(self._post(header, body, max(seconds, 0.05)))

    async def _post(self, header: Header, body: Body, seconds: float) -> None:
        try:
            await self._sealer.ready(header, seconds)
            data = self._sealer.seal(Envelope(header, body))
            await self._link.post(header.recipient, data, message_id=header.id, expires=seconds)
        except LinkError as error:
            self.lost += 1
            log.debug("%s was not sent: %s", header.id, error)
