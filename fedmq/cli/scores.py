"""``fedmq predict``, ``activate``, ``rollback``, ``serving`` and ``score``: a model is used.

`predict` scores a file of ids. The others are about a model that the daemons serve to those who
wait for a score.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.cli.progress import ProgressBar
from fedmq.cli.score_output import ScoreRows, ScoreTable, check_file, queried_ids, write_file
from fedmq.errors import ConfigError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.people_file import asked_margins, read_ids

__all__ = [
    "activate",
    "base_margin_option",
    "mode_option",
    "model_option",
    "named_model",
    "predict",
    "request_scores",
    "rollback",
    "score",
    "serving",
]

base_margin_option = click.option(
    "--base-margin",
    "base_margin",
    multiple=True,
    metavar="COLUMN",
    help="The base margin of each row: a column of the file of ids, or else of PARTY's table; "
    "for several classes, a column per class.",
)
model_option = click.option(
    "-m",
    "--model",
    help="A model, or an activated name; when left out, what is in production, or the newest model "
    "where none is activated.",
)
mode_option = click.option(
    "--mode",
    type=click.Choice(["hop", "sealed"]),
    help="hop: passive parties tell each row's way; sealed: they tell sums that hide it. sealed if "
    "left out where [online] says so, otherwise hop.",
)
_REGISTRY = "models:/"
"""How MLflow names a model of its registry."""
_name = click.option("--name", default="production", show_default=True, help="The name.")
_longest = click.option(
    "--for",
    "seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to wait for the parties, and before them for another person where the policy "
    "wants one; after them the name keeps its meaning.",
)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("ids", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write: Parquet if it ends in .parquet, else CSV as PARTY's own file is written.",
)
@click.option(
    "--to-table",
    metavar="TABLE",
    help="Table of PARTY's database to write, one row for each id, model and day.",
)
@click.option(
    "--day",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The day in --to-table; today when left out.",
)
@model_option
@click.option("--margin", is_flag=True, help="Raw scores instead of predictions.")
@click.option(
    "--explain",
    is_flag=True,
    help="Add the contribution of each column, or party, to the raw score.",
)
@click.option("--strict", is_flag=True, help="Write no scores if a party does not know an id.")
@click.option("--all-aligned", is_flag=True, help="Score all people of the newest alignment.")
@click.option("--alignment", help="Score all people of the alignment of this name.")
@click.option("--ids-query", help="Score the people whose ids this SELECT yields.")
@base_margin_option
@mode_option
@json_option
def predict(
    party: Path,
    ids: Path | None,
    output: Path | None,
    to_table: str | None,
    day: datetime | None,
    model: str | None,
    margin: bool,
    explain: bool,
    strict: bool,
    all_aligned: bool,
    alignment: str | None,
    ids_query: str | None,
    base_margin: tuple[str, ...],
    mode: str | None,
    as_json: bool,
) -> None:
    """Score the people in the CSV file IDS, of an alignment, or of a query to PARTY's database.

    The columns of the id have the headers that PARTY names. An id that a party does not know has no
    score, or the one of a fallback model or of learned default directions, as unknown in [online]
    says; the column reason names the party. With --explain columns of contributions follow (Shapley
    values), the bias last, which add up to the raw score. --to-table writes all rows or none, and
    those that are there already stay as they are, so that a job may be repeated. With --mode
    sealed nobody learns the way of a row: its score is all that is told, to 6 digits and more, or
    with --explain each party's part in it.
    Ctrl-C only stops waiting (see: fedmq cancel).
    """
    config, _ = PartyFile.read(party)
    section = config.serving or config.data
    aligned = all_aligned or alignment is not None
    if (ids is not None) + aligned + (ids_query is not None) != 1:
        raise click.UsageError("write either a file IDS, --all-aligned or --ids-query")
    if output is None and to_table is None:
        raise click.UsageError("say where the scores go: --output FILE or --to-table TABLE")
    if explain and to_table is not None:
        raise click.UsageError("--explain: contributions go into a file, so use --output")
    names = None
    if ids is not None:
        names = read_ids(ids, section.ids, section.separator, section.encoding)
    if ids_query is not None:
        names = queried_ids(ids_query, section)
    kept = None if to_table is None else ScoreTable(to_table, section)
    # Before the other parties learn which people are scored.
    if output is not None:
        check_file(output, section)
    if kept is not None:
        kept.check()
    request = {
        "do": "predict",
        "model": model,
        "ids": names,
        "alignment": alignment,
        "strict": strict,
        "output_margin": margin,
        "explain": explain,
        "mode": mode,
        **asked_margins(base_margin, ids, section),
    }
    result = request_scores(config.state, request, as_json)
    names = names if names is not None else result["ids"]
    scored = ScoreRows.of(section.ids, names, result, strict and kept is None)
    added = None
    if kept is not None:
        added = kept.write(scored, result["model"], (day or datetime.now()).date())
    if output is not None:
        write_file(output, scored, section)
    summary = {
        "model": result["model"],
        "name": result["name"],
        "newest": result["newest"],
        "mode": result["mode"],
        "rows": len(names),
        "without_score": sum(score is None for score in result["scores"]),
        "degraded": result["degraded"],
        "without": result["without"],
        "by_fallback": {
            model: result["fallback"].count(model)
            for model in sorted({*result["fallback"]} - {None})
        },
        "output": output and str(output),
        **({} if kept is None else {"table": to_table, "added": added}),
    }
    print_result(summary, as_json, _scored_in_words)
    learned = [party for party in result["learned_at"] if party in result["degraded"]]
    if summary["without_score"] and learned and not as_json:
        click.echo(
            f"{result['model']} was trained on people whom {' and '.join(learned)} lacks: with "
            'unknown = "directions" in [online] such people have a score'
        )
    if any(isinstance(score, list) for score in result["scores"]):
        print_next_step(as_json, "models list", party)  # online scores are one number a row
    elif result["name"]:
        print_next_step(as_json, "serving", party)
    else:
        print_next_step(as_json, "activate", party, result["model"])


def _scored_in_words(done: Any) -> str:
    scored = done["rows"] - done["without_score"]
    blanks = f", {done['without_score']} blank (see the column reason)"
    unknown = "".join(
        f"; without {party}, which has left or does not answer"
        if party in done["without"]
        else f"; {party} does not know {share:.1%} of the people"
        for party, share in done["degraded"].items()
    )
    fallbacks = "".join(f"; {rows} by {model}" for model, rows in done["by_fallback"].items())
    places = [done["output"]] * bool(done["output"])
    if "table" in done:
        places.append(f"table {done['table']}, {done['added']} rows of which are new")
    return (
        f"{scored} scores by {named_model(done)}{blanks * bool(done['without_score'])} "
        f"in {' and '.join(places)}{unknown}{fallbacks}"
    )


def named_model(done: Mapping[str, Any]) -> str:
    """The model of a result, and why it was this one."""
    if done["newest"]:
        return f"{done['model']} (the newest; none is activated)"
    return f"{done['model']} ({done['name']})" if done["name"] else str(done["model"])


def request_scores(state: Path, request: Mapping[str, Any], quiet: bool) -> Any:
    """The daemon's answer to ``request``, a prediction; shows its progress meanwhile."""
    with ProgressBar("predicting, leaves", "leaf", quiet=quiet) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["total"] or event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        return request_daemon(state, request, show)


# fedmq activate, rollback and serving: the model behind a name.


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@_name
@click.option(
    "--mode",
    type=click.Choice(["hop", "bitmap", "sealed"]),
    help="As in [online] if left out.",
)
@_longest
@json_option
def activate(
    party: Path, model: str | None, name: str, mode: str | None, seconds: float, as_json: bool
) -> None:
    """Serve MODEL (the newest if left out) under a name, at all parties together.

    Every party loads its share first; if one of them cannot, or not in time, the name keeps its
    meaning. MODEL may be one of MLflow's registry, models:/NAME/VERSION or models:/NAME@ALIAS.
    Ctrl-C only stops watching (see: fedmq cancel).
    """
    if model is not None and model.startswith(_REGISTRY):
        from fedmq.mlflow.models import load_model  # an extra, and slow to import

        model = load_model(model, party).name
    request = {"do": "activate", "model": model, "name": name, "mode": mode, "seconds": seconds}
    print_result(_watched(party, request, as_json), as_json, _switched)
    print_next_step(as_json, "serving", party)


@click.command(epilog=PARTY_HELP)
@party_argument
@_name
@_longest
@json_option
def rollback(party: Path, name: str, seconds: float, as_json: bool) -> None:
    """Serve the previous model under a name again, at all parties together."""
    request = {"do": "rollback", "name": name, "seconds": seconds}
    print_result(_watched(party, request, as_json), as_json, _switched)
    print_next_step(as_json, "serving", party)


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def serving(party: Path, as_json: bool) -> None:
    """Show the models that the daemon of PARTY serves, with request counts and times."""
    result = request_daemon(state_folder(party), {"do": "serving"})
    print_result(result, as_json, _serving_in_words)
    if "questions" in result:
        print_next_step(as_json, "audit-log list", party, "--online")
    elif result["models"]:
        print_next_step(as_json, "health", party)
    else:
        print_next_step(as_json, "activate", party)


def _watched(party: Path, request: Mapping[str, Any], quiet: bool) -> Any:
    with ProgressBar("activating, parties", "party", quiet=quiet) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "asked":
                until = event["until"].replace("T", " ")[:16]
                bar.note(
                    f"another person has to say yes until {until}: "
                    f"fedmq approve {party} {event['request']}"
                )
            elif event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        return request_daemon(state_folder(party), request, show)


def _switched(result: Any) -> str:
    before = f", it was {result['before']}" if result["before"] else ""
    fallbacks = ", ".join(result["fallbacks"])
    also = f"; fallback models: {fallbacks}" if fallbacks else ""
    return f"{result['name']} is {result['model']} in mode {result['mode']}{before}{also}"


def _serving_in_words(result: Any) -> Text:
    warnings = result["troubles"]
    if "questions" in result:
        models = [(model,) for model in result["models"]]
        answers = (
            f"{result['party']}: {result['questions']} questions, "
            f"{result['turned_away']} turned away"
        )
        return joined(answers, table(("model",), models) if models else "no model", *warnings)
    rows = [
        (name, model["model"], model["mode"], model["rounds"])
        for name, model in result["models"].items()
    ]
    columns = ("name", "model", "mode", "rounds at most")
    counts, recent = result["counts"], result["recent"]
    pace = (
        ""
        if recent["p99"] is None
        else (
            f"{recent['per_second']:.1f} requests a second in the last minute; of the last "
            f"{recent['requests']}, half within {1e3 * recent['median']:.1f} ms, 99 of 100 within "
            f"{1e3 * recent['p99']:.1f} ms"
        )
    )
    away = f"; away: {', '.join(result['away'])}" if result["away"] else ""
    return joined(
        table(columns, rows) if rows else "no model is served",
        f"{counts['requests']} requests, {counts['rows']} rows, {counts['failed']} failed, "
        f"{counts['degraded']} degraded, {counts['turned_away']} turned away{away}",
        pace,
        *warnings,
    )


# fedmq score: one score from the served model, as callers get it.


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("person", metavar="ID")
@click.option(
    "-m",
    "--model",
    "--name",
    "name",
    help="A served name, or its model; when left out, the one name that is activated.",
)
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Values in place of PARTY's stored row; columns that are left out are missing.",
)
@click.option(
    "--explain", type=click.IntRange(1, 1000), metavar="N", help="The N strongest reasons."
)
@json_option
def score(
    party: Path,
    person: str,
    name: str | None,
    features: tuple[str, ...],
    explain: int | None,
    as_json: bool,
) -> None:
    """Score the person ID by the served model, and show how long each party took."""
    given = [dict(map(_column, features))] if features else None
    request = {"do": "score", "name": name, "ids": [person], "features": given, "explain": explain}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, _score_in_words)
    print_next_step(as_json, "serving", party)


def _column(text: str) -> tuple[str, float | str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise ConfigError(f"--feature {text!r}: write COLUMN=VALUE")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _score_in_words(result: Any) -> Text:
    [scored] = result["scores"]
    reasons = [
        (reason["party"], reason.get("text") or reason.get("column", ""), f"{reason['value']:+.5f}")
        for reason in scored.get("reasons") or ()
    ]
    waited = [(party, f"{1e3 * seconds:.1f}") for party, seconds in result["waited"].items()]
    unknown = scored.get("unknown_at", [])
    fallback = scored.get("fallback")
    guessed = ", ".join(party for party in result.get("degraded", ()) if party not in unknown)
    if fallback:
        lacking = ", ".join(sorted({*unknown, *result.get("degraded", ())}))
        unknown, guessed = [], ""
    return joined(
        f"{scored['id']}: {scored['score']} by {named_model({'newest': False, **result})}, "
        f"{1e3 * result['seconds']:.1f} ms",
        f"degraded: scored without {lacking}, by fallback model {fallback}" if fallback else "",
        f"guessed in part: {guessed} did not answer" if guessed else "",
        f"degraded: not known at {', '.join(unknown)}, where values count as missing"
        if unknown
        else "",
        table(("party", "column", "added to the margin"), reasons) if reasons else "",
        table(("party", "ms to its answers"), waited) if waited else "",
    )
