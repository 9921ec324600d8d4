"""How a party's settings reach its broker."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Self

from fedmq.errors import ConfigError
from fedmq.party.configuration.party import PartyFile
from fedmq.transport.rabbitmq.certificates import common_name
from fedmq.transport.rabbitmq.topology import is_name

__all__ = ["BrokerAccess"]


@dataclass(frozen=True)
class BrokerAccess:
    """The URL with the login mechanism in it, and what TLS needs."""

    url: str
    ssl_context: ssl.SSLContext | None

    @classmethod
    def of(cls, config: PartyFile) -> Self:
        """Raises ConfigError: ``[tls]`` does not fit the URL, or a file of it cannot be used."""
        tls, url = config.tls, config.broker
        if tls is None:
            return cls(url, None)
        if not url.startswith("amqps://"):
            raise ConfigError("tls: the broker's URL is not encrypted; write it as amqps://")
        context = tls.context()
        if tls.certificate is not None:
            url += ("&" if "?" in url else "?") + "auth=external"
        return cls(url, context)

    def check_owner(self, config: PartyFile) -> None:
        """Raise ConfigError where the certificate is another party's, before the broker refuses."""
        if config.tls is None or config.tls.certificate is None:
            return
        owner = common_name(config.tls.certificate.read_bytes())
        # A broker may take users by another name than that; then it is no party's name.
        if owner is not None and owner != config.party and is_name(owner):
            raise ConfigError(
                f"tls.certificate: {config.tls.certificate} is the certificate of {owner!r}, not "
                f"of {config.party}; put its own beside the party's file"
            )
