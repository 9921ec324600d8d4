"""The address of a broker, and one-line reasons why it cannot be reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qs, unquote, urlsplit

from fedmq.errors import ConfigError

__all__ = ["BrokerAddress", "no_login", "no_vhost", "out_of_date", "silent", "unreached"]

_TIME = "%Y-%m-%d %H:%M UTC"

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


def no_login(address: BrokerAddress) -> str:
    """The broker does not take the user's password, or has no user of the certificate's name."""
    if address.by_certificate:
        return (
            f"broker {address} knows no user with this certificate's name; its operator adds "
            "the party with: fedmq broker sign, and loads the result"
        )
    return f"broker {address} refuses user {address.user!r}; check the user's name and password"


def no_vhost(address: BrokerAddress) -> str:
    """The broker takes the user, and does not let it into the virtual host."""
    return (
        f"broker {address} does not let user {address.user!r} into virtual host "
        f"{address.vhost!r}; check that it exists and that the user has permissions there"
    )


def silent(address: BrokerAddress) -> str:
    """The broker did not answer in time."""
    return f"broker {address} does not answer; check host and port, and that it speaks AMQP"


def out_of_date(address: BrokerAddress, begin: datetime, end: datetime, now: datetime) -> str:
    """The broker's certificate is not good ``now``, by this machine's clock."""
    return (
        f"broker {address} cannot be trusted: its certificate is good from {begin:{_TIME}} to "
        f"{end:{_TIME}}, and this machine's clock says {now:{_TIME}}; set the clock, or if it is "
        "right, let the broker's operator renew the certificate"
    )


def unreached(address: BrokerAddress, why: str) -> str:
    """There is no connection to log in on; ``why`` in the words of the client library."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return f"broker {address} cannot be trusted ({why}); check its certificate, and tls.ca"
    if "CERTIFICATE_REQUIRED" in why:
        return (
            f"broker {address} requires a certificate; name this party's under tls.certificate "
            "and tls.key"
        )
    # A TLS server refuses with an alert, or hangs up before the alert arrives.
    if address.by_certificate and ("_ALERT_" in why or "reset" in why):
        return (
            f"broker {address} closes the connection ({why}); if it runs, it refuses this "
            "party's certificate: fedmq party list PARTY shows until when it is valid, and "
            "the broker's operator renews it"
        )
    if address.url.startswith("amqps:") and "reset" in why:
        return (
            f"broker {address} closes the connection ({why}); check host and port, that it "
            "runs, and whether it requires a certificate (tls.certificate)"
        )
    return f"broker {address} cannot be reached ({why}); check host and port, and that it runs"
