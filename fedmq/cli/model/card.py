"""``fedmq models card``: a page that describes a model, and that all its parties sign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.model.evaluate import held_out_report
from fedmq.cli.model.own_shares import OwnShares
from fedmq.cli.model.train import watched
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, name_party, party_argument
from fedmq.cli.table import joined, table
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.evaluation.card import card_of, markdown_of, worth_of
from fedmq.evaluation.report import Report
from fedmq.party.atomic_file import write_atomically
from fedmq.party.card.model_card import Worth
from fedmq.party.card.signed_card import CardFile, Endorsement, Signature, endorse, share_hash
from fedmq.party.configuration.federation import Federation
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.identity import private_keys
from fedmq.party.store.documents import TrainingRecord, cards, held_out_rows, training_records

__all__ = ["card", "verify_card"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The JSON file; MODEL.card.json when left out. The page is MODEL.card.md beside it.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A report.json of fedmq evaluate; when left out, the rows held out are evaluated now.",
)
@click.option("--no-evaluation", is_flag=True, help="Leave out how good the model is.")
@click.option(
    "--worth", is_flag=True, help="Train again without each of the other parties, and compare."
)
@click.option("--ask", is_flag=True, help="Ask the other parties for their signatures now.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for each party.")
@click.option("--sign", is_flag=True, help="Add PARTY's signature to the card in the file MODEL.")
@json_option
def card(
    party: Path,
    model: str | None,
    output: Path | None,
    report: Path | None,
    no_evaluation: bool,
    worth: bool,
    ask: bool,
    wait: float,
    sign: bool,
    as_json: bool,
) -> None:
    """Describe MODEL, the newest when left out, in a card that the parties sign.

    The active party writes MODEL.card.json and MODEL.card.md, and signs. The others sign when
    --ask is given and their policy allows it, or by the file: fedmq models card PARTY CARD.json
    --sign.
    """
    shares = OwnShares(party)
    if sign:
        if model is None:
            raise click.UsageError("name the file of the card: models card PARTY CARD.json --sign")
        path, file = Path(model), CardFile.read(Path(model))
    else:
        if not shares.is_active:
            raise ConfigError(
                f"{party}: only {shares.federation.active} writes cards; {shares.party} signs one "
                "with: fedmq models card PARTY CARD.json --sign"
            )
        share = shares.share(model)
        assert isinstance(share, ActiveShare)
        path = output or Path(f"{share.model_id}.card.json")
        _check_path(path)
        file = _described(party, shares, share, report, no_evaluation, worth, as_json)
    if shares.federation.keys or sign:
        file = file.endorsed(_own_signature(shares, file))
    refusals: dict[str, str] = {}
    if ask:
        file, refusals = _asked(shares, file, wait)
    signatures = file.signatures(shares.federation)
    file.write(path)
    if shares.is_active:
        cards(shares.state).keep(file.card.model, file.model_dump_json())
    _write_page(path, markdown_of(file, signatures))
    result = _result(file, signatures) | {"file": str(path), "refused": refusals}
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "models verify", party, path)


def verify_card(
    path: Path, party: Path | None, federation_file: Path | None, as_json: bool
) -> None:
    """Verify the signatures of the card in ``path``, and the hash of PARTY's own share.

    Raises:
        ConfigError: nothing says which keys the parties have.
        DataError: a signature is wrong, or the share is another than was signed.
    """
    file = CardFile.read(path)
    own = None
    if party is not None:
        shares = OwnShares(name_party(party))
        federation, endorsement = shares.federation, file.of(shares.party)
        if endorsement is not None:
            own = endorsement.share == share_hash(shares.checked(file.card.model))
    elif federation_file is not None:
        federation = Federation.read(federation_file)
    else:
        raise ConfigError(
            f"{path}: who verifies it? fedmq models verify PARTY {path}, or, without a party's "
            f"file: fedmq models verify {path} --federation FILE"
        )
    if not federation.keys:
        raise ConfigError("the federation file pins no keys, so no signature can be verified")
    signatures = file.signatures(federation)
    wrong = [found.party for found in signatures if found.state == "wrong"]
    if wrong:
        raise DataError(
            f"{path}: the signature of {', '.join(wrong)} is wrong: the card was altered, or "
            "signed with a key that the federation file does not pin"
        )
    if own is False:
        raise DataError(
            f"{path}: {shares.party}'s share of {file.card.model} is not the one that was signed"
        )
    print_result(_result(file, signatures) | {"own_share": own}, as_json, _in_words)


def _described(
    party: Path,
    shares: OwnShares,
    share: ActiveShare,
    report: Path | None,
    no_evaluation: bool,
    worth: bool,
    quiet: bool,
) -> CardFile:
    """The card of ``share``, unsigned."""
    record = training_records(shares.state).find(share.model_id)
    found = None
    if report is not None:
        found = _report(report, share.model_id)
    elif not no_evaluation and held_out_rows(shares.state).path(share.model_id).exists():
        found = held_out_report(shares.config, share, quiet)
    worths = _worths(party, shares, share, record, quiet) if worth else {}
    drift = shares.config.online.drift
    return CardFile(card=card_of(share, shares.federation.name, record, found, worths, drift))


def _report(path: Path, model: str) -> Report:
    try:
        report = Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path}: is no report.json of fedmq evaluate") from None
    if report.model != model:
        raise DataError(f"{path}: the report of model {report.model}, not of {model}")
    return report


def _worths(
    party: Path,
    shares: OwnShares,
    share: ActiveShare,
    record: TrainingRecord | None,
    quiet: bool,
) -> dict[str, Worth]:
    """What the model is without each partner; models that are there from an earlier time serve."""
    if record is None or not record.held_out or not share.metrics:
        raise ConfigError(
            f"--worth: {share.model_id} cannot be trained again to be compared: "
            + ("how it was trained is not recorded" if record is None else "it held out no rows")
        )
    worths = {}
    for partner in share.parties[1:]:
        name = f"{share.model_id}-without-{partner}"[:64]
        others = tuple(other for other in share.parties[1:] if other != partner)
        if not shares.store.path(name).exists():
            job = record.job.model_copy(update={"model": name, "parties": others})
            watched(party, {"do": "train", "job": job.model_dump(mode="json")}, quiet, job)
        without = shares.checked(name)
        assert isinstance(without, ActiveShare)
        if without.parties != (shares.party, *others):
            raise ConfigError(
                f"--worth: there is a model {name} already, of other parties; delete it with: "
                f"fedmq models delete PARTY {name}"
            )
        worths[partner] = worth_of(share, without)
    return worths


def _own_signature(shares: OwnShares, file: CardFile) -> Endorsement:
    share: ActiveShare | PassiveShare = shares.checked(file.card.model)
    if not shares.federation.keys:
        raise ConfigError(
            "the federation has no keys, so nobody can sign; make them with: fedmq keys new"
        )
    for found in file.signatures(shares.federation):
        if found.state == "wrong" and found.party != shares.party:
            raise Refused(f"the signature of {found.party} is wrong: the card was altered")
    keys = private_keys.read(shares.config.keys, shares.party)
    return endorse(file.card, share, shares.party, AuditLog(shares.state), keys.current.sign.sign)


def _asked(shares: OwnShares, file: CardFile, wait: float) -> tuple[CardFile, dict[str, str]]:
    """The card with what the other parties have signed, and why some have not."""
    if not shares.is_active:
        raise ConfigError(f"only {shares.federation.active} asks the others; pass the file on")
    request = {"do": "sign_card", "card": file.content, "seconds": wait}
    refusals = {}
    for party, answer in request_daemon(shares.state, request).items():
        if "refused" in answer:
            refusals[party] = answer["refused"]
            continue
        try:
            endorsement = Endorsement.model_validate_json(answer["endorsement"])
        except ValueError:
            refusals[party] = f"{party} answered with no signature"
            continue
        signed = file.endorsed(endorsement)
        states = {found.party: found.state for found in signed.signatures(shares.federation)}
        if endorsement.party != party or states[party] != "signed":
            refusals[party] = f"the signature of {party} is wrong"
        else:
            file = signed
    return file, refusals


def _check_path(path: Path) -> None:
    if path.suffix != ".json":
        raise ConfigError(f"{path}: name a file that ends in .json for the card")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}; make it first")


def _write_page(path: Path, text: str) -> None:
    page = path.with_suffix(".md")
    try:
        write_atomically(page, text)
    except OSError as error:
        raise ConfigError(f"{page}: cannot be written: {error.strerror}") from None


def _result(file: CardFile, signatures: list[Signature]) -> dict[str, Any]:
    return {
        "model": file.card.model,
        "made": file.card.made,
        "signatures": [
            {
                "party": found.party,
                "state": found.state,
                "fingerprint": found.fingerprint,
                "share": "" if (endorsement := file.of(found.party)) is None else endorsement.share,
            }
            for found in signatures
        ],
    }


def _in_words(result: Any) -> Text:
    where = f": {result['file']}" if "file" in result else ""
    rows = [
        (found["party"], found["state"], found["fingerprint"] or "", found["share"][:16])
        for found in result["signatures"]
    ]
    refused = "\n".join(result.get("refused", {}).values())
    own = {True: "The own share is the one that was signed.", None: "", False: ""}
    return joined(
        f"card of {result['model']}, made {result['made']}{where}",
        table(("party", "signature", "fingerprint of its key", "share"), rows),
        refused,
        own[result.get("own_share")],
    )
