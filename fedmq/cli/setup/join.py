"""``fedmq join``: an organisation makes its own keys at home, and sends one file."""

from __future__ import annotations

from pathlib import Path

import click

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.setup.daemon_reload import taken_up
from fedmq.cli.setup.owner_file import write_private, write_public
from fedmq.cli.setup.templates import align_toml, federation_toml, party_toml, train_toml
from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.toml_file import read_toml
from fedmq.party.identity import private_keys
from fedmq.party.identity.joining import JoinRequest, SignedCertificate
from fedmq.party.identity.private_keys import KeyRing
from fedmq.transport.rabbitmq.certificates import new_request
from fedmq.transport.rabbitmq.topology import check_name
from fedmq.transport.sealing.keys import PrivateKeys

__all__ = ["join"]

_ALIGNMENT = "customers"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--party", help="This organisation's name in the federation.")
@click.option("--federation", "name", default="demo", show_default=True, help="Its name.")
@click.option("--active", is_flag=True, help="This party holds the label.")
@click.option("--broker", help="HOST:PORT of the broker.")
@click.option(
    "--signed",
    type=click.Path(path_type=Path),
    help="The operator's answer: put the certificate in its place, also a renewed one.",
)
@click.option(
    "--members",
    type=click.Path(path_type=Path),
    help="The federation.toml of a member, once that has added this party.",
)
@json_option
def join(
    folder: Path,
    party: str | None,
    name: str,
    active: bool,
    broker: str | None,
    signed: Path | None,
    members: Path | None,
    as_json: bool,
) -> None:
    """Make a party's own FOLDER, with keys that nobody else has seen; later complete it.

    First: --party, --broker, and --active at the label holder. The file PARTY.request.json goes to
    the broker's operator and to every member; it holds nothing secret. Then, with what comes back:
    --signed, and --members. A running daemon takes both up at once.
    """
    if signed is None and members is None:
        if party is None or broker is None:
            raise click.UsageError("a new folder needs --party and --broker")
        _begin(folder, check_name("party", party), name, active, broker, as_json)
        return
    config = read_toml(folder / "party.toml", PartyFile)
    if signed is not None:
        _install(config, signed)
    if members is not None:
        _adopt(config, members)
    result = {"party": config.party, "folder": str(folder), "daemon": taken_up(config)}
    words = f"{folder}: the files are in their places; {result['daemon']}"
    print_result(result, as_json, lambda _: words)
    print_next_step(as_json, "party list", folder / "party.toml")


def _begin(folder: Path, party: str, name: str, active: bool, broker: str, as_json: bool) -> None:
    check_name("federation", name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: the folder is not empty; choose another one")
    keys = PrivateKeys.generate()
    request, key = new_request(party)
    url = f"amqps://{party}@{broker}/"
    text = party_toml(party, url, labelled=active, serving=False, federation="federation.toml")
    write_private(folder / "party.toml", text)
    private_keys.write(folder / "keys.json", KeyRing(party, keys))
    write_private(folder / "tls" / "party.key", key.decode())
    if active:
        own = federation_toml(name, party, (), {party: keys.public})
        write_public(folder / "federation.toml", own)
        write_public(folder / "align.toml", align_toml(_ALIGNMENT))
        write_public(folder / "train.toml", train_toml(50, _ALIGNMENT))
    file = folder / f"{party}.request.json"
    asked = JoinRequest(name, party, keys.public, request)
    write_public(file, asked.dumps(keys))
    result = {"party": party, "request": str(file), "fingerprint": keys.public.fingerprint}
    print_result(
        result,
        as_json,
        lambda done: (
            f"{party}: {done['fingerprint']}\n{done['request']} goes to the broker's "
            "operator and to every member, who compare this fingerprint with you by telephone"
        ),
    )
    print_next_step(as_json, "join", folder, f"--signed {party}.signed.json")


def _install(config: PartyFile, path: Path) -> None:
    tls = config.tls
    if tls is None or tls.certificate is None or tls.key is None:
        raise ConfigError("tls: the party's file names no certificate and key to put there")
    found = SignedCertificate.read(path)
    try:
        found.check_fits(config.party, tls.key.read_bytes())
    except OSError as error:
        raise ConfigError(f"{tls.key}: cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    write_public(tls.ca, found.authority.decode(), replace=True)
    write_public(tls.certificate, found.certificate.decode(), replace=True)


def _adopt(config: PartyFile, path: Path) -> None:
    """Take the members' federation file, once it names this party with its own keys."""
    federation = Federation.read(path)
    ring = private_keys.read(config.keys, config.party)
    if config.party not in federation.parties:
        raise ConfigError(
            f"{path}: {config.party} is not among the parties: {', '.join(federation.parties)}; "
            "its owner adds it with: fedmq party add"
        )
    if ring.current.public not in federation.pinned(config.party):
        raise ConfigError(f"{path}: keys.{config.party}: these are not the keys in {config.keys}")
    write_public(config.federation, path.read_text(encoding="utf-8-sig"), replace=True)
