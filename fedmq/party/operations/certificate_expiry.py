"""Until when a party's certificate lets it log in at its broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fedmq.party.configuration.party import PartyFile
from fedmq.transport.rabbitmq.certificates import expiry

__all__ = ["certificate_expiry", "certificate_warnings"]

_SOON = timedelta(days=30)


def certificate_expiry(config: PartyFile) -> datetime | None:
    """When the certificate that ``config`` names is no longer good; None where there is none."""
    if config.tls is None or config.tls.certificate is None:
        return None
    try:
        return expiry(config.tls.certificate.read_bytes())
    except OSError:
        return None


def certificate_warnings(config: PartyFile, now: datetime | None = None) -> tuple[str, ...]:
    """A line from thirty days before the end on: the broker refuses an old certificate."""
    until, now = certificate_expiry(config), now or datetime.now(UTC)
    if until is None or until - now > _SOON:
        return ()
    what = "expires" if until > now else "has expired"
    return (
        f"tls.certificate: it {what} on {until:%Y-%m-%d}; the broker's operator renews it with: "
        f"fedmq broker renew FOLDER {config.party}",
    )
