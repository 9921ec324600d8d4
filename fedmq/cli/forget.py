"""``fedmq forget``: find a person in the files of a party, and take the person out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, noted, party_argument
from fedmq.party.configuration.party import PartyFile
from fedmq.workbench.erasure import places_of

__all__ = ["forget"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option("--id", "name", required=True, help="The person, as PARTY's table has the id.")
@click.option("--remove", is_flag=True, help="Take the person out of what can do without.")
@json_option
def forget(party: Path, name: str, remove: bool, as_json: bool) -> None:
    """Say where the person of an id is in PARTY's own files; with --remove take the person out.

    Alignments and recordings with the person are deleted whole, held-out rows and folds lose the
    person's. What stays is named with the reason: PARTY's table, models that learned from the
    person, proofs, and keyed hashes. Each party does this for itself; nobody else is told.
    """
    config, _ = PartyFile.read(party)
    found = places_of(config, name, remove)
    if remove:
        removed = [place.what for place in found if place.done == "removed"]
        noted(config.state, "person forgotten", places=len(removed))
    result = {
        "party": config.party,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "removed": remove,
        "places": [asdict(place) for place in found],
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "audit-log" if remove else "forget", party)


def _in_words(result: Any) -> Text | str:
    if not result["places"]:
        return "nothing of this person is in the party's files"
    rows = [(of["what"], of["count"], of["done"], of["why"]) for of in result["places"]]
    return joined(table(("where", "how often", "", ""), rows))
