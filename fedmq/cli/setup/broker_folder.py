"""The folder of a broker's operator: settings, definitions, certificates, and a private node."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fedmq
from fedmq.transport.rabbitmq.certificates import Authority
from fedmq.transport.rabbitmq.definitions import definitions

__all__ = ["BrokerFolder"]

_HOSTS = ("localhost", "127.0.0.1", "broker")
"""Names under which a broker is reached on its own machine, and inside docker-compose.yml."""


@dataclass(frozen=True)
class BrokerFolder:
    """The files with which a broker serves one federation."""

    path: Path
    federation: str
    parties: Sequence[str]

    def write(
        self, passwords: Mapping[str, str] | None, host: str
    ) -> Mapping[str, Mapping[str, bytes]]:
        """Write the folder; returns the certificate files of each party by their names.

        With ``passwords`` parties log in over plain AMQP; without, over TLS with certificates of
        an authority that is made here, and the broker's own certificate is for ``host``.
        """
        # The files are readable, for in a container the broker runs as another user. Other users of
        # this machine cannot enter the folder.
        self.path.mkdir(parents=True, mode=0o700)
        for name in ("enabled_plugins", "node"):
            shutil.copy(_files() / name, self.path / name)
        settings = (_files() / "rabbitmq.conf").read_text(encoding="utf-8")
        if passwords is None:
            settings += "\n" + (_files() / "tls.conf").read_text(encoding="utf-8")
            plugins = "[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n"
            (self.path / "enabled_plugins").write_text(plugins, encoding="utf-8")
        (self.path / "rabbitmq.conf").write_text(settings, encoding="utf-8")
        content = definitions(self.federation, self.parties, passwords)
        text = json.dumps(content, indent=2) + "\n"
        (self.path / "definitions.json").write_text(text, encoding="utf-8")
        return self._certificates(host) if passwords is None else {}

    def _certificates(self, host: str) -> Mapping[str, Mapping[str, bytes]]:
        authority = Authority.create(f"fedmq {self.federation}")
        trusted = authority.pem.certificate
        server = authority.server([*dict.fromkeys([host, *_HOSTS])])
        (self.path / "authority").mkdir(mode=0o700)
        _private(self.path / "authority" / "ca.key", authority.pem.key)
        _private(self.path / "authority" / "ca.pem", trusted)
        (self.path / "tls").mkdir()
        for name, pem in {
            "ca.pem": trusted,
            "server.pem": server.certificate,
            "server.key": server.key,
        }.items():
            (self.path / "tls" / name).write_bytes(pem)
        clients = {party: authority.client(party) for party in self.parties}
        return {
            party: {"ca.pem": trusted, "party.pem": client.certificate, "party.key": client.key}
            for party, client in clients.items()
        }


def _private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _files() -> Path:
    """``brokers/rabbitmq``: inside an installed package, beside it in a source checkout."""
    package = Path(fedmq.__file__).parent
    inside = package / "brokers" / "rabbitmq"
    return inside if inside.exists() else package.parent / "brokers" / "rabbitmq"
