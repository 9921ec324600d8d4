"""Why there is no connection: our words, whatever the broker and its client library say."""

from __future__ import annotations

import pytest

from fedmq.transport.rabbitmq.address import BrokerAddress, no_login, unreached

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
