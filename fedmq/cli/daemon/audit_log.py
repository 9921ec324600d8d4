"""``fedmq audit-log``: what was asked of a party, and what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.party.consent.audit_log import AuditLog, AuditSearch, question_logs

__all__ = ["audit_log"]

online_option = click.option(
    "--online", is_flag=True, help="Who asked online about whom, ids as keyed hashes, by day."
)

_CHAIN = ("number", "at", "event", "peer", "session", "attempt", "previous")


@click.group("audit-log", epilog=PARTY_HELP)
def audit_log() -> None:
    """Read and verify what was asked of PARTY, and what it answered."""


@audit_log.command("list", epilog=PARTY_HELP)
@party_argument
@online_option
@click.option("--event", default="", help="Only entries of this event, such as asked.")
@click.option("--peer", default="", help="Only entries about this party.")
@click.option("--text", default="", help="Only entries with these words somewhere in them.")
@json_option
def list_entries(
    party: Path, online: bool, event: str, peer: str, text: str, as_json: bool
) -> None:
    """List the entries, the oldest first."""
    search = AuditSearch(event, peer, text)
    logs = _logs(party, online)
    entries = [entry for log in logs for entry in log.entries() if search.finds(entry)]
    print_result(entries, as_json, lambda _: "\n".join(map(_line, entries)) or "nothing yet")
    print_next_step(as_json, "audit-log verify", party, *["--online"] * online)


@audit_log.command(epilog=PARTY_HELP)
@party_argument
@online_option
@json_option
def verify(party: Path, online: bool, as_json: bool) -> None:
    """Verify that no entry was changed, removed or inserted.

    Keep the hash it prints elsewhere: without it, nobody could tell that the last entries are gone.
    With --online there is one per day.
    """
    days = [_verified(log) for log in _logs(party, online)]
    print_result(
        days if online else days[0],
        as_json,
        lambda _: "\n".join(_unbroken(day, online) for day in days) or "nothing yet",
    )


def _logs(party: Path, online: bool) -> list[AuditLog]:
    state = state_folder(party)
    return question_logs(state) if online else [AuditLog(state)]


def _verified(log: AuditLog) -> dict[str, Any]:
    entries, last = log.verified()
    return {"file": log.path.name, "entries": entries, "hash": last}


def _unbroken(log: Mapping[str, Any], named: bool) -> str:
    name = f"{log['file']}: " if named else ""
    return f"{name}{log['entries']} entries, unbroken up to {log['hash']}"


def _line(entry: Any) -> str:
    details = ", ".join(f"{key} {value}" for key, value in entry.items() if key not in _CHAIN)
    whose = f"{entry['peer']} {entry['session']}: " if "peer" in entry else ""
    return f"{entry['at']}  {whose}{entry['event']}: {details}"
