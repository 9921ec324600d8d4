"""A party that garbles a false circuit is caught as it trains, and others are convinced of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from fedmq.accountability.certificate import check_certificate
from fedmq.errors import ConfigError, DataError, FedmqError
from fedmq.party.configuration.federation import Federation
from fedmq.party.store.certificates import Certificate
from fedmq.privacy.hidden_sums import copies, passive
from tests.accountability.audited import KEYS, AuditedDaemons
from tests.cli.command import fedmq
from tests.privacy.hidden_sums.test_copies import another_share, lying

FEDERATION = Federation(
    name="demo",
    active="bank",
    passive=("telco", "retail"),
    keys={party: (str(keys.public),) for party, keys in KEYS.items()},
)
OPTIONS = {"sums": "hidden", "covert": 2}


@pytest.fixture
async def caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """The folder of daemons of which a passive party garbled another circuit, and its name."""
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    honest = passive.garble_copies

    def garble(*args: Any) -> Any:
        return lying(another_share(0))(honest(*args))

    with pytest.MonkeyPatch.context() as lies:
        lies.setattr(copies, "secrets", SimpleNamespace(randbelow=lambda _: 1))
        lies.setattr(passive, "garble_copies", garble)
        await daemons.start()
        with pytest.raises(FedmqError, match="not those that its seeds give") as found:
            await daemons.train("m", 1, "lattice", **OPTIONS)
        await daemons.stop()
    return tmp_path, str(found.value).partition(":")[0].split()[-1]


@pytest.mark.long
async def test_others_are_convinced_by_the_file_alone(caught: tuple[Path, str]) -> None:
    folder, party = caught
    kept = folder / "bank" / "state" / "certificates"
    [path] = kept.iterdir()
    assert path.stat().st_mode & 0o077 == 0
    assert f'"certificate": "{path}"' in (folder / "bank" / "state" / "audit.jsonl").read_text()
    shown = await asyncio.to_thread(
        fedmq,
        *("transcript", "verify-certificate", path),
        *("--federation", folder / "federation.toml"),
    )
    assert shown.code == 0, shown.err
    assert f"{party} garbled a false circuit: session " in shown.out
    federation = Federation.read(folder / "federation.toml")
    assert_it_is_about_this_session_alone(Certificate.read(path), federation)


def assert_it_is_about_this_session_alone(certificate: Certificate, federation: Federation) -> None:
    assert check_certificate(certificate, federation)["copy"] == 0
    [other] = set(federation.passive) - {certificate.passive}
    for changed in (
        replace(certificate, session="0" * 16),
        replace(certificate, attempt=certificate.attempt + 1),
        replace(certificate, active=other),
        replace(certificate, passive=other),
    ):
        with pytest.raises(DataError, match=r"has not signed it with a key of the federation"):
            check_certificate(changed, federation)
    with pytest.raises(ConfigError, match="has no key of stranger"):
        check_certificate(replace(certificate, passive="stranger"), federation)
    without_keys = Federation(name="demo", active="bank", passive=federation.passive)
    with pytest.raises(ConfigError, match=f"has no key of {certificate.passive}"):
        check_certificate(certificate, without_keys)
    with pytest.raises(DataError, match="the proof cannot be read"):
        check_certificate(replace(certificate, proof=certificate.proof[:-1]), federation)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a certificate"),
        (msgpack.packb([1, 2]), "not a certificate"),
        (msgpack.packb(["other", 1, "a", "b", "c", 1, b""]), "not a certificate"),
        (msgpack.packb(["fedmq.certificate", 2, "a", "b", "c", 1, b""]), "version 2 is unknown"),
    ],
)
def test_a_file_that_is_no_certificate_is_named(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.certificate"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}: {reason}"):
        Certificate.read(path)
