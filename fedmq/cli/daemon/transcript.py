"""``fedmq transcript``: what a party shows an auditor of a training, and what it proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.accountability.verification import verify
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile

__all__ = ["transcript"]

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("transcript", epilog=PARTY_HELP)
def transcript() -> None:
    """Export what PARTY keeps of a training for an auditor, and verify what a party shows."""


@transcript.command("export", epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; PARTY-SESSION.transcript when left out.",
)
@json_option
def export_transcript(party: Path, session: str, output: Path | None, as_json: bool) -> None:
    """Write the transcript of SESSION into a file, for an auditor alone.

    That of a passive party holds its table and the secrets of that training; that of the label
    holder holds what the others have signed, and no data.
    """
    config, _ = PartyFile.read(party)
    path = output or Path(f"{config.party}-{session}.transcript")
    size = export(config.state, config.party, session, path)
    print_result({"file": str(path), "bytes": size}, as_json, lambda _: f"{path}: {size:,} bytes")
    print_next_step(as_json, "transcript verify", path, "--federation", config.federation)


@transcript.command("verify")
@click.argument("shown", type=_File)
@click.option(
    "--federation",
    "federation_file",
    type=_File,
    required=True,
    help="The federation file, with the keys that parties sign with.",
)
@click.option("--signed", type=_File, help="The label holder's transcript of the same session.")
@json_option
def verify_transcript(
    shown: Path, federation_file: Path, signed: Path | None, as_json: bool
) -> None:
    """Replay what a party has SHOWN: prove every answer honest, or name the first that was not.

    Without --signed the label holder's signatures among the messages are what binds the party.
    """
    held = None if signed is None else TranscriptFile.read(signed)
    federation = Federation.read(federation_file)
    verdict = verify(TranscriptFile.read(shown), federation, held)
    print_result(verdict.as_dict(), as_json, _lines)


def _lines(verdict: Any) -> str:
    lines = [
        f"{verdict['party']}: {verdict['answers']} answers in {verdict['trees']} trees are those "
        f"that its table gives ({verdict['rows']:,} rows, columns "
        f"{', '.join(verdict['columns'])}; engine {verdict['engine']}, "
        f"{verdict['attempts']} attempts)",
        f"signed by both sides: {verdict['signed']} of {verdict['trees']} trees",
    ]
    if verdict["thin_trees"]:
        lines.append(
            f"not made again: the sums of {verdict['thin_trees']} trees, whose gradients were left "
            "out by lot; their records and directions were"
        )
    return "\n".join(lines)
