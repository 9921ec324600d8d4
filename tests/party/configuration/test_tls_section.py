"""Files for TLS that are missing, mixed up, or something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.configuration.party import TlsSection
from fedmq.transport.rabbitmq.certificates import Authority


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    authority = Authority.create("demo")
    own, other = authority.client("bank"), authority.client("telco")
    contents = {
        "ca": authority.pem.certificate,
        "certificate": own.certificate,
        "key": own.key,
        "other": other.key,
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.pem").write_bytes(content)
    return {name: tmp_path / f"{name}.pem" for name in contents}


def test_files_that_fit_are_a_context(files: dict[str, Path]) -> None:
    TlsSection(ca=files["ca"], certificate=files["certificate"], key=files["key"]).context()


@pytest.mark.parametrize(
    ("ca", "key", "line"),
    [
        ("nowhere", "key", r"^tls: .*nowhere\.pem: there is no such file$"),
        ("key", "key", r"^tls\.ca: .*key\.pem holds no certificate in PEM$"),
        (
            "ca",
            "other",
            r"^tls: .*certificate\.pem and .*other\.pem are no certificate and its key",
        ),
        (
            "ca",
            "certificate",
            r"^tls: .*certificate\.pem and .*certificate\.pem are no certificate",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    files: dict[str, Path], ca: str, key: str, line: str
) -> None:
    nowhere = files["ca"].with_name("nowhere.pem")
    section = TlsSection(
        ca=files.get(ca, nowhere), certificate=files["certificate"], key=files[key]
    )
    with pytest.raises(ConfigError, match=line):
        section.context()
