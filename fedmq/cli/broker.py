"""``fedmq broker``: a broker's folder, its users, and whether it keeps the parties apart."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import fedmq
from fedmq.cli.output import json_option, print_next_step, print_result
from fedmq.errors import ConfigError, LinkError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity.joining import JoinRequest, write_signed
from fedmq.party.operations.broker import Finding, check_broker
from fedmq.transport.rabbitmq.certificates import DAYS, Authority, Certificate, expiry
from fedmq.transport.rabbitmq.definitions import definitions
from fedmq.transport.rabbitmq.topology import check_name

__all__ = ["BrokerFolder", "broker"]


@click.group()
def broker() -> None:
    """Make a broker's folder, add and remove parties, and check that it keeps them apart."""


_folder = click.argument("folder", type=click.Path(path_type=Path))
_days = click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    help="How long the certificate is valid.",
)


@broker.command()
@_folder
@click.option("--name", default="demo", show_default=True, help="The federation's name.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address at which parties reach the broker.",
)
@json_option
def new(folder: Path, name: str, host: str, as_json: bool) -> None:
    """Write the folder of a broker that no party may use yet.

    It belongs to the broker's operator, with the authority that signs the parties' certificates.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: the folder is not empty; choose another one")
    shutil.rmtree(folder, ignore_errors=True)  # it is created with its own mode
    BrokerFolder(folder, check_name("federation", name), ()).write(None, host)
    result = {"folder": str(folder), "federation": name}
    print_result(result, as_json, lambda _: f"{folder} is written")
    print_next_step(as_json, "start", folder, "--port 5671", program=folder / "node")


@broker.command()
@_folder
@click.argument("request", type=click.Path(path_type=Path))
@_days
@json_option
def sign(folder: Path, request: Path, days: int, as_json: bool) -> None:
    """Add the party that sent the file REQUEST: sign its certificate, and make it a user.

    Compare the fingerprint with the party first. The file that is written goes back to it; it
    holds nothing secret.
    """
    asked = JoinRequest.read(request)
    found = BrokerFolder.read(folder)
    pem = found.sign(asked, days)
    signed = request.with_name(f"{asked.party}.signed.json")
    write_signed(signed, asked.party, pem, found.authority)
    result = {
        "party": asked.party,
        "fingerprint": asked.public.fingerprint,
        "file": str(signed),
        "until": _until(pem),
    }
    print_result(result, as_json, _signed)
    _load(folder, as_json)


@broker.command()
@_folder
@click.argument("party", required=False)
@_days
@json_option
def renew(folder: Path, party: str | None, days: int, as_json: bool) -> None:
    """Renew the certificate of PARTY, or the broker's own; keys stay what they are."""
    found = BrokerFolder.read(folder)
    if party is None:
        found.renew_server(days)
        words = "the broker's own certificate is renewed; a restart takes it up: stop, then start"
        print_result({"party": None}, as_json, lambda _: words)
        print_next_step(as_json, "stop", folder, program=folder / "node")
        return
    pem = found.renew(party, days)
    signed = folder.parent / f"{party}.signed.json"
    write_signed(signed, party, pem, found.authority)
    result = {"party": party, "file": str(signed), "until": _until(pem)}
    print_result(
        result,
        as_json,
        lambda done: (
            f"{done['file']} goes to {party}; the certificate is valid until {done['until'][:10]}"
        ),
    )
    print_next_step(as_json, "join", party, "--signed", signed.name)


@broker.command()
@_folder
@click.argument("party")
@json_option
def remove(folder: Path, party: str, as_json: bool) -> None:
    """Remove PARTY: the broker refuses it from now on."""
    BrokerFolder.read(folder).remove(party)
    print_result({"party": party}, as_json, lambda _: f"{party} is removed")
    _load(folder, as_json)


def _until(pem: bytes) -> str:
    until = expiry(pem)
    assert until is not None
    return until.isoformat(timespec="seconds")


def _signed(done: Any) -> str:
    return (
        f"{done['party']}: {done['fingerprint']}\n{done['file']} goes back to {done['party']}; "
        f"the certificate is valid until {done['until'][:10]}"
    )


def _load(folder: Path, as_json: bool) -> None:
    """A running broker loads its users on request."""
    print_next_step(as_json, "load", folder, program=folder / "node")


@broker.command()
@click.argument("parties", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def check(parties: tuple[Path, ...], as_json: bool) -> None:
    """Connect as each of PARTIES, and prove that what must be refused is refused.

    PARTIES are configuration files, such as bank/party.toml. Ends with exit code 5 when the broker
    allows what it must not, or refuses what it must allow.
    """

    async def all_findings() -> list[Finding]:
        return [
            finding for party in parties for finding in await check_broker(*PartyFile.read(party))
        ]

    findings = asyncio.run(all_findings())
    print_result([asdict(finding) for finding in findings], as_json, _in_words)
    wrong = [finding for finding in findings if not finding.right]
    if wrong:
        raise LinkError(
            f"{len(wrong)} of {len(findings)} checks failed, first: {wrong[0].party}: "
            f"{wrong[0].tried}: {wrong[0].answer}"
        )
    print_next_step(as_json, "run", parties[0])


def _in_words(findings: Any) -> str:
    return "\n".join(
        f"{'ok   ' if finding['right'] else 'WRONG'} {finding['party']}: {finding['tried']}: "
        f"{'allowed' if finding['right'] == finding['allowed'] else 'refused'}"
        for finding in findings
    )


# The folder of a broker's operator: settings, definitions, certificates, and a private node.

_HOSTS = ("localhost", "127.0.0.1", "broker")
"""Host names of a broker on its own machine, and inside docker-compose.yml."""


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

        With ``passwords`` parties log in over plain AMQP. Without, they log in over TLS with
        certificates of a new authority, and the broker's own certificate is for ``host``.
        """
        # The files are readable because the broker runs as another user in a container. Other users
        # of this machine cannot enter the folder.
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
        """Load the folder at ``path``, which `write` has written.

        Raises:
            ConfigError: it is no such folder, or its parties log in with passwords.
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
        """Remove the user ``party``; ConfigError if there is none."""
        if party not in self.parties:
            known = ", ".join(self.parties) or "none"
            raise ConfigError(f"{self.path}: {party} is not a user; the users are: {known}")
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
