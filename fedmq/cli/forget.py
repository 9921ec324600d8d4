"""``fedmq forget``: find a person in the files of a party, and take the person out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.accountability.erasure_certificate import (
    ErasedPlace,
    ErasureCertificate,
    JointErasure,
    read_certificates,
)
from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, kept_for, noted, party_argument
from fedmq.cli.scored_people import score_files_with
from fedmq.errors import ConfigError, DataError, FedmqError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.kept_blindings import kept_points
from fedmq.workbench import retraining
from fedmq.workbench.erasure import Place, as_removed, person_of, places_of

__all__ = ["forget"]

_path = click.Path(path_type=Path)
_DELETE_SECONDS = 60.0
"""Within which another party answers."""


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option("--id", "name", help="The person, as PARTY's table has the id.")
@click.option("--remove", is_flag=True, help="Take the person out of what can do without.")
@click.option(
    "--certificate",
    type=_path,
    help="With --remove: a new file with what was taken out and what stays, signed by PARTY. With "
    "--verify and --id: a new file with the certificates of all parties.",
)
@click.option(
    "--verify",
    "certificates",
    multiple=True,
    type=_path,
    help="Instead: a certificate, of any party, whose signature is checked; with --id also whether "
    "it is about this person. May be repeated.",
)
@click.option(
    "--retrain",
    metavar="MODEL",
    help="Instead: train MODEL by its own job without the person, who is in no table any more, and "
    "compare both on rows that both held out. The other parties are asked as for any training.",
)
@click.option("--align", type=_path, help="With --retrain: an alignment job that is made first.")
@click.option(
    "--as", "called", metavar="NAME", help="With --retrain: the new model's name.  [MODEL-anew]"
)
@click.option(
    "--activate",
    metavar="NAME",
    help="With --retrain: serve the new model under NAME if it is equal or better.",
)
@click.option(
    "--delete-old",
    is_flag=True,
    help="With --retrain: then delete MODEL at all parties that agree.",
)
@json_option
def forget(
    party: Path,
    name: str | None,
    remove: bool,
    certificate: Path | None,
    certificates: tuple[Path, ...],
    retrain: str | None,
    align: Path | None,
    called: str | None,
    activate: str | None,
    delete_old: bool,
    as_json: bool,
) -> None:
    """Say where the person of an id is in PARTY's own files; with --remove take the person out.

    Alignments and recordings with the person are deleted whole, held-out rows and folds lose the
    person's, as do score files in the folder of PARTY's file. What stays is named with the reason:
    PARTY's table, models that learned from the person, proofs, and hashes; so is what is not
    searched. A session under way that holds the person forbids --remove. Each party does this for
    itself, and signs its own certificate; nobody else is told.
    """
    if retrain is None and (align or called or activate or delete_old):
        raise click.UsageError("--align, --as, --activate and --delete-old go with --retrain")
    if retrain is not None:
        if name is None or remove or certificate is not None or certificates:
            raise click.UsageError("--retrain goes with --id, and not with --remove or --verify")
        _retrain(party, retrain, name, align, called, activate, delete_old, as_json)
        return
    if certificates:
        if remove:
            raise click.UsageError("--verify goes with --id, --certificate and --json alone")
        if certificate is not None and name is None:
            raise click.UsageError("--verify with --certificate takes --id: whom all are about")
        _verify(party, certificates, name, certificate, as_json)
        return
    if name is None:
        raise click.UsageError("name the person with --id, or a certificate with --verify")
    if certificate is not None and not remove:
        raise click.UsageError("--certificate says what was removed: it goes with --remove")
    # Whoever cannot sign learns it before anything is gone.
    files = None if certificate is None else _signing(party, certificate)
    config = PartyFile.read(party)[0] if files is None else files.config
    folder = party.absolute().parent
    places = places_of(config, name, remove)
    places += score_files_with(config, folder, name, remove)
    if remove:
        places = as_removed(places)
        removed = [place.what for place in places if place.done == "removed"]
        noted(config.state, "person forgotten", places=len(removed))
    if files is not None and certificate is not None:
        _certified(files, person_of(config, name), places).write(certificate)
    result = {
        "party": config.party,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "removed": remove,
        "places": [asdict(place) for place in places],
        "retention": config.policy.retention.periods,
        "not_searched": _not_searched(config, folder),
        "certificate": certificate and str(certificate),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "audit-log" if remove else "forget", party)


def _retrain(
    party: Path,
    old: str,
    name: str,
    align: Path | None,
    called: str | None,
    activate: str | None,
    delete: bool,
    as_json: bool,
) -> None:
    config, _ = PartyFile.read(party)
    found = retraining.retrain(party, old, name, align, called)
    noted(config.state, "model trained anew to forget a person", model=found.model, old=old)
    activated = activate is not None and found.as_good
    if activated:
        request = {"do": "activate", "model": found.model, "name": activate, "mode": None}
        request_daemon(config.state, request)
    # A model that is worse replaces nothing, unless the owner says so by the commands of the name.
    keeps = activate is not None and not activated
    left = {} if keeps or not delete else retraining.delete_old(config, old, _DELETE_SECONDS)
    result = {
        "party": config.party,
        **asdict(found),
        "as_good": found.as_good,
        "activated": activate if activated else None,
        "deleted": delete and not keeps and not left,
        "left": left,
    }
    print_result(result, as_json, _retrained_in_words)
    if activated:
        print_next_step(as_json, "serving", party)
    else:
        print_next_step(as_json, "activate", party, "--model", found.model)


def _retrained_in_words(result: Any) -> Text:
    old, new = result["old"], result["model"]
    compared = f"not compared: {result['why']}"
    if not result["why"]:
        compared = (
            f"{result['metric']} on {result['rows']:,} rows that both held out: {old} "
            f"{result['before']:.6f}, {new} {result['after']:.6f}"
        )
    notes = [f"{new} is served as {result['activated']}"] if result["activated"] else []
    notes += [f"{old} is deleted at all parties"] if result["deleted"] else []
    notes += [f"{old} is left at {party}: {why}" for party, why in result["left"].items()]
    return joined(f"trained {new} in place of {old}", compared, *notes)


def _signing(party: Path, certificate: Path) -> PartyFiles:
    files = PartyFiles.read(party)
    if not files.federation.keys:
        raise ConfigError(
            "the federation has no keys, so nobody can sign; make them with: fedmq keys new"
        )
    _check_new(certificate)
    return files


def _check_new(certificate: Path) -> None:
    if certificate.exists() or not certificate.absolute().parent.is_dir():
        raise ConfigError(f"{certificate}: name a new file in a folder that exists")


def _certified(files: PartyFiles, person: str, places: Sequence[Place]) -> ErasureCertificate:
    # Without the reasons: they name the party's own files, and others read the certificate.
    erased = [
        ErasedPlace.model_validate({"what": of.what, "count": of.count, "done": of.done})
        for of in places
    ]
    config, federation = files.config, files.federation.name
    return ErasureCertificate.of(federation, config.party, person, erased, files.sealer.sign)


def _verify(
    party: Path, paths: Sequence[Path], name: str | None, joint: Path | None, as_json: bool
) -> None:
    config, federation = PartyFile.read(party)
    person = None if name is None else person_of(config, name)
    result, all_found = [], []
    for path in paths:
        for found in read_certificates(path):
            try:
                fingerprint = found.check(federation)
            except FedmqError as error:
                raise type(error)(f"{path}: {error}") from None
            if person is not None and not found.is_of(person):
                raise DataError(f"{path}: {found.party} has signed it about another person")
            of = found.model_dump(mode="json", include={"party", "made", "places"})
            result.append({"file": str(path), "key": fingerprint, **of})
            all_found.append(found)
    if joint is not None:
        _check_new(joint)
        JointErasure.of(all_found, federation).write(joint)
    print_result(result, as_json, _certificates_in_words)


def _certificates_in_words(result: Any) -> Text:
    rows = [
        (
            of["party"],
            of["made"].replace("T", " ")[:19],
            sum(place["done"] == "removed" for place in of["places"]),
            ", ".join(place["what"] for place in of["places"] if place["done"] == "stays"),
            of["key"],
        )
        for of in result
    ]
    return joined(table(("party", "signed (UTC)", "places removed", "what stays", "key"), rows))


def _not_searched(config: PartyFile, folder: Path) -> list[str]:
    """Where the person may be, and no command of this party looks."""
    section = config.serving or config.data
    tables = section.url is not None
    return [
        f"score files outside of {folder}",
        *[f"tables of scores in {section.place}"] * tables,
        *["recordings of former folders"] * (config.recordings is None),
        *(
            f"points of the list of {party}, which {party} alone can name"
            for party in kept_points(config.state)
        ),
        "messages that wait at the broker, for 7 days at most",
        "what other parties hold",
        "backups",
    ]


def _in_words(result: Any) -> Text | str:
    notes = [f"not searched: {'; '.join(result['not_searched'])}"]
    if result["retention"]:
        notes.append(f"kept for at most: {kept_for(result['retention'])}")
    if result["certificate"]:
        notes.append(f"signed in {result['certificate']}")
    if not result["places"]:
        return joined("nothing of this person is in the party's files", *notes)
    rows = [(of["what"], of["count"], of["done"], of["why"]) for of in result["places"]]
    return joined(table(("where", "how often", "", ""), rows), *notes)
