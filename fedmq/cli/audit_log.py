"""``fedmq audit-log``: what was asked of a party, and what it answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.asking import party_argument_help, state_of
from fedmq.cli.output import json_option, print_result
from fedmq.party.audit_log import AuditLog

__all__ = ["audit_log"]

party_argument = click.argument("party", type=click.Path(path_type=Path))

_CHAIN = ("number", "at", "event", "peer", "session", "attempt", "previous")


@click.group("audit-log", epilog=party_argument_help)
def audit_log() -> None:
    """Read and verify what was asked of PARTY, and what it answered."""


@audit_log.command("list", epilog=party_argument_help)
@party_argument
@json_option
def list_entries(party: Path, as_json: bool) -> None:
    """List the entries, the oldest first."""
    entries = list(AuditLog(state_of(party)).entries())
    print_result(entries, as_json, lambda _: "\n".join(map(_line, entries)) or "nothing yet")


@audit_log.command(epilog=party_argument_help)
@party_argument
@json_option
def verify(party: Path, as_json: bool) -> None:
    """Verify that no entry was changed, removed or inserted.

    Keep the hash it prints elsewhere: without it, nobody could tell that the last entries are gone.
    """
    log = AuditLog(state_of(party))
    result = {"entries": sum(1 for _ in log.entries()), "hash": log.last_hash()}
    print_result(
        result, as_json, lambda _: f"{result['entries']} entries, unbroken up to {result['hash']}"
    )


def _line(entry: Any) -> str:
    details = ", ".join(f"{key} {value}" for key, value in entry.items() if key not in _CHAIN)
    return f"{entry['at']}  {entry['peer']} {entry['session']}: {entry['event']}: {details}"
