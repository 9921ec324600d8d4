"""``fedmq broker``: whether the broker keeps the parties apart."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fedmq.cli.output import json_option, print_result
from fedmq.errors import LinkError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.broker_check import Finding, check_broker

__all__ = ["broker"]


@click.group()
def broker() -> None:
    """Ask whether the broker keeps the parties apart."""


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


def _in_words(findings: Any) -> str:
    return "\n".join(
        f"{'ok   ' if finding['right'] else 'WRONG'} {finding['party']}: {finding['tried']}: "
        f"{'allowed' if finding['right'] == finding['allowed'] else 'refused'}"
        for finding in findings
    )
