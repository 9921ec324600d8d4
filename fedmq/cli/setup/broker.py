"""``fedmq broker``: a federation's broker, who may log in, and whether it keeps them apart."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.setup.broker_folder import BrokerFolder
from fedmq.errors import ConfigError, LinkError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity.joining import JoinRequest, write_signed
from fedmq.party.operations.broker import Finding, check_broker
from fedmq.transport.rabbitmq.certificates import DAYS, expiry
from fedmq.transport.rabbitmq.topology import check_name

__all__ = ["broker"]


@click.group()
def broker() -> None:
    """Make a broker's folder, let parties in and out, and see that it keeps them apart."""


_folder = click.argument("folder", type=click.Path(path_type=Path))
_days = click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    help="How long the certificate is good.",
)


@broker.command()
@_folder
@click.option("--name", default="demo", show_default=True, help="The federation's name.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where parties reach it.")
@json_option
def new(folder: Path, name: str, host: str, as_json: bool) -> None:
    """Write the folder of a broker that nobody may use yet.

    It belongs to the broker's operator, with the authority that signs the parties' certificates.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: the folder is not empty; choose another one")
    shutil.rmtree(folder, ignore_errors=True)  # it is made with a mode of its own
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
    """Let the party in that sent the file REQUEST: sign its certificate, and make it a user.

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
            f"{done['file']} goes to {party}; the certificate is good until {done['until'][:10]}"
        ),
    )
    print_next_step(as_json, "join", party, "--signed", signed.name)


@broker.command()
@_folder
@click.argument("party")
@json_option
def remove(folder: Path, party: str, as_json: bool) -> None:
    """Let PARTY in no more."""
    BrokerFolder.read(folder).remove(party)
    print_result({"party": party}, as_json, lambda _: f"{party} is no user any more")
    _load(folder, as_json)


def _until(pem: bytes) -> str:
    until = expiry(pem)
    assert until is not None
    return until.isoformat(timespec="seconds")


def _signed(done: Any) -> str:
    return (
        f"{done['party']}: {done['fingerprint']}\n"
        f"{done['file']} goes back to {done['party']}; the certificate is good until "
        f"{done['until'][:10]}"
    )


def _load(folder: Path, as_json: bool) -> None:
    """A broker that runs takes its users up when it is asked to."""
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
