"""``fedmq init``: the folders and files of a new federation."""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from fedmq.cli.output import json_option, print_result
from fedmq.cli.setup.broker_folder import BrokerFolder
from fedmq.cli.setup.compose_file import compose_file
from fedmq.cli.setup.example_data import breast_cancer
from fedmq.errors import ConfigError
from fedmq.party.identity import private_keys as private_keys
from fedmq.party.identity.private_keys import KeyRing
from fedmq.transport.rabbitmq.topology import check_name
from fedmq.transport.sealing.keys import PrivateKeys, PublicKeys

__all__ = ["init"]

_PRIVATE = 0o600
_BROKER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


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
        place = BrokerFolder(folder / "broker", name, parties)
        certificates = place.write(passwords, host)
        _write(folder / "federation.toml", _federation(name, active, passive, pins))
        for party in parties:
            login = f"{party}:{passwords[party]}" if passwords else party
            url = f"{'amqp' if no_tls else 'amqps'}://{login}@{broker}/"
            text = _party(party, url, party == active, serving=example)
            _write(folder / party / "party.toml", text, _PRIVATE)
            private_keys.write(folder / party / "keys.json", rings[party])
            for file, pem in certificates.get(party, {}).items():
                _write(folder / party / "tls" / file, pem.decode(), _PRIVATE)
        _write(folder / "docker-compose.yml", compose_file(parties, passwords), _PRIVATE)
        _write(folder / active / "train.toml", _job(example))
        if data is not None:
            for party in parties:
                held = [data.columns[party][:, column] for column in range(len(data.names[party]))]
                header = ["id", *(["label"] if party == active else []), *data.names[party]]
                columns = [data.ids, *([data.label] if party == active else []), *held]
                rows = list(zip(*columns, strict=True))
                learned = [row for row, out in zip(rows, data.test, strict=True) if not out]
                _write_csv(folder / party / "data.csv", header, learned)
                _write_csv(folder / party / "serving.csv", header, rows)
            asked = [(each,) for each, out in zip(data.ids, data.test, strict=True) if out]
            _write_csv(folder / active / "ids.csv", ["id"], asked)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}") from None
    result = {"folder": str(folder), "federation": name, "parties": list(parties)}
    print_result(result, as_json, lambda _: _next_steps(folder, parties, broker))


def _host(broker: str) -> str:
    """The host of HOST:PORT; ConfigError if it is anything else."""
    found = _BROKER.fullmatch(broker)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ConfigError(f"--broker {broker}: write it as HOST:PORT, such as mq.example.org:5671")
    return found["host"].strip("[]")


def _federation(
    name: str, active: str, passive: Sequence[str], pins: Mapping[str, PublicKeys]
) -> str:
    pinned = "".join(f'{party} = ["{key}"]\n' for party, key in pins.items())
    return (
        "# The same file at every party.\n"
        f'name = "{name}"\n'
        f'active = "{active}"\n'
        "# Their order decides which of two equally good splits is taken.\n"
        f"passive = {json.dumps(list(passive))}\n"
        "\n"
        "# The parties' public keys. Compare the fingerprints (fedmq keys show) by telephone.\n"
        f"[keys]\n{pinned}"
    )


def _party(party: str, url: str, labelled: bool, serving: bool) -> str:
    columns = 'id = "id"\n' + ('label = "label"\n' if labelled else "")
    tls = (
        (
            "# The broker's authority, and the certificate with which this party logs in.\n"
            '[tls]\nca = "tls/ca.pem"\ncertificate = "tls/party.pem"\nkey = "tls/party.key"\n\n'
        )
        if url.startswith("amqps:")
        else ""
    )
    text = (
        "# This file stays at home, and so does keys.json beside it.\n"
        f'party = "{party}"\n'
        'federation = "../federation.toml"\n'
        f'broker = "{url}"\n'
        'state = "state"\n'
        'keys = "keys.json"\n'
        "\n" + tls + ""
        "# A CSV file with a header. Every column but these is a feature.\n"
        "[data]\n"
        'path = "data.csv"\n' + columns
    )
    if serving:
        text += (
            "\n# Where the people to score are looked up; the data above when left out.\n"
            '[serving]\npath = "serving.csv"\nid = "id"\n'
            + ('ignore = ["label"]\n' if labelled else "")
        )
    return (
        text + "\n# What this party takes part in. The encrypting engines:\n"
        "# paillier  the best known scheme, and the slowest\n"
        "# ou        a third of its time and half of its bytes\n"
        "# lattice   the quickest, and shows this party no node's rows; young, and without\n"
        "#           a way to decline small nodes\n"
        '[policy]\nengines = ["paillier", "ou"]\n'
    )


def _job(example: bool) -> str:
    trees = 5 if example else 50
    return (
        'party = "party.toml"\n'
        'engine = "paillier"\n'
        "# The share of the people that is scored after each tree, but not learned from.\n"
        "evaluation = 0.2\n"
        "\n"
        "# XGBoost's parameters, under XGBoost's names.\n"
        "[params]\n"
        'objective = "binary:logistic"\n'
        f"num_boost_round = {trees}\n"
        "max_depth = 3\n"
        "max_bin = 32\n"
        "eta = 0.3\n"
        'eval_metric = ["logloss", "auc"]\n'
    )


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


def _next_steps(folder: Path, parties: Sequence[str], broker: str) -> str:
    port = broker.rpartition(":")[2]
    runs = "\n".join(f"  fedmq run {folder}/{party}/party.toml" for party in parties)
    return (
        f"{folder} is written. A broker, then one daemon per party:\n"
        f"  {folder}/broker/node start {folder}/broker --port {port}\n{runs}\n"
        f"Then: fedmq train {folder}/{parties[0]}/train.toml"
    )
