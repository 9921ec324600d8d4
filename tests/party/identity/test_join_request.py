"""The file that a newcomer sends, and what comes back: signed, whole, and for its own key."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedmq.errors import ConfigError
from fedmq.party.identity.joining import JoinRequest, SignedCertificate, write_signed
from fedmq.transport.rabbitmq.certificates import Authority, common_name, expiry, fits, new_request
from fedmq.transport.sealing.keys import PrivateKeys


@pytest.fixture
def keys() -> PrivateKeys:
    return PrivateKeys.generate()


@pytest.fixture
def path(tmp_path: Path, keys: PrivateKeys) -> Path:
    path = tmp_path / "shop.request.json"
    asked = JoinRequest("demo", "shop", keys.public, new_request("shop")[0])
    path.write_text(asked.dumps(keys))
    return path


def test_a_request_returns_from_its_file(path: Path, keys: PrivateKeys) -> None:
    found = JoinRequest.read(path)
    assert (found.federation, found.party, found.public) == ("demo", "shop", keys.public)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("party", "bank"),
        ("federation", "other"),
        ("keys", str(PrivateKeys.generate().public)),
        ("certificate_request", new_request("shop")[0].decode()),
        ("signature", "00" * 64),
    ],
    ids=["party", "federation", "keys", "certificate request", "signature"],
)
def test_a_request_that_was_altered_is_refused(path: Path, field: str, value: str) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ConfigError, match=f"^{path}: was altered since it was made"):
        JoinRequest.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "fedmq join request 1"}', "\udcff"])
def test_what_is_no_request_is_one_line(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=f"^{path}: this is no request of fedmq join"):
        JoinRequest.read(path)


def test_nobody_asks_for_another_partys_certificate(tmp_path: Path, keys: PrivateKeys) -> None:
    path = tmp_path / "request.json"
    path.write_text(JoinRequest("demo", "shop", keys.public, new_request("bank")[0]).dumps(keys))
    with pytest.raises(ConfigError, match="the certificate request is not of shop"):
        JoinRequest.read(path)


def test_a_signed_certificate_is_for_the_key_that_stayed_at_home(tmp_path: Path) -> None:
    authority = Authority.create("demo")
    request, key = new_request("shop")
    pem = authority.sign(request, "shop", days=10)
    assert fits(pem, key)
    assert common_name(pem) == "shop"
    until = expiry(pem)
    assert until is not None
    assert timedelta(days=9) < until - datetime.now(UTC) < timedelta(days=10)
    path = tmp_path / "shop.signed.json"
    write_signed(path, "shop", pem, authority.pem.certificate)
    found = SignedCertificate.read(path)
    found.check_fits("shop", key)
    with pytest.raises(ConfigError, match="of shop, not of bank"):
        found.check_fits("bank", key)
    with pytest.raises(ConfigError, match="for another key than shop has"):
        found.check_fits("shop", new_request("shop")[1])


def test_a_certificate_is_renewed_for_the_same_key_and_names() -> None:
    authority = Authority.create("demo")
    server = authority.server(["mq.example.org", "127.0.0.1"])
    renewed = authority.renewed(server.certificate, days=900)
    assert fits(renewed, server.key)
    names, again = (
        x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        for pem in (server.certificate, renewed)
    )
    assert names == again
    before, after = expiry(server.certificate), expiry(renewed)
    assert before is not None
    assert after is not None
    assert after > before
    with pytest.raises(ConfigError, match="this authority did not sign the certificate"):
        Authority.create("demo").renewed(server.certificate)
