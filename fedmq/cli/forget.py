"""``fedmq forget``: find a person in the files of a party, and take the person out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, kept_for, noted, party_argument
from fedmq.cli.scored_people import score_files_with
from fedmq.party.configuration.party import PartyFile
from fedmq.workbench.erasure import as_removed, places_of

__all__ = ["forget"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option("--id", "name", required=True, help="The person, as PARTY's table has the id.")
@click.option("--remove", is_flag=True, help="Take the person out of what can do without.")
@json_option
def forget(party: Path, name: str, remove: bool, as_json: bool) -> None:
    """Say where the person of an id is in PARTY's own files; with --remove take the person out.

    Alignments and recordings with the person are deleted whole, held-out rows and folds lose the
    person's, as do score files in the folder of PARTY's file. What stays is named with the reason:
    PARTY's table, models that learned from the person, proofs, and hashes; so is what is not
    searched. A session under way that holds the person forbids --remove. Each party does this for
    itself; nobody else is told.
    """
    config, _ = PartyFile.read(party)
    folder = party.absolute().parent
    places = places_of(config, name, remove)
    places += score_files_with(config, folder, name, remove)
    found = as_removed(places) if remove else places
    if remove:
        removed = [place.what for place in found if place.done == "removed"]
        noted(config.state, "person forgotten", places=len(removed))
    result = {
        "party": config.party,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "removed": remove,
        "places": [asdict(place) for place in found],
        "retention": config.policy.retention.periods,
        "not_searched": _not_searched(config, folder),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "audit-log" if remove else "forget", party)


def _not_searched(config: PartyFile, folder: Path) -> list[str]:
    """Where the person may be, and no command of this party looks."""
    section = config.serving or config.data
    tables = section.url is not None
    return [
        f"score files outside of {folder}",
        *[f"tables of scores in {section.place}"] * tables,
        *["recordings of former folders"] * (config.recordings is None),
        "messages that wait at the broker, for 7 days at most",
        "what other parties hold",
        "backups",
    ]


def _in_words(result: Any) -> Text | str:
    outside = f"not searched: {'; '.join(result['not_searched'])}"
    if result["retention"]:
        outside += f"\nkept for at most: {kept_for(result['retention'])}"
    if not result["places"]:
        return joined("nothing of this person is in the party's files", outside)
    rows = [(of["what"], of["count"], of["done"], of["why"]) for of in result["places"]]
    return joined(table(("where", "how often", "", ""), rows), outside)
