from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.health import certificate_expiry, certificate_warnings
from fedmq.transport.rabbitmq.certificates import Authority, new_request


@pytest.fixture
def config(tmp_path: Path) -> PartyFile:
    request, key = new_request("telco")
    authority = Authority.create("demo")
    for name, pem in {
        "ca": authority.pem.certificate,
        "party": authority.sign(request, "telco", days=100),
        "key": key,
    }.items():
        (tmp_path / f"{name}.pem").write_bytes(pem)
    document = {
        "party": "telco",
        "federation": "federation.toml",
        "broker": "amqps://telco@127.0.0.1/",
        "data": {"path": "data.csv", "id": "id"},
        "tls": {
            name: str(tmp_path / f"{file}.pem")
            for name, file in (("ca", "ca"), ("certificate", "party"), ("key", "key"))
        },
    }
    return PartyFile.model_validate(document)


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0, None),
        (69, None),
        (72, "it expires on"),
        (99, "it expires on"),
        (101, "it has expired on"),
    ],
)
def test_a_certificate_is_warned_of_from_thirty_days_on(
    config: PartyFile, days: int, words: str | None
) -> None:
    until = certificate_expiry(config)
    assert until is not None
    now = datetime.now(UTC) + timedelta(days=days)
    lines = certificate_warnings(config, now)
    assert lines == (
        ()
        if words is None
        else (
            f"tls.certificate: {words} {until:%Y-%m-%d}, and this machine's clock says "
            f"{now:%Y-%m-%d}; if that is right, the broker's operator renews it with: "
            "fedmq broker renew FOLDER telco",
        )
    )
