"""``fedmq models dossier``: the file that a validator asks for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fedmq.boosting.model.share import ActiveShare
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_daemon import PARTY_HELP, party_argument
from fedmq.errors import ConfigError
from fedmq.evaluation.bill_of_materials import cyclonedx, installed
from fedmq.party.atomic_file import write_whole
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.dossier import DossierWanted, model_dossier
from fedmq.workbench.own_shares import OwnShares

__all__ = ["dossier"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file: .html, .pdf or .json.",
)
@click.option("--purpose", default="", help="What the scores decide, and about whom.")
@click.option(
    "--samples",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Held-out people whose reasons are shown; the owners must allow reasons.",
)
@click.option(
    "--audit",
    "audits",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="What fedmq audit --json printed of this training. Repeat for each party's recording.",
)
@click.option(
    "--transcript",
    "transcripts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="What a passive party exported of this training: it is replayed. Repeat for each.",
)
@click.option(
    "--bom",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the bill of materials into this file as well: JSON of CycloneDX 1.6.",
)
@json_option
def dossier(
    party: Path,
    model: str | None,
    output: Path,
    purpose: str,
    samples: int,
    audits: tuple[Path, ...],
    transcripts: tuple[Path, ...],
    bom: Path | None,
    as_json: bool,
) -> None:
    """Write the dossier of MODEL, the newest when left out, for those who validate it.

    Its headings follow Annex IV of the EU AI Act and SR 26-2, and say which points they answer:
    data, design, evaluation, importance, what the training showed, software, signatures. What is
    not there is named, with the command that makes it. It is for this party: it names own columns.
    """
    shares = OwnShares(party)
    share = shares.share(model)
    if not isinstance(share, ActiveShare):
        raise ConfigError(
            f"{party}: only {shares.federation.active} has the trees and their evaluation; see: "
            "fedmq models card"
        )
    if output.suffix not in (".html", ".pdf", ".json"):  # before a transcript is replayed
        raise ConfigError(f"{output}: name a file that ends in .html, .pdf or .json")
    ask = partial(request_daemon, shares.state)
    wanted = DossierWanted(purpose, samples, audits, transcripts)
    found = model_dossier(shares, share, wanted, ask)
    found.write(output)
    if bom is not None:
        write_whole(bom, cyclonedx(installed()))
    result = {"model": found.model, "file": str(output), "missing": found.missing}
    print_result(result, as_json, _in_words)


def _in_words(result: Any) -> str:
    missing = [f"not here: {line}" for line in result["missing"]]
    return "\n".join([f"dossier of {result['model']}: {result['file']}", *missing])
