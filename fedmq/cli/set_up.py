"""``fedmq init``, ``join``, ``party`` and ``keys``: how a federation comes to be, and changes.

`init` writes the folders of all parties at once, for parties that trust its user. `join` makes a
party's own folder in steps, with keys that no other party has seen. `party` admits and removes
parties later, and `keys` changes the keys that seal messages.
"""

from __future__ import annotations

import csv
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.broker import BrokerFolder
from fedmq.cli.example_data import ExampleData, breast_cancer
from fedmq.cli.output import (
    asked_for,
    confirm,
    joined,
    json_option,
    print_next_step,
    print_result,
    table,
)
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, taken_up
from fedmq.cli.templates import (
    align_toml,
    compose_file,
    federation_toml,
    party_toml,
    screen_toml,
    train_toml,
)
from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_whole
from fedmq.party.configuration.federation import Federation, add_party, pin, pinned, remove_party
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.toml_file import read_toml
from fedmq.party.identity import private_keys
from fedmq.party.identity.joining import JoinRequest, SignedCertificate, waiting_requests
from fedmq.party.identity.private_keys import PASSPHRASE_VARIABLE, KeyRing, Passphrase
from fedmq.party.identity.token_keys import Token
from fedmq.party.operations.health import certificate_expiry
from fedmq.transport.rabbitmq.certificates import new_request
from fedmq.transport.rabbitmq.topology import check_name
from fedmq.transport.sealing.keys import PrivateKeys, PublicKeys

__all__ = ["ask_passphrase", "init", "join", "keys", "party"]

_PRIVATE_MODE = 0o600
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--active", required=True, help="The party that holds the label.")
@click.option("--passive", multiple=True, required=True, help="Another party; repeat for each.")
@click.option("--name", default="demo", show_default=True, help="The federation's name.")
@click.option("--broker", help="HOST:PORT; 127.0.0.1 and AMQP's usual port when left out.")
@click.option("--no-tls", is_flag=True, help="Passwords over plain AMQP, instead of certificates.")
@click.option("--example", is_flag=True, help="Add breast-cancer data to try it with.")
@json_option
def init(
    folder: Path,
    active: str,
    passive: tuple[str, ...],
    name: str,
    broker: str | None,
    no_tls: bool,
    example: bool,
    as_json: bool,
) -> None:
    """Write a federation into FOLDER: one folder per party, and one for the broker.

    Each party takes its own folder and federation.toml home; the broker's operator takes the
    folder broker. Keys, certificates and passwords are drawn anew; nothing that exists is
    overwritten.

    Parties that do not trust whoever runs this command make keys of their own before they start:
    fedmq keys rotate PARTY --now.
    """
    broker = broker or f"127.0.0.1:{5672 if no_tls else 5671}"
    host = _host(broker)
    parties = (active, *passive)
    check_name("federation", name)
    for party in parties:
        check_name("party", party)
    if len(set(parties)) < len(parties):
        raise ConfigError("a party is named twice")
    if "broker" in parties:
        raise ConfigError("a party may not be named broker: that is the broker's own folder")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: the folder is not empty; choose another one")
    data = breast_cancer(parties) if example else None
    try:
        passwords = {party: secrets.token_urlsafe(24) for party in parties} if no_tls else None
        rings = {party: KeyRing.new(party) for party in parties}
        pins = {party: ring.current.public for party, ring in rings.items()}
        certificates = BrokerFolder(folder / "broker", name, parties).write(passwords, host)
        _create(folder / "federation.toml", federation_toml(name, active, passive, pins))
        for party in parties:
            login = f"{party}:{passwords[party]}" if passwords else party
            url = f"{'amqp' if no_tls else 'amqps'}://{login}@{broker}/"
            text = party_toml(party, url, labelled=party == active, serving=example)
            _create(folder / party / "party.toml", text, _PRIVATE_MODE)
            private_keys.write(folder / party / "keys.json", rings[party])
            for file, pem in certificates.get(party, {}).items():
                _create(folder / party / "tls" / file, pem.decode(), _PRIVATE_MODE)
        _create(folder / "docker-compose.yml", compose_file(parties, passwords), _PRIVATE_MODE)
        alignment = None if example else "customers"
        _create(folder / active / "align.toml", align_toml("customers"))
        _create(folder / active / "screen.toml", screen_toml(alignment))
        _create(folder / active / "train.toml", train_toml(5 if example else 50, alignment))
        if data is not None:
            _write_example(folder, active, data)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}") from None
    result = {"folder": str(folder), "federation": name, "parties": list(parties)}
    print_result(result, as_json, lambda _: _next_steps(folder, parties, broker, example))


def _host(broker: str) -> str:
    """The host of HOST:PORT; ConfigError if it is anything else."""
    found = _ADDRESS.fullmatch(broker)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ConfigError(f"--broker {broker}: write it as HOST:PORT, such as mq.example.org:5671")
    return found["host"].strip("[]")


def _write_example(folder: Path, active: str, data: ExampleData) -> None:
    """Write a training table and a serving table for each party, and ids to score."""
    for party, names in data.names.items():
        label = {"label": data.label} if party == active else {}
        header = ["id", *label, *names]
        rows = list(zip(data.ids, *label.values(), *data.columns[party].T, strict=True))
        train = [row for row, test in zip(rows, data.test, strict=True) if not test]
        _write_csv(folder / party / "data.csv", header, train)
        _write_csv(folder / party / "serving.csv", header, rows)
    ids = [(person,) for person, test in zip(data.ids, data.test, strict=True) if test]
    _write_csv(folder / active / "ids.csv", ["id"], ids)


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _next_steps(folder: Path, parties: Sequence[str], broker: str, example: bool) -> str:
    """The next steps of all parties; with ``example`` the tables exist already."""
    active, port = parties[0], broker.rpartition(":")[2]
    files = [f"{folder}/{party}/party.toml" for party in parties]
    begin = [
        "A broker, then one daemon per party:",
        f"  {folder}/broker/node start {folder}/broker --port {port}",
        *(f"  fedmq run {file}" for file in files),
    ]
    tables = [
        "Every party names its table under [data] in its party.toml, and looks at it:",
        *(f"  fedmq data check {file}" for file in files),
    ]
    shared = [
        "Then find the people that all share, and train:",
        f"  fedmq align {folder}/{active}/align.toml",
    ]
    steps = [*begin, "Then:"] if example else [*tables, *begin, *shared]
    return "\n".join(
        [f"{folder} is written.", *steps, f"  fedmq train {folder}/{active}/train.toml"]
    )


# Keys that are pinned already are replaced only when somebody has compared fingerprints.

replace_key_option = click.option(
    "--replace-key",
    "replaced",
    multiple=True,
    metavar="NAME",
    help="Replace the pinned keys of the party NAME without asking; repeat for each.",
)


def _ask_about(changes: Mapping[str, str], replaced: Sequence[str]) -> None:
    """Show each of the ``changes`` by party, and ask about those that are not in ``replaced``."""
    for words in changes.values():
        click.echo(words, err=True)
    if changes.keys() - set(replaced):
        click.echo("Compare the fingerprints with their owners by telephone first.", err=True)
        confirm("Replace what is pinned?", "--replace-key NAME")


def _fingerprints(keys: Sequence[PublicKeys]) -> str:
    return ", ".join(key.fingerprint for key in keys) or "no keys"


# fedmq join: an organisation makes its own keys locally, and sends one file.

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
    help="The operator's answer, with a new or renewed certificate.",
)
@click.option(
    "--members",
    type=click.Path(path_type=Path),
    help="The federation.toml of a member that has added this party.",
)
@replace_key_option
@json_option
def join(
    folder: Path,
    party: str | None,
    name: str,
    active: bool,
    broker: str | None,
    signed: Path | None,
    members: Path | None,
    replaced: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a party's own FOLDER, with keys that no other party has seen; later complete it.

    First: --party, --broker, and --active at the active party. The file PARTY.request.json goes to
    the broker's operator and to every member; it holds nothing secret. Then, with what comes back:
    --signed, and --members. A running daemon takes both up at once. Where --members would change
    parties or keys that are pinned already, the command shows both fingerprints and asks.
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
        _adopt(config, members, replaced)
    missing = _missing(config)
    result = {
        "party": config.party,
        "folder": str(folder),
        "daemon": taken_up(config, "certificate or members taken from a file"),
        "missing": missing,
    }
    words = f"{folder}: the files are in their places; {result['daemon']}"
    if missing:
        words = f"{folder}: not complete yet; still missing: {', '.join(missing.values())}"
    print_result(result, as_json, lambda _: words)
    if "members" in missing:
        print_next_step(as_json, "join", folder, "--members federation.toml")
    elif "signed" in missing:
        print_next_step(as_json, "join", folder, f"--signed {config.party}.signed.json")
    elif "parties" in missing:
        adding = "NAME.request.json --fingerprint FINGERPRINT"
        print_next_step(as_json, "party add", folder / "party.toml", adding)
    else:
        print_next_step(as_json, "party list", folder / "party.toml")


def _missing(config: PartyFile) -> dict[str, str]:
    """By option what the folder lacks before its daemon can start, in words."""
    missing = {}
    if config.tls is not None and config.tls.certificate and not config.tls.certificate.exists():
        missing["signed"] = "the certificate, from the broker's operator (--signed)"
    if not config.federation.exists():
        missing["members"] = "federation.toml, from a member who has added this party (--members)"
    elif not Federation.read(config.federation).passive:
        missing["parties"] = "another party than this one (fedmq party add)"
    return missing


def _begin(folder: Path, party: str, name: str, active: bool, broker: str, as_json: bool) -> None:
    check_name("federation", name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: the folder is not empty; choose another one")
    keys = PrivateKeys.generate()
    request, key = new_request(party)
    url = f"amqps://{party}@{broker}/"
    text = party_toml(party, url, labelled=active, serving=False, federation="federation.toml")
    _write_private(folder / "party.toml", text)
    private_keys.write(folder / "keys.json", KeyRing(party, keys))
    _write_private(folder / "tls" / "party.key", key.decode())
    if active:
        own = federation_toml(name, party, (), {party: keys.public})
        _write_public(folder / "federation.toml", own)
        _write_public(folder / "align.toml", align_toml(_ALIGNMENT))
        _write_public(folder / "screen.toml", screen_toml(_ALIGNMENT))
        _write_public(folder / "train.toml", train_toml(50, _ALIGNMENT))
    file = folder / f"{party}.request.json"
    asked = JoinRequest(name, party, keys.public, request)
    _write_public(file, asked.dumps(keys))
    result = {"party": party, "request": str(file), "fingerprint": keys.public.fingerprint}
    print_result(
        result,
        as_json,
        lambda done: (
            f"{party}: {done['fingerprint']}\n{done['request']} goes to the broker's operator "
            "and to every member, and each compares this fingerprint with you by telephone"
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
    _write_public(tls.ca, found.authority.decode(), replace=True)
    _write_public(tls.certificate, found.certificate.decode(), replace=True)


def _adopt(config: PartyFile, path: Path, replaced: Sequence[str]) -> None:
    """Take the members' federation file, once it names this party with its own keys.

    What is pinned already changes only for the ``replaced`` parties, or after a question.
    """
    federation = Federation.read(path)
    ring = private_keys.read(config.keys, config.party, _passphrase_of(config))
    if config.party not in federation.parties:
        raise ConfigError(
            f"{path}: {config.party} is not among the parties: {', '.join(federation.parties)}; "
            "its owner adds it with: fedmq party add"
        )
    if ring.current.public not in federation.pinned(config.party):
        raise ConfigError(f"{path}: keys.{config.party}: these are not the keys in {config.keys}")
    if config.federation.exists():
        before = Federation.read(config.federation)
        if federation.name != before.name:
            raise ConfigError(
                f"{path}: name = {federation.name!r}: this party is in federation {before.name!r}"
            )
        _ask_about(_changed_parties(before, federation, config.party), replaced)
    _write_public(config.federation, path.read_text(encoding="utf-8-sig"), replace=True)


def _changed_parties(before: Federation, after: Federation, own: str) -> dict[str, str]:
    """By party other than ``own``, in words, how its pinned keys or its part would change."""
    changes = {}
    for party in dict.fromkeys((*before.parties, *after.parties)):
        old, new = before.pinned(party), after.pinned(party)
        if party not in after.parties:
            changes[party] = f"{party} would be no party any more: {_fingerprints(old)}"
        elif party not in before.parties:
            changes[party] = f"{party} would be a new party: {_fingerprints(new)}"
        elif (party == before.active) != (party == after.active):
            part = "the active party" if party == after.active else "a passive party"
            changes[party] = f"{party} would be {part}: {_fingerprints(new)}"
        elif party != own and set(new) - set(old):
            changes[party] = (
                f"{party} is pinned as {_fingerprints(old)}\n{party} would be {_fingerprints(new)}"
            )
    return changes


# fedmq party: members of the federation, and their changes.


@click.group(epilog=PARTY_HELP)
def party() -> None:
    """List, add and remove the parties of the federation."""


@party.command("list", epilog=PARTY_HELP)
@party_argument
@json_option
def list_parties(party: Path, as_json: bool) -> None:
    """List the parties that PARTY knows, with the fingerprints of their keys."""
    config = read_toml(party, PartyFile)
    federation = Federation.read(config.federation)
    until = certificate_expiry(config)
    result = {
        "parties": [
            {
                "party": name,
                "role": "active" if name == federation.active else "passive",
                "own": name == config.party,
                "fingerprints": [keys.fingerprint for keys in federation.pinned(name)],
            }
            for name in federation.parties
        ],
        "certificate_until": None if until is None else until.isoformat(timespec="seconds"),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "data check", party)


@party.command(epilog=PARTY_HELP)
@party_argument
@json_option
def requests(party: Path, as_json: bool) -> None:
    """List the join requests that wait in the folder requests beside PARTY.

    Save there what newcomers send. Those of parties that have joined are left out.
    """
    config = read_toml(party, PartyFile)
    federation = Federation.read(config.federation)
    members = {name: federation.pinned(name) for name in federation.parties}
    found = waiting_requests(config.requests, members)
    rows = [(each.file, each.party or each.error) for each in found]
    print_result(
        [asdict(each) for each in found],
        as_json,
        lambda _: table(("file", "party"), rows) if rows else f"{config.requests}: nobody waits",
    )
    waiting = next((each.file for each in found if each.party), None)
    if waiting is None:
        print_next_step(as_json, "party list", party)
    else:
        print_next_step(as_json, "party add", party, config.requests / waiting)


@party.command(epilog=PARTY_HELP)
@party_argument
@click.argument("request", type=click.Path(path_type=Path))
@click.option(
    "--fingerprint",
    help="The fingerprint that the newcomer reads out; the command asks for it when left out.",
)
@json_option
def add(party: Path, request: Path, fingerprint: str | None, as_json: bool) -> None:
    """Add the party that made the file REQUEST, with the keys in it.

    Its owner reads the fingerprint to you. All members add newcomers in the same order. A
    running daemon takes it up at once.
    """
    config = read_toml(party, PartyFile)
    asked = JoinRequest.read(request)
    federation = Federation.read(config.federation)
    if fingerprint is None and asked.federation == federation.name:
        fingerprint = asked_for(
            f"The fingerprint that {asked.party} reads out", "--fingerprint FINGERPRINT"
        )
    asked.check(federation.name, fingerprint or "", str(request))
    add_party(config.federation, asked.party, asked.public)
    words = f"{asked.party} is a party, {asked.public.fingerprint}; " + taken_up(
        config, "party added", party=asked.party, fingerprint=asked.public.fingerprint
    )
    print_result({"party": asked.party}, as_json, lambda _: words)
    print_next_step(as_json, "party list", party)


@party.command(epilog=PARTY_HELP)
@party_argument
@click.argument("name")
@json_option
def remove(party: Path, name: str, as_json: bool) -> None:
    """Remove the party NAME: this party opens none of its messages from now on.

    Its sessions end. Models without its records remain; the broker's operator also runs
    fedmq broker remove.
    """
    config = read_toml(party, PartyFile)
    if name == config.party:
        raise ConfigError(f"{name} is this party itself; the others remove it")
    remove_party(config.federation, name)
    words = f"{name} is removed; " + taken_up(config, "party removed", party=name)
    print_result({"party": name}, as_json, lambda _: words)
    print_next_step(as_json, "party list", party)


def _in_words(result: Any) -> Text:
    rows = [
        (
            found["party"] + " (here)" * found["own"],
            found["role"],
            ", ".join(found["fingerprints"]) or "no keys",
        )
        for found in result["parties"]
    ]
    until = result["certificate_until"]
    return joined(
        table(("party", "role", "fingerprint"), rows),
        f"this party's certificate is valid until {until[:10]}" if until else "",
    )


# fedmq keys: the keys that seal messages between the parties.


def ask_passphrase() -> str:
    """The passphrase, from the environment or the terminal."""
    if PASSPHRASE_VARIABLE in os.environ or not sys.stdin.isatty():
        return private_keys.passphrase_from_environment()
    answer: str = click.prompt("Passphrase of the private keys", hide_input=True, err=True)
    return answer


def _passphrase_of(config: PartyFile) -> Passphrase:
    return private_keys.passphrase_from(config.keys_passphrase, ask_passphrase)


def _new_passphrase(wanted: bool) -> str | None:
    if not wanted:
        return None
    if PASSPHRASE_VARIABLE in os.environ:
        return os.environ[PASSPHRASE_VARIABLE]
    prompt = "New passphrase of the private keys"
    answer: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
    return answer


locked_option = click.option(
    "--passphrase",
    "locked",
    is_flag=True,
    help=f"Lock the file with a passphrase, from {PASSPHRASE_VARIABLE} or the terminal.",
)


@click.group(epilog=PARTY_HELP)
def keys() -> None:
    """Make, show, change and trust the keys that seal messages between the parties."""


@keys.command(epilog=PARTY_HELP)
@party_argument
@locked_option
@click.option("--token", "label", help="Make them on the PKCS#11 token of this name instead.")
@click.option(
    "--module",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="The PKCS#11 library of the token.",
)
@json_option
def new(party: Path, locked: bool, label: str | None, module: Path | None, as_json: bool) -> None:
    """Make the keys of PARTY, and pin the public ones in its federation file.

    On a token they are made there and never leave it; FEDMQ_KEYS_PASSPHRASE, or an answer at the
    terminal, is its PIN.
    """
    config = read_toml(party, PartyFile)
    if config.keys.exists():
        raise ConfigError(
            f"{config.keys}: there are keys already; "
            + (
                "before the daemon runs, move that file away, then make keys on the token"
                if label
                else "change them with: fedmq keys rotate"
            )
        )
    if (label is None) != (module is None) or (label and locked):
        raise ConfigError("--token and --module go together, and without --passphrase")
    token = Token(module, label, _passphrase_of(config)()) if label and module else None
    ring = KeyRing.new(config.party, token)
    private_keys.write(config.keys, ring, _new_passphrase(locked))
    pin(config.federation, config.party, [ring.current.public])
    print_result(_described(config.party, ring.current.public), as_json, _to_send)
    print_next_step(as_json, "keys show", party)


@keys.command(epilog=PARTY_HELP)
@party_argument
@json_option
def show(party: Path, as_json: bool) -> None:
    """Show the public keys that PARTY has pinned, its own among them, with fingerprints.

    Compare a fingerprint by telephone: both sides read the same eight groups.
    """
    config = read_toml(party, PartyFile)
    pins = pinned(config.federation)
    result = [_described(name, key) for name, found in pins.items() for key in found]
    print_result(result, as_json, _pinned)
    print_next_step(as_json, "run" if result else "keys new", party)


@keys.command(epilog=PARTY_HELP)
@party_argument
@click.option(
    "--finish", is_flag=True, help="Sign with the next key, which the other parties trust already."
)
@click.option("--now", is_flag=True, help="Replace a stolen key at once, and drop it.")
@locked_option
@json_option
def rotate(party: Path, finish: bool, now: bool, locked: bool, as_json: bool) -> None:
    """Change the keys of PARTY in two steps, so that no message is refused meanwhile.

    First: rotate makes the next key, or shows it again; send it to the others, who trust it. Then:
    rotate --finish, and new sessions are signed with it. What is still sealed to the old key is
    opened until the next change. A running daemon takes it up at once.
    """
    config = read_toml(party, PartyFile)
    passphrase = _passphrase_of(config)() if private_keys.is_locked(config.keys) else None
    ring = private_keys.read(config.keys, config.party, lambda: passphrase or "")
    if now:
        ring = KeyRing.new(config.party, ring.token)
    else:
        ring = ring.advanced() if finish else ring.prepared()
    locked = locked and ring.token is None
    private_keys.write(config.keys, ring, passphrase or _new_passphrase(locked))
    signing = ring.current.public
    newest = ring.next.public if ring.next else signing
    pin(config.federation, config.party, list(dict.fromkeys([signing, newest])))
    result = _reloaded(config, _described(config.party, newest))
    print_result(result, as_json, partial(_to_send, only=now or finish))
    if now or finish:
        print_next_step(as_json, "keys show", party)
    else:
        print_next_step(as_json, "keys rotate", party, "--finish")


# Every 64th public key begins with a hyphen, and must not count as short options.
@keys.command(
    epilog=PARTY_HELP,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@party_argument
@click.argument("peer")
@click.argument("public")
@click.option("--only", is_flag=True, help="Forget the previously trusted keys.")
@replace_key_option
@json_option
def trust(
    party: Path, peer: str, public: str, only: bool, replaced: tuple[str, ...], as_json: bool
) -> None:
    """Pin the key PUBLIC of the party PEER, as its owner's fedmq keys show printed it.

    Compare the fingerprint with the owner first. Where --only would replace the pinned keys by
    another one, the command shows both fingerprints and asks. A running daemon takes it up at once;
    sessions that run keep the keys they began with.
    """
    config = read_toml(party, PartyFile)
    key = PublicKeys.from_text(public)
    if peer == config.party:
        raise ConfigError(f"{peer} is this party itself; use: fedmq keys new, or rotate")
    before = pinned(config.federation).get(peer, ())
    if only and before and key not in before:
        words = f"{peer} is pinned as {_fingerprints(before)}\n{peer} would be {key.fingerprint}"
        _ask_about({peer: words}, replaced)
    kept = () if only else before
    pin(config.federation, peer, [*(old for old in kept if old != key), key])
    print_result(_reloaded(config, _described(peer, key)), as_json, _with_daemon)
    print_next_step(as_json, "keys show", party)


def _reloaded(config: PartyFile, result: dict[str, Any]) -> dict[str, Any]:
    """``result``, and whether a running daemon has taken up the change."""
    changed = {"party": result["party"], "fingerprint": result["fingerprint"]}
    return {**result, "daemon": taken_up(config, "keys changed", **changed)}


def _described(party: str, key: PublicKeys) -> dict[str, Any]:
    return {"party": party, "public": str(key), "fingerprint": key.fingerprint}


def _pinned(found: Any) -> str | Text:
    if not found:
        return "no keys yet"
    # Each public key has its own unwrapped line, because people copy it from here.
    keys_below = [[key["public"]] for key in found]
    rows = [(key["party"], key["fingerprint"]) for key in found]
    return table(("party", "fingerprint, and the public key below"), rows, keys_below)


def _line(key: Any) -> str:
    return f"{key['party']:<12} {key['fingerprint']}  {key['public']}"


def _with_daemon(key: Any) -> str:
    return "\n".join([_line(key), *([key["daemon"]] if "daemon" in key else [])])


def _to_send(key: Any, only: bool = False) -> str:
    command = f"fedmq keys trust PARTY.toml {key['party']} {key['public']}"
    if only:
        return f"{_with_daemon(key)}\nThe others forget the old one:\n  {command} --only"
    return (
        f"{_with_daemon(key)}\n"
        "The others pin it, once they have heard the fingerprint from you:\n"
        f"  {command}"
    )


# Files of a party's folder, new or replaced; only the owner may read secrets.


def _write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read; ConfigError on failure."""
    _new(path, text, 0o600)


def _write_public(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file, new unless ``replace``; ConfigError on failure."""
    if not replace:
        _new(path, text, 0o644)
        return
    write_whole(path, text)


def _new(path: Path, text: str, mode: int) -> None:
    try:
        _create(path, text, mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _create(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
