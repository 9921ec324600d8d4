"""``fedmq models``: the models of a party, their shares, columns and cards.

A card states a model's purpose, quality and training data. Each party signs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from fedmq.boosting.model.fallbacks import fallback_name
from fedmq.boosting.model.share import (
    ActiveShare,
    PassiveShare,
    departures_in_words,
    refreshed_in_words,
)
from fedmq.boosting.model.shown_model import (
    ImportanceKind,
    differences,
    shown,
    tree_nodes,
)
from fedmq.cli.models_dossier import dossier
from fedmq.cli.models_without import without
from fedmq.cli.output import (
    confirm,
    joined,
    json_option,
    print_next_step,
    print_result,
    table,
)
from fedmq.cli.party_daemon import (
    PARTY_HELP,
    name_party,
    noted,
    party_argument,
    state_folder,
)
from fedmq.cli.scores import request_scores
from fedmq.cli.train import watched
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.evaluation.card import card_of, markdown_of
from fedmq.evaluation.report import Report
from fedmq.party.atomic_file import write_whole
from fedmq.party.card.model_card import Worth
from fedmq.party.card.signed_card import CardFile, Endorsement, Signature, endorse, share_hash
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import TrainingSelection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.identity import private_keys
from fedmq.party.operations.control import request_daemon
from fedmq.party.store import documents
from fedmq.party.store.documents import (
    TrainingRecord,
    cards,
    held_out_rows,
    read_column_names,
    selections,
    training_records,
)
from fedmq.party.store.screens import OwnChoice, PeerChoice
from fedmq.party.store.share_file import read_share, write_share
from fedmq.workbench.evaluation import held_out_report
from fedmq.workbench.joint_model import federated_booster
from fedmq.workbench.model import importance_of
from fedmq.workbench.own_shares import OwnShares

__all__ = ["card", "models", "verify_card"]

_file = click.argument("file", type=click.Path(path_type=Path))


class _ListsByDefault(click.Group):
    """``fedmq models PARTY`` is short for ``fedmq models list PARTY``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault)
def models() -> None:
    """List, show, describe and compare models; export, import, verify or delete shares."""


@models.command("list", epilog=PARTY_HELP)
@party_argument
@json_option
def list_models(party: Path, as_json: bool) -> None:
    """List the models, the oldest first."""
    result = request_daemon(state_folder(party), {"do": "models"})
    print_result(result, as_json, _models_in_words)
    if not result:
        print_next_step(as_json, "status", party)
    elif "trees" in result[0]:
        print_next_step(as_json, "predict", party, "IDS.csv --output scores.csv")
    else:
        print_next_step(as_json, "models verify", party)


@models.command("export", epilog=PARTY_HELP)
@party_argument
@click.argument("model")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--joint",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all parties' splits into this new .json file of XGBoost, if all owners agree.",
)
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for each party.")
@json_option
def export_share(
    party: Path, model: str, file: Path | None, joint: Path | None, wait: float, as_json: bool
) -> None:
    """Write PARTY's own share of MODEL to a new FILE.

    It is for a backup or another machine of the same party. Other parties refuse it, and must
    not see it. With --joint the active party writes the whole model, which xgboost.Booster loads
    and which scores without the other parties: each of their owners is asked, and has to say yes.
    """
    shares = OwnShares(party)
    if (file is None) == (joint is None):
        raise click.UsageError("name either a FILE for the own share, or one with --joint")
    if joint is not None:
        _export_joint(party, shares, model, joint, wait, as_json)
        return
    assert file is not None
    digest = write_share(shares.checked(model), file)
    result = {"model": model, "party": shares.party, "file": str(file), "sha256": digest}
    print_result(result, as_json, lambda share: f"{share['file']}: sha256 {share['sha256']}")
    print_next_step(as_json, "models import", party, file)


def _export_joint(
    party: Path, shares: OwnShares, model: str, file: Path, wait: float, as_json: bool
) -> None:
    if file.suffix != ".json":
        raise ConfigError(f"{file}: XGBoost reads such a file by its name; end it with .json")
    if file.exists():
        raise ConfigError(f"{file}: exists already; choose another name")
    shares.checked(model)
    booster = federated_booster(shares, model, wait)
    write_whole(file, bytes(booster.save_raw("json")), 0o600)
    noted(shares.state, "joint model written", model=model)
    result = {
        "model": model,
        "file": str(file),
        "columns": booster.feature_names,
        "rounds": booster.num_boosted_rounds(),
    }
    print_result(
        result,
        as_json,
        lambda done: (
            f"{done['file']}: {done['rounds']} rounds over {len(done['columns'])} columns; it "
            "scores without the other parties, so keep it as their owners were promised"
        ),
    )
    print_next_step(as_json, "models show", party, model)


@models.command("import", epilog=PARTY_HELP)
@party_argument
@_file
@json_option
def import_share(party: Path, file: Path, as_json: bool) -> None:
    """Take PARTY's own share of a model from an exported FILE."""
    shares = OwnShares(party)
    share = read_share(file, shares.party, shares.is_active)
    if shares.store.path(share.model_id).exists():
        raise ConfigError(f"{file}: {shares.party} has a share of model {share.model_id} already")
    shares.store.save(share)
    noted(shares.state, "share imported", model=share.model_id)
    print_result(
        {"model": share.model_id, "party": shares.party},
        as_json,
        lambda done: f"{done['party']} has its share of model {done['model']}",
    )
    print_next_step(as_json, "models verify", party, share.model_id)


@models.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option("--local", is_flag=True, help="Do not ask the other parties.")
@click.option(
    "--federation",
    "federation_file",
    type=click.Path(path_type=Path),
    help="For a card alone: the federation file, with the parties' public keys.",
)
@json_option
def verify(
    party: Path, model: str | None, local: bool, federation_file: Path | None, as_json: bool
) -> None:
    """Verify PARTY's share of MODEL, or of all its models; or a model card.

    At the active party its daemon then asks whether every other party could serve the model: each
    loads its share, counts its records and looks up its rows, and nothing changes. With a card's
    .json in place of MODEL, or of PARTY, its signatures are verified, and that the hash of PARTY's
    own share is the one it has signed.
    """
    if model is not None and model.endswith(".json"):
        verify_card(Path(model), party, None, as_json)
        return
    if party.suffix == ".json":
        verify_card(party, None, federation_file, as_json)
        return
    shares = OwnShares(party)
    result = []
    for name in [model] if model else shares.store.ids():
        share = shares.checked(name)
        verified: dict[str, Any] = {"model": name, "own_records": len(share.lookup_table)}
        if shares.is_active and not local:
            answer = request_daemon(shares.state, {"do": "verify", "model": name})
            verified["records"] = answer["records"]
        result.append(verified)
    print_result(result, as_json, _verified)
    if shares.is_active and result:
        print_next_step(as_json, "activate", party, result[-1]["model"])
    else:
        print_next_step(as_json, "status", party)


@models.command("show", epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option("--tree", type=click.IntRange(1), help="The nodes of one tree, from 1.")
@json_option
def show_model(party: Path, model: str | None, tree: int | None, as_json: bool) -> None:
    """Show MODEL, the newest when left out, as far as PARTY may see it.

    The active party sees the trees' shapes, its own splits by name, and whose the others are; a
    passive party sees its own splits.
    """
    shares = OwnShares(party)
    share = shares.share(model)
    if tree is not None:
        if not isinstance(share, ActiveShare):
            raise ConfigError(f"{party}: only {shares.federation.active} sees trees")
        print_result(tree_nodes(share, tree), as_json, _tree_in_words)
        print_next_step(as_json, "models show", party, share.model_id)
        return
    shared = read_column_names(shares.state, share.model_id) if shares.is_active else {}
    selection = selections(shares.state).find(share.model_id)
    chosen = {} if selection is None else {"selected": selection.described(shares.party)}
    print_result({**shown(share, shared), **chosen}, as_json, _model_in_words)
    print_next_step(as_json, "models importance", party, share.model_id)


@models.command("diff", epilog=PARTY_HELP)
@party_argument
@click.argument("one")
@click.argument("other")
@json_option
def diff_models(party: Path, one: str, other: str, as_json: bool) -> None:
    """Show where the models ONE and OTHER differ, as far as PARTY may see them."""
    shares = OwnShares(party)
    found = differences(shown(shares.checked(one)), shown(shares.checked(other)))
    result = [{"key": key, one: first, other: second} for key, first, second in found]
    print_result(
        result,
        as_json,
        lambda _: (
            table(("", one, other), [(key, _cell(a), _cell(b)) for key, a, b in found])
            if found
            else f"{one} and {other} do not differ"
        ),
    )
    print_next_step(as_json, "models show", party, other)


@models.command("delete", epilog=PARTY_HELP)
@party_argument
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--everywhere",
    is_flag=True,
    help="Delete at all parties: each by its own policy, this party last.",
)
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for each party.")
@json_option
def delete_model(
    party: Path, model: str, yes: bool, everywhere: bool, wait: float, as_json: bool
) -> None:
    """Delete PARTY's share of MODEL, and what is kept beside it.

    No party can score by MODEL any more. A model that is served, or that a name can be rolled back
    to, is not deleted. With --everywhere the active party asks the others to delete theirs, and
    keeps its own until all have.
    """
    shares = OwnShares(party)
    shares.checked(model)
    documents.check_unserved(shares.state, model)
    whose = "all shares" if everywhere else f"{shares.party}'s share"
    if not yes:
        confirm(f"Delete {whose} of {model} for good?", "--yes")
    left: dict[str, str] = {}
    asked: dict[str, Any] = {}
    if everywhere:
        request = {"do": "delete_everywhere", "model": model, "seconds": wait}
        asked = request_daemon(shares.state, request)
        left = {name: answer["refused"] for name, answer in asked.items() if "refused" in answer}
        if left:
            left[shares.party] = "kept until all other parties have deleted their shares"
    else:
        documents.delete_model(shares.state, model)
        noted(shares.state, "share deleted", model=model)
    deleted = [name for name in (shares.party, *asked) if name not in left]
    result = {
        "model": model,
        "party": shares.party,
        "deleted": shares.party in deleted,
        "deleted_at": deleted,
        "left": left,
    }
    print_result(result, as_json, _deleted)
    print_next_step(as_json, "models list", party)


@models.command("importance", epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option(
    "--type",
    "kind",
    default="gain",
    show_default=True,
    type=click.Choice(get_args(ImportanceKind)),
    help="The kind of importance, as in XGBoost's get_score.",
)
@click.option(
    "--names",
    is_flag=True,
    help="Ask the other parties for the names of their columns, and keep them.",
)
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for each party.")
@json_option
def show_importance(
    party: Path, model: str | None, kind: ImportanceKind, names: bool, wait: float, as_json: bool
) -> None:
    """Show the importance of columns in MODEL, the newest when left out.

    The active party sees its own columns by name, and each other party as a whole, unless that one
    shares its columns' names. A passive party sees how often its own columns split: gains are not
    sent to it.
    """
    shares = OwnShares(party)
    share = shares.share(model)
    if names and not shares.is_active:
        raise ConfigError(f"{party}: only {shares.federation.active} asks for names")
    result = importance_of(shares, share, kind, wait if names else None)
    print_result(result, as_json, _importances)
    if shares.is_active:
        print_next_step(as_json, "evaluate", party, share.model_id, "--output report")
    else:
        print_next_step(as_json, "models verify", party, share.model_id)


def _models_in_words(result: Any) -> str | Text:
    if not result:
        return "no models yet; train one with: fedmq train JOB.toml"
    if "trees" not in result[0]:
        rows = [
            (
                model["model"],
                model["made"][:10],
                model["records"],
                ", ".join(model["names"]),
                ", ".join(model["departures"]),
            )
            for model in result
        ]
        return table(("model", "made", "records of this party", "serves as", "withheld"), rows)
    return table(
        ("model", "made", "rows", "engine", "trees", "objective", "serves as"),
        [
            (
                model["model"],
                model["made"][:10],
                "" if model["rows"] is None else model["rows"],
                model["engine"] or "",
                model["trees"],
                model["objective"],
                ", ".join(model["names"]),
            )
            for model in result
        ],
        [
            [
                f"as XGBoost: {departures_in_words(model['departures'])}",
                *[_metrics(model)] * bool(model["metrics"]),
            ]
            for model in result
        ],
    )


def _metrics(model: Any) -> str:
    return ", ".join(f"{name} {value:.5f}" for name, value in model["metrics"].items())


def _model_in_words(model: Any) -> Text:
    splits = [(split, count) for split, count in model["own_splits"].items()]
    selected = _selected(model["selected"]) if "selected" in model else ""
    if "trees" not in model:
        withheld = "; ".join(model["departures"])
        head = f"{model['model']}: {sum(model['own_splits'].values())} splits of {model['party']}"
        return joined(head, withheld, selected, table(("own split", "nodes"), splits))
    trees = model["trees"]
    leaves, depth = sum(tree["leaves"] for tree in trees), max(tree["depth"] for tree in trees)
    facts = [
        ("objective", model["objective"]),
        ("trees", f"{len(trees)}, {leaves} leaves, depth {depth}"),
        *([("refreshes", refreshed_in_words(old))] if (old := model["refreshes"]) else []),
        ("as XGBoost", departures_in_words(model["departures"])),
        *((f"{party}'s splits", count) for party, count in model["splits"].items()),
        *((name, f"{value:.5f}") for name, value in model["metrics"].items()),
        *((name, _cell(value)) for name, value in model["params"].items()),
    ]
    splits_table = table(("own split", "nodes"), splits)
    return joined(table(("", model["model"]), facts), selected, splits_table)


def _selected(selected: Any) -> str:
    counts = (
        f"{few:,} of {of:,} columns of {party}" for party, (few, of) in selected["columns"].items()
    )
    own = f"; the own ones: {', '.join(selected['own'])}" if selected["own"] else ""
    return f"trained with {', '.join(counts)}, selected by screen {selected['screen']}{own}"


def _split(node: Any) -> str:
    if "party" not in node:
        return ""
    return str(node.get("split", f"{node['party']}, split {node['record']}"))


def _tree_in_words(nodes: Any) -> Text:
    rows = [
        (
            node["node"],
            _split(node),
            f"{node['left']}, {node['right']}" if "left" in node else "",
            _cell(node.get("gain")),
            _cell(node["cover"]),
            _cell(node.get("weight")),
        )
        for node in nodes
    ]
    return table(("node", "what goes to the first", "children", "gain", "cover", "weight"), rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _importances(result: Any) -> Text:
    kind = result["type"]
    rows = [
        (row["party"], row["column"] or "(all of its columns)", f"{row[kind]:,.6g}")
        for row in result["columns"]
    ]
    return joined(table(("party", "column", kind), rows), "\n".join(result["refused"]))


def _deleted(result: Any) -> Text:
    rows = [(party, "deleted") for party in result["deleted_at"]]
    return table(("party", f"share of {result['model']}"), [*rows, *result["left"].items()])


def _verified(result: Any) -> str:
    lines = []
    for model in result:
        records = model.get("records", {})
        others = "".join(f", {count} at {party}" for party, count in records.items())
        lines.append(f"{model['model']}: sound, {model['own_records']} records here{others}")
    return "\n".join(lines) or "no models yet"


# fedmq models card: a page that describes a model, and that all its parties sign.


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
    help="A report.json of fedmq evaluate; when left out, the command evaluates the held-out rows.",
)
@click.option("--no-evaluation", is_flag=True, help="Leave out the model's evaluation.")
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
    print_result(result, as_json, _card_in_words)
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
            f"{path}: {shares.party}'s share of {file.card.model} is not the signed share"
        )
    print_result(_result(file, signatures) | {"own_share": own}, as_json, _card_in_words)


models.add_command(card)
models.add_command(without)
models.add_command(dossier)


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
        ask = partial(request_scores, shares.state, quiet=quiet)
        found = held_out_report(shares.config, share, ask)
    worths = _worths(party, shares, share, record, quiet) if worth else shares.worths(share)
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
    """The model's metric without each partner; existing models are reused."""
    if record is None or not record.held_out or not share.metrics:
        raise ConfigError(
            f"--worth: {share.model_id} cannot be trained again to be compared: "
            + ("its training is not recorded" if record is None else "it held out no rows")
        )
    worths = {}
    for partner in share.parties[1:]:
        name = fallback_name(share.model_id, partner)[:64]
        others = tuple(other for other in share.parties[1:] if other != partner)
        if not shares.store.path(name).exists():
            job = record.job.model_copy(update={"model": name, "parties": others})
            if job.select is not None:  # what its screen would select now may be other columns
                same = TrainingSelection(model=share.model_id)
                job = job.model_copy(update={"select": same})
            watched(party, {"do": "train", "job": job.model_dump(mode="json")}, quiet, job)
        without = shares.checked(name)
        assert isinstance(without, ActiveShare)
        if without.parties != (shares.party, *others):
            raise ConfigError(
                f"--worth: there is a model {name} already, of other parties; delete it with: "
                f"fedmq models delete PARTY {name}"
            )
        if _selected_for(shares, share.model_id, others) != _selected_for(shares, name, others):
            raise ConfigError(
                f"--worth: there is a model {name} already, of other columns; delete it with: "
                f"fedmq models delete PARTY {name}"
            )
        worths[partner] = Worth.of(share, without)
    return worths


def _selected_for(
    shares: OwnShares, model: str, partners: tuple[str, ...]
) -> tuple[OwnChoice | None, Mapping[str, PeerChoice]] | None:
    """The columns of this party and of ``partners`` that ``model`` was offered; None: all."""
    selection = selections(shares.state).find(model)
    if selection is None:
        return None
    chosen = selection.among(partners)
    return chosen.own, chosen.others


def _own_signature(shares: OwnShares, file: CardFile) -> Endorsement:
    share: ActiveShare | PassiveShare = shares.checked(file.card.model)
    if not shares.federation.keys:
        raise ConfigError(
            "the federation has no keys, so nobody can sign; make them with: fedmq keys new"
        )
    for found in file.signatures(shares.federation):
        if found.state == "wrong" and found.party != shares.party:
            raise Refused(f"the signature of {found.party} is wrong: the card was altered")
    passphrase = private_keys.passphrase_from(
        shares.config.keys_passphrase, private_keys.passphrase_from_environment
    )
    keys = private_keys.read(shares.config.keys, shares.party, passphrase)
    return endorse(file.card, share, shares.party, AuditLog(shares.state), keys.current.sign.sign)


def _asked(shares: OwnShares, file: CardFile, wait: float) -> tuple[CardFile, dict[str, str]]:
    """The card with the other parties' signatures, and the reasons of missing ones."""
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
    write_whole(page, text)


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


def _card_in_words(result: Any) -> Text:
    where = f": {result['file']}" if "file" in result else ""
    rows = [
        (found["party"], found["state"], found["fingerprint"] or "", found["share"][:16])
        for found in result["signatures"]
    ]
    refused = "\n".join(result.get("refused", {}).values())
    own = {True: "The own share is the signed share.", None: "", False: ""}
    return joined(
        f"card of {result['model']}, made {result['made']}{where}",
        table(("party", "signature", "fingerprint of its key", "share"), rows),
        refused,
        own[result.get("own_share")],
    )


# The owner's commands read a party's shares without a daemon.
