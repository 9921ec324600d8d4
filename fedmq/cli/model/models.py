"""``fedmq models``: the models of which a party holds a share, and the shares as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from fedmq.boosting.model.importance import ImportanceKind, owned_importance, split_counts
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.model.departures import departures_in_words
from fedmq.cli.model.shown_model import differences, shown
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.cli.table import joined, table
from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.store.deployments import Deployments
from fedmq.party.store.held_out import held_out_path
from fedmq.party.store.models import ModelStore
from fedmq.party.store.share_file import check_owner, read_share, write_share

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
    """List, show and compare models; export, import, verify or delete a party's share."""


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
    shares = _Shares(party)
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
    shares = _Shares(party)
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
@json_option
def verify(party: Path, model: str | None, local: bool, as_json: bool) -> None:
    """Verify PARTY's share of MODEL, or of all its models.

    At the active party its daemon then asks whether every other party could serve the model: each
    loads its share, counts its records and looks up its rows, and nothing changes.
    """
    shares = _Shares(party)
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
@json_option
def show_model(party: Path, model: str | None, as_json: bool) -> None:
    """Show MODEL, the newest when left out, as far as PARTY may see it.

    The active party sees the trees' shapes, its own splits by name, and whose the others are; a
    passive party sees its own splits.
    """
    shares = _Shares(party)
    share = shares.share(model)
    print_result(shown(share), as_json, _model_in_words)
    print_next_step(as_json, "models importance", party, share.model_id)


@models.command("diff", epilog=PARTY_HELP)
@party_argument
@click.argument("one")
@click.argument("other")
@json_option
def diff_models(party: Path, one: str, other: str, as_json: bool) -> None:
    """Show where the models ONE and OTHER differ, as far as PARTY may see them."""
    shares = _Shares(party)
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
@json_option
def delete_model(party: Path, model: str, yes: bool, as_json: bool) -> None:
    """Delete PARTY's share of MODEL, and the rows that it held out.

    No party can score by MODEL any more. The shares of others stay with them. A model that is
    served, or that a name can be rolled back to, is not deleted.
    """
    shares = _Shares(party)
    shares.checked(model)
    names = Deployments.read(shares.state).names_of(model)
    if names:
        raise ConfigError(
            f"model {model!r} is served as {', '.join(names)}, or was: activate another model "
            "until it can no longer be rolled back to"
        )
    if not yes:
        click.confirm(f"Delete {shares.party}'s share of {model} for good?", abort=True, err=True)
    held_out_path(shares.state, model).unlink(missing_ok=True)
    shares.store.path(model).unlink()
    result = {"model": model, "party": shares.party, "deleted": True}
    print_result(result, as_json, lambda _: f"{shares.party} has no share of {model} any more")
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
@json_option
def show_importance(party: Path, model: str | None, kind: ImportanceKind, as_json: bool) -> None:
    """Show what columns brought to MODEL, the newest when left out.

    The active party sees its own columns by name, and each other party as a whole. A passive party
    sees how often its own columns split: gains are not sent to it.
    """
    shares = _Shares(party)
    share = shares.share(model)
    found: Mapping[tuple[str, str], float]
    if isinstance(share, ActiveShare):
        found = owned_importance(share, kind)
    else:
        kind = "weight"
        found = {(shares.party, name): count for name, count in split_counts(share).items()}
    columns = [
        {"party": owner, "column": column, kind: value}
        for (owner, column), value in sorted(found.items(), key=lambda item: -item[1])
    ]
    result = {"model": share.model_id, "type": kind, "columns": columns}
    print_result(result, as_json, _importances)
    if shares.is_active:
        print_next_step(as_json, "evaluate", party, share.model_id, "--output report")
    else:
        print_next_step(as_json, "models verify", party, share.model_id)


class _Shares:
    """The shares of the party configured in the file ``path``; no daemon is needed."""

    def __init__(self, path: Path) -> None:
        config, federation = PartyFile.read(path)
        self.party = config.party
        self.is_active = config.party == federation.active
        self.state = config.state
        self.store = ModelStore(config.state)

    def share(self, model: str | None) -> ActiveShare | PassiveShare:
        """The share of ``model``, or of the newest one; DataError if there is none."""
        return self.checked(self.store.newest() if model is None else model)

    def checked(self, model: str) -> ActiveShare | PassiveShare:
        """The share of ``model``; DataError if it is missing, damaged or another party's."""
        share = self.store.active(model) if self.is_active else self.store.passive(model)
        where = str(self.store.path(model))
        if share.model_id != model:
            raise DataError(f"{where}: the share of model {share.model_id}")
        check_owner(share, self.party, where)
        return share


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
    return table(("party", "column", kind), rows)


def _verified(result: Any) -> str:
    lines = []
    for model in result:
        records = model.get("records", {})
        others = "".join(f", {count} at {party}" for party, count in records.items())
        lines.append(f"{model['model']}: sound, {model['own_records']} records here{others}")
    return "\n".join(lines) or "no models yet"
