"""``fedmq init``: the folders and files of a new federation."""

from __future__ import annotations

import csv
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import click

from fedmq.cli.output import json_option, print_result
from fedmq.cli.setup.broker_folder import BrokerFolder
from fedmq.cli.setup.compose_file import compose_file
from fedmq.cli.setup.example_data import ExampleData, breast_cancer
from fedmq.cli.setup.templates import align_toml, federation_toml, party_toml, train_toml
from fedmq.errors import ConfigError
from fedmq.party.identity import private_keys
from fedmq.party.identity.private_keys import KeyRing
from fedmq.transport.rabbitmq.topology import check_name
from fedmq.transport.sealing.keys import PrivateKeys

__all__ = ["init"]

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
        rings = {party: KeyRing(party, PrivateKeys.generate()) for party in parties}
        pins = {party: ring.current.public for party, ring in rings.items()}
        certificates = BrokerFolder(folder / "broker", name, parties).write(passwords, host)
        _write(folder / "federation.toml", federation_toml(name, active, passive, pins))
        for party in parties:
            login = f"{party}:{passwords[party]}" if passwords else party
            url = f"{'amqp' if no_tls else 'amqps'}://{login}@{broker}/"
            text = party_toml(party, url, labelled=party == active, serving=example)
            _write(folder / party / "party.toml", text, _PRIVATE_MODE)
            private_keys.write(folder / party / "keys.json", rings[party])
            for file, pem in certificates.get(party, {}).items():
                _write(folder / party / "tls" / file, pem.decode(), _PRIVATE_MODE)
        _write(folder / "docker-compose.yml", compose_file(parties, passwords), _PRIVATE_MODE)
        alignment = None if example else "customers"
        _write(folder / active / "align.toml", align_toml("customers"))
        _write(folder / active / "train.toml", train_toml(5 if example else 50, alignment))
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
    """Write a table to learn from and one to look people up in for each party, and ids to score."""
    for party, names in data.names.items():
        label = {"label": data.label} if party == active else {}
        header = ["id", *label, *names]
        rows = list(zip(data.ids, *label.values(), *data.columns[party].T, strict=True))
        train = [row for row, test in zip(rows, data.test, strict=True) if not test]
        _write_csv(folder / party / "data.csv", header, train)
        _write_csv(folder / party / "serving.csv", header, rows)
    ids = [(person,) for person, test in zip(data.ids, data.test, strict=True) if test]
    _write_csv(folder / active / "ids.csv", ["id"], ids)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _next_steps(folder: Path, parties: Sequence[str], broker: str, example: bool) -> str:
    """What everybody does from here on; with ``example`` the tables are there already."""
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
