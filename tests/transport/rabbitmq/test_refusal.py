"""Why there is no connection: our words, whatever the broker and its client library say."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import LinkError
from fedmq.transport.rabbitmq import certificates
from fedmq.transport.rabbitmq.address import BrokerAddress, no_login, unreached
from fedmq.transport.rabbitmq.certificates import Authority
from fedmq.transport.rabbitmq.connection import BrokerConnection

PASSWORD = "amqp://bank:secret@mq:5672/"
TLS = "amqps://bank@mq:5671/"
CERTIFICATE = f"{TLS}?auth=external"


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (PASSWORD, "check the user's name and password"),
        (CERTIFICATE, "knows no user with this certificate's name"),
    ],
    ids=["password", "certificate"],
)
def test_a_login_that_is_refused_speaks_of_what_it_was_tried_with(url: str, line: str) -> None:
    refusal = no_login(BrokerAddress.parse(url))
    assert line in refusal
    assert "secret" not in refusal


@pytest.mark.parametrize(
    ("url", "why", "line"),
    [
        (CERTIFICATE, "Connection reset by peer", "refuses this party's certificate"),
        (CERTIFICATE, "TLSV1_ALERT_UNKNOWN_CA", "refuses this party's certificate"),
        (CERTIFICATE, "SSLV3_ALERT_CERTIFICATE_EXPIRED", "shows until when it is valid"),
        (CERTIFICATE, "CERTIFICATE_VERIFY_FAILED", "check its certificate, and tls.ca"),
        (TLS, "TLSV13_ALERT_CERTIFICATE_REQUIRED", "name this party's under tls.certificate"),
        (TLS, "Connection reset by peer", "whether it requires a certificate"),
        (TLS, "Connection refused", "check host and port, and that it runs"),
        (PASSWORD, "Connection reset by peer", "check host and port, and that it runs"),
    ],
    ids=[
        "reset at a certificate",
        "unknown authority",
        "expired",
        "another broker",
        "none",
        "reset without a certificate",
        "refused over TLS",
        "reset in the clear",
    ],
)
def test_no_connection_is_one_line_that_says_what_to_look_at(url: str, why: str, line: str) -> None:
    refusal = unreached(BrokerAddress.parse(url), why)
    assert refusal.startswith("broker mq:567")
    assert line in refusal
    assert "secret" not in refusal


@pytest.mark.parametrize(
    ("days", "valid"), [(4, True), (30, False), (-800, False)], ids=["days", "a month", "expired"]
)
async def test_a_clock_may_be_days_behind_and_one_that_is_wrong_by_more_is_named_with_both_times(
    days: int, valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's certificate is made so many days ahead of this machine's clock."""
    made = datetime.now(UTC) + timedelta(days=days)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return made

    authority = Authority.create("demo") if days < 0 else None
    monkeypatch.setattr(certificates, "datetime", Clock)
    authority = authority or Authority.create("demo")
    shown = authority.server(["127.0.0.1"])
    (tmp_path / "ca.pem").write_bytes(authority.pem.certificate)
    (tmp_path / "broker.pem").write_bytes(shown.certificate + shown.key)
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(tmp_path / "broker.pem")
    trusts = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=serves) as server:
        port = server.sockets[0].getsockname()[1]
        address = BrokerAddress.parse(f"amqps://bank@127.0.0.1:{port}/?auth=external")
        with pytest.raises(LinkError) as caught:
            await BrokerConnection.open(address, "test", trusts)
    told = "its certificate is good from" in str(caught.value)
    assert told != valid, caught.value
    assert ("cannot be trusted" in str(caught.value)) != valid
    if told:
        assert f"to {made + timedelta(days=certificates.DAYS):%Y-%m-%d %H:%M} UTC" in str(
            caught.value
        )
        assert f"this machine's clock says {datetime.now(UTC):%Y-%m-%d}" in str(caught.value)
