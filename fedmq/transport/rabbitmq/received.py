"""What comes out of a queue, and how it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from aiormq.abc import DeliveredMessage

from fedmq.errors import LinkError
from fedmq.transport.rabbitmq.link_errors import link_errors

__all__ = ["Received"]

_SETTLE_SECONDS = 10.0


@dataclass
class Received:
    """A message taken from a queue."""

    body: bytes
    message_id: str
    routing_key: str
    redelivered: bool
    death: str
    """Why the broker moved it to the dead letters; empty if it did not."""
    sent: float | None
    """When its sender published it, in Unix seconds; None if that is unknown."""
    reply_to: str
    correlation_id: str
    _message: DeliveredMessage
    _settled: bool = False
    _on_settled: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls,
        message: DeliveredMessage,
        *,
        settled: bool = False,
        on_settled: Callable[[], None] = lambda: None,
    ) -> Self:
        """What the client library delivered; ``on_settled`` is called once it is settled."""
        properties = message.header.properties
        headers = properties.headers or {}
        return cls(
            body=message.body,
            message_id=properties.message_id or "",
            routing_key=_first_routing_key(headers) or message.routing_key or "",
            redelivered=bool(message.redelivered),
            death=str(headers.get("x-first-death-reason", "")),
            sent=properties.timestamp.timestamp() if properties.timestamp else None,
            reply_to=properties.reply_to or "",
            correlation_id=properties.correlation_id or "",
            _message=message,
            _settled=settled,
            _on_settled=on_settled,
        )

    async def settle(self, *, accept: bool) -> bool:
        """Acknowledge the message, or reject it to the dead letters.

        Returns False when that was done before, or when the connection is gone, so that the broker
        will deliver the message again.
        """
        if self._settled:
            return False
        # Before the first await: a second acknowledgement would end the channel.
        self._settled = True
        self._on_settled()
        channel, tag = self._message.channel, self._message.delivery_tag or 0
        try:
            with link_errors("settle"):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    # The socket is not waited for: the next message can be handled meanwhile.
                    if accept:
                        await channel.basic_ack(tag, wait=False)
                    else:
                        await channel.basic_reject(tag, requeue=False, wait=False)
        except LinkError:
            return False
        return True


def _first_routing_key(headers: Mapping[str, Any]) -> str | None:
    """The routing key under which a dead letter was published."""
    try:
        return str(headers["x-death"][-1]["routing-keys"][0])
    except (KeyError, IndexError, TypeError):
        return None
