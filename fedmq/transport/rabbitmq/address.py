"""Where a broker is, read from its URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from fedmq.errors import ConfigError

__all__ = ["BrokerAddress"]

PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class BrokerAddress:
    """An AMQP URL, taken apart for messages; neither ``str`` nor ``repr`` shows its password."""

    url: str = field(repr=False)
    host: str
    port: int
    user: str
    vhost: str
    by_certificate: bool = False
    """Whether the login is by a certificate (mechanism EXTERNAL), without a password."""

    @classmethod
    def parse(cls, url: str) -> BrokerAddress:
        """Read ``amqp[s]://user:password@host:port/vhost``; ConfigError if it is no such URL."""
        shape = "write it as amqp://user:password@host:port/vhost, or amqps:// for TLS"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            # The parser's own message may quote the password.
            raise ConfigError(f"the broker URL cannot be read; {shape}") from error
        if parts.scheme not in PORTS or not parts.hostname:
            raise ConfigError(f"the broker URL names no AMQP host; {shape}")
        return cls(
            url=url,
            host=parts.hostname,
            port=port or PORTS[parts.scheme],
            user=unquote(parts.username or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
            by_certificate="external" in parse_qs(parts.query).get("auth", ()),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
