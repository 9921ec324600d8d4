"""The folder of a broker's operator: settings, definitions, certificates, and a private node."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fedmq
from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.identity.joining import JoinRequest
from fedmq.transport.rabbitmq.certificates import Authority, Certificate
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

    @classmethod
    def read(cls, path: Path) -> BrokerFolder:
        """The folder at ``path``, which `write` has written.

        Raises:
            ConfigError: it is none, or its parties log in with passwords.
        """
        try:
            content = json.loads((path / "definitions.json").read_text(encoding="utf-8"))
            [exchange] = [found for found in content["exchanges"] if found["type"] == "topic"]
            federation = exchange["name"].removeprefix("fedmq.")
            parties = [
                user["name"] for user in content["users"] if "administrator" not in user["tags"]
            ]
        except OSError as error:
            raise ConfigError(f"{path}: is no broker's folder: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}/definitions.json: is not as fedmq wrote it") from None
        if not (path / "authority" / "ca.key").is_file():
            raise ConfigError(
                f"{path}: there is no authority/ca.key, so no certificate can be signed here"
            )
        return cls(path, federation, parties)

    def sign(self, request: JoinRequest, days: int) -> bytes:
        """The certificate for ``request``; its party is a user of the broker from now on.

        Raises:
            ConfigError: the request is for another federation.
        """
        if request.federation != self.federation:
            raise ConfigError(
                f"{request.party} asks to join {request.federation}, and this is the broker of "
                f"{self.federation}"
            )
        pem = self._authority().sign(request.certificate_request, request.party, days)
        self._keep(request.party, pem)
        self._define([*dict.fromkeys([*self.parties, request.party])])
        return pem

    def renew(self, party: str, days: int) -> bytes:
        """The certificate of ``party`` for ``days`` from now on, for the same key.

        Raises:
            ConfigError: none was signed here.
        """
        path = self.path / "issued" / f"{party}.pem"
        if not path.is_file():
            raise ConfigError(
                f"{path}: there is no such file; have {party} send a request: fedmq join"
            )
        pem = self._authority().renewed(path.read_bytes(), days)
        self._keep(party, pem)
        return pem

    def renew_server(self, days: int) -> None:
        """Sign the broker's own certificate anew, for the same key and host names."""
        path = self.path / "tls" / "server.pem"
        write_atomically(path, self._authority().renewed(path.read_bytes(), days))

    def remove(self, party: str) -> None:
        """Make ``party`` no user any more; ConfigError if it is none."""
        if party not in self.parties:
            known = ", ".join(self.parties) or "none"
            raise ConfigError(f"{self.path}: {party} is no user here; there are: {known}")
        self._define([name for name in self.parties if name != party])
        (self.path / "issued" / f"{party}.pem").unlink(missing_ok=True)

    @property
    def authority(self) -> bytes:
        """The certificate (PEM) that parties trust."""
        return (self.path / "authority" / "ca.pem").read_bytes()

    def _authority(self) -> Authority:
        folder = self.path / "authority"
        return Authority.load(
            Certificate((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())
        )

    def _keep(self, party: str, pem: bytes) -> None:
        write_atomically(self.path / "issued" / f"{party}.pem", pem)

    def _define(self, parties: Sequence[str]) -> None:
        content = definitions(self.federation, parties, None)
        text = json.dumps(content, indent=2) + "\n"
        write_atomically(self.path / "definitions.json", text)

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
        for party, client in clients.items():
            self._keep(party, client.certificate)
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
