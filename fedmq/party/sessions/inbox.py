"""Which deliveries are refused, and which session gets the others?

Seals are opened by `identity.sealer`; the order of messages is kept by `protocol.mailbox`; what no
state expects is refused by `protocol.machine`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fedmq.errors import MessageError, Replayed, Stale
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.sealer import Clear, Sealer
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.telemetry.counters import Counters
from fedmq.transport.link import MAX_MESSAGE_BYTES, Delivery

__all__ = ["Inbox"]

log = logging.getLogger(__name__)


async def _nobody(_: Envelope) -> None:
    return None


class Inbox:
    """Checks each delivery, hands it to its session, and acknowledges it.

    Messages of an older attempt than the one that runs are dropped. ``on_refused`` is given each
    dead letter and its reason.
    """

    def __init__(
        self,
        federation: str,
        party: str,
        *,
        sealer: Sealer | None = None,
        on_refused: Callable[[Delivery, str], None] = lambda _, __: None,
        counters: Counters | None = None,
    ) -> None:
        self.on_stray: Callable[[Envelope], Awaitable[SessionRunner | None]] = _nobody
        """Returns who takes an envelope that belongs to no running attempt; None drops it."""
        self.on_online: Callable[[Envelope], None] = lambda _: None
        """Takes what came on the online lane, which has no sessions."""
        self.counters = counters or Counters()
        self._federation = federation
        self._party = party
        self._sealer = sealer or Clear()
        self._on_refused = on_refused
        self._runners: dict[str, SessionRunner] = {}

    def add(self, runner: SessionRunner) -> None:
        """Deliver to ``runner`` what its session is sent; it takes the place of older attempts."""
        self._runners[runner.session.mailbox.address.session] = runner

    def remove(self, runner: SessionRunner) -> None:
        """Forget ``runner``: its session is closed."""
        session = runner.session.mailbox.address.session
        if self._runners.get(session) is runner:
            del self._runners[session]

    async def on_delivery(self, delivery: Delivery) -> None:
        """Take one delivery; what is no message for this party becomes a dead letter."""
        await self.take(delivery)

    async def take(self, delivery: Delivery) -> str:
        """The same; the value is why no session took it, and empty where one did."""
        self.counters.arrived(delivery)
        about = {"message_id": delivery.message_id}
        try:
            envelope = self._checked(delivery)
            if envelope is None:  # a handshake, which the sealer has taken
                await delivery.ack()
                return ""
            if delivery.lane == "online":
                self.on_online(envelope)
                return ""
            runner = await self._found(envelope)
            if runner is not None:
                runner.deliver(envelope, len(delivery.body))
        except (Replayed, Stale) as error:
            # An honest broker repeats messages too, and keeps some while this daemon restarts;
            # senders send again what matters. So these are dropped rather than kept.
            self.counters.refused[type(error).__name__] += 1
            log.info("%s: dropped %s: %s", self._party, delivery.message_id, error, extra=about)
            await delivery.ack()
            return str(error)
        except MessageError as error:
            self.counters.refused[type(error).__name__] += 1
            self._on_refused(delivery, str(error))
            await delivery.dead_letter(str(error))
            return str(error)
        await delivery.ack()
        if runner is not None:
            return ""
        self.counters.dropped += 1
        log.info("%s: dropped %s", self._party, envelope.header.id, extra=about)
        return f"session {envelope.header.session} does not run here, or not this attempt any more"

    async def _found(self, envelope: Envelope) -> SessionRunner | None:
        runner = self._runners.get(envelope.header.session)
        attempt = runner.session.mailbox.address.attempt if runner else 0
        if envelope.header.attempt < attempt:
            return None
        if envelope.header.attempt == attempt:
            return runner
        return await self.on_stray(envelope)

    def _checked(self, delivery: Delivery) -> Envelope | None:
        if len(delivery.body) > MAX_MESSAGE_BYTES:  # before it is decoded
            raise MessageError(
                f"{len(delivery.body)} bytes are no fedmq message: those have {MAX_MESSAGE_BYTES} "
                "at most"
            )
        envelope = self._sealer.open(delivery.body)
        if envelope is None:
            return None
        header = envelope.header
        if header.federation != self._federation or header.recipient != self._party:
            raise MessageError(
                f"message {header.id!r} is for {header.recipient} in {header.federation}"
            )
        if header.sender != delivery.sender:
            raise MessageError(
                f"message {header.id!r} claims to be from {header.sender}, "
                f"the broker says {delivery.sender}"
            )
        self.counters.received(header, len(delivery.body))
        return envelope
