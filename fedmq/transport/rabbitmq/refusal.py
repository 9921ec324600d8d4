"""Why there is no connection to a broker, in one line that says what to look at."""

from __future__ import annotations

from fedmq.transport.rabbitmq.address import BrokerAddress

__all__ = ["no_login", "no_vhost", "silent", "unreached"]


def no_login(address: BrokerAddress) -> str:
    """The broker does not take the user's password, or has no user of the certificate's name."""
    if address.by_certificate:
        return (
            f"broker {address} knows no user of this certificate's name; its operator lets the "
            "party in with: fedmq broker sign, and loads that"
        )
    return f"broker {address} refuses user {address.user!r}; check the user's name and password"


def no_vhost(address: BrokerAddress) -> str:
    """The broker takes the user, and does not let it into the virtual host."""
    return (
        f"broker {address} does not let user {address.user!r} into virtual host "
        f"{address.vhost!r}; check that it exists and that the user has permissions there"
    )


def silent(address: BrokerAddress) -> str:
    """Nothing was answered in time."""
    return f"broker {address} does not answer; check host and port, and that it speaks AMQP"


def unreached(address: BrokerAddress, why: str) -> str:
    """There is no connection to log in on; ``why`` in the words of the client library."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return f"broker {address} cannot be trusted ({why}); check its certificate, and tls.ca"
    if "CERTIFICATE_REQUIRED" in why:
        return (
            f"broker {address} wants a certificate; name this party's under tls.certificate and "
            "tls.key"
        )
    # A TLS server says no by an alert, or hangs up before that has arrived.
    if address.by_certificate and ("_ALERT_" in why or "reset" in why):
        return (
            f"broker {address} hangs up ({why}); if it runs, it does not take this party's "
            "certificate: fedmq party list PARTY shows until when that is good, and the broker's "
            "operator renews it"
        )
    if address.url.startswith("amqps:") and "reset" in why:
        return (
            f"broker {address} hangs up ({why}); check host and port, that it runs, and whether it "
            "wants a certificate (tls.certificate)"
        )
    return f"broker {address} cannot be reached ({why}); check host and port, and that it runs"
