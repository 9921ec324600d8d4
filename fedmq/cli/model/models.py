"""``fedmq models``: the models of which a party holds a share, and the shares as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from fedmq.boosting.model.share import ActiveShare, departures_in_words
from fedmq.boosting.model.shown_model import (
    ImportanceKind,
    differences,
    owned_importance,
    shown,
    split_counts,
    tree_nodes,
)
from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.model.card import card, verify_card
from fedmq.cli.model.own_shares import OwnShares
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.cli.table import joined, table
from fedmq.errors import ConfigError
from fedmq.party.store import documents
from fedmq.party.store.documents import read_column_names
from fedmq.party.store.share_file import read_share, write_share

__all__ = ["models"]

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


models.add_command(card)


@models.command("list", epilog=PARTY_HELP)
@party_argument
@json_option
def list_models(party: Path, as_json: bool) -> None:
    """List the models, the oldest first."""
    result = request_daemon(state_folder(party), {"do": "models"})
    print_result(result, as_json, _in_words)
    if not result:
        print_next_step(as_json, "status", party)
    elif "trees" in result[0]:
        print_next_step(as_json, "predict", party, "IDS.csv --output scores.csv")
    else:
        print_next_step(as_json, "models verify", party)


@models.command("export", epilog=PARTY_HELP)
@party_argument
@click.argument("model")
@_file
@json_option
def export_share(party: Path, model: str, file: Path, as_json: bool) -> None:
    """Write PARTY's own share of MODEL to a new FILE.

    It is for a backup or another machine of the same party: no other party takes it, and none
    should see it.
    """
    shares = OwnShares(party)
    digest = write_share(shares.checked(model), file)
    result = {"model": model, "party": shares.party, "file": str(file), "sha256": digest}
    print_result(result, as_json, lambda share: f"{share['file']}: sha256 {share['sha256']}")
    print_next_step(as_json, "models import", party, file)


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
    help="Of a card alone: the federation file, with the keys that parties sign with.",
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
    print_result(shown(share, shared), as_json, _model_in_words)
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
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--everywhere", is_flag=True, help="At all parties: each by its own policy, this one last."
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
        click.confirm(f"Delete {whose} of {model} for good?", abort=True, err=True)
    left: dict[str, str] = {}
    asked: dict[str, Any] = {}
    if everywhere:
        request = {"do": "delete_everywhere", "model": model, "seconds": wait}
        asked = request_daemon(shares.state, request)
        left = {name: answer["refused"] for name, answer in asked.items() if "refused" in answer}
        if left:
            left[shares.party] = "kept until all others have deleted theirs"
    else:
        documents.delete_model(shares.state, model)
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
    help="What is counted, as in XGBoost's get_score.",
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
    """Show what columns brought to MODEL, the newest when left out.

    The active party sees its own columns by name, and each other party as a whole, unless that one
    shares its columns' names. A passive party sees how often its own columns split: gains are not
    sent to it.
    """
    shares = OwnShares(party)
    share = shares.share(model)
    found: Mapping[tuple[str, str], float]
    refused: list[str] = []
    if names and not shares.is_active:
        raise ConfigError(f"{party}: only {shares.federation.active} asks for names")
    if isinstance(share, ActiveShare):
        if names:
            request = {"do": "column_names", "model": share.model_id, "seconds": wait}
            answers = request_daemon(shares.state, request)
            refused = [answer["refused"] for answer in answers.values() if "refused" in answer]
        shared = read_column_names(shares.state, share.model_id)
        found = owned_importance(share, kind, shared)
    else:
        kind = "weight"
        found = {(shares.party, name): count for name, count in split_counts(share).items()}
    columns = [
        {"party": owner, "column": column, kind: value}
        for (owner, column), value in sorted(found.items(), key=lambda item: -item[1])
    ]
    result = {"model": share.model_id, "type": kind, "columns": columns, "refused": refused}
    print_result(result, as_json, _importances)
    if shares.is_active:
        print_next_step(as_json, "evaluate", party, share.model_id, "--output report")
    else:
        print_next_step(as_json, "models verify", party, share.model_id)


def _in_words(result: Any) -> str | Text:
    if not result:
        return "no models yet; train one with: fedmq train JOB.toml"
    if "trees" not in result[0]:
        rows = [
            (model["model"], model["records"], ", ".join(model["departures"])) for model in result
        ]
        return table(("model", "records of this party", "withheld"), rows)
    return table(
        ("model", "trees", "objective", "as XGBoost"),
        [
            (
                model["model"],
                model["trees"],
                model["objective"],
                departures_in_words(model["departures"]),
            )
            for model in result
        ],
        [[_metrics(model)] * bool(model["metrics"]) for model in result],
    )


def _metrics(model: Any) -> str:
    return ", ".join(f"{name} {value:.5f}" for name, value in model["metrics"].items())


def _model_in_words(model: Any) -> Text:
    splits = [(split, count) for split, count in model["own_splits"].items()]
    if "trees" not in model:
        withheld = "; ".join(model["departures"])
        head = f"{model['model']}: {sum(model['own_splits'].values())} splits of {model['party']}"
        return joined(head, withheld, table(("own split", "nodes"), splits))
    trees = model["trees"]
    leaves, depth = sum(tree["leaves"] for tree in trees), max(tree["depth"] for tree in trees)
    facts = [
        ("objective", model["objective"]),
        ("trees", f"{len(trees)}, {leaves} leaves, depth {depth}"),
        ("as XGBoost", departures_in_words(model["departures"])),
        *((f"{party}'s splits", count) for party, count in model["splits"].items()),
        *((name, f"{value:.5f}") for name, value in model["metrics"].items()),
        *((name, _cell(value)) for name, value in model["params"].items()),
    ]
    return joined(table(("", model["model"]), facts), table(("own split", "nodes"), splits))


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
