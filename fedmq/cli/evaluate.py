"""``fedmq evaluate``: how good a model is on rows whose labels are known, as a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument
from fedmq.cli.scores import base_margin_option, mode_option, named_model, request_scores
from fedmq.evaluation.page import require_pages
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.evaluation import Wanted, check_folder, evaluate_model

__all__ = ["evaluate"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to write into."
)
@click.option(
    "--rows",
    type=click.Path(path_type=Path),
    help="CSV of ids and labels; the training's held-out rows when left out.",
)
@click.option("--label", help="The label's column in --rows; that of PARTY when left out.")
@click.option("--group", help="A column of --rows or of PARTY's data, or PARTNER.COLUMN.")
@click.option(
    "--threshold", default=0.5, show_default=True, help="Scores below it count as selected."
)
@click.option("--smallest-group", default=30, show_default=True, help="Smaller groups are joined.")
@click.option("--false-positive", default=1.0, show_default=True, help="What one costs.")
@click.option("--false-negative", default=1.0, show_default=True, help="What one costs.")
@click.option(
    "--samples",
    default=200,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="Bootstrap samples for the intervals; 0: no intervals.",
)
@base_margin_option
@mode_option
@json_option
def evaluate(
    party: Path,
    model: str | None,
    output: Path,
    rows: Path | None,
    label: str | None,
    group: str | None,
    threshold: float,
    smallest_group: int,
    false_positive: float,
    false_negative: float,
    samples: int,
    base_margin: tuple[str, ...],
    mode: str | None,
    as_json: bool,
) -> None:
    """Evaluate MODEL, what is in production when left out, on rows whose labels are known.

    Writes report.html, report.json and scores.csv into a folder. All parties score the rows, as
    for fedmq predict; nothing else leaves the active party, but for --group PARTNER.COLUMN: then
    PARTNER adds up encrypted labels and scores by group, where its policy agrees. MODEL is an id or
    an activated name; where none is activated, it is the newest when left out.
    """
    config, federation = PartyFile.read(party)
    check_folder(output)
    require_pages()
    wanted = Wanted(
        rows,
        label,
        group,
        threshold,
        smallest_group,
        false_positive,
        false_negative,
        samples,
        base_margin,
    )

    def ask(request: Mapping[str, Any]) -> Any:
        if request["do"] == "predict":
            return request_scores(config.state, {**request, "mode": mode}, as_json)
        return request_daemon(config.state, request)

    found = evaluate_model(party, config, federation.active, model, wanted, ask)
    found.write(output)
    report = found.report
    summary = {
        **found.chosen.described(),
        "rows": len(found.rows),
        "without_score": found.without_score,
        "output": str(output),
        "metrics": {name: figure.model_dump() for name, figure in report.metrics.items()},
    }
    print_result(summary, as_json, _in_words)
    print_next_step(as_json, output / "report.html", program="open")


def _in_words(done: Any) -> Text:
    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    rows = [
        (name, shown(figure["value"]), f"{shown(figure['low'])} to {shown(figure['high'])}")
        if figure["low"] is not None
        else (name, shown(figure["value"]), "")
        for name, figure in done["metrics"].items()
    ]
    skipped = f", {done['without_score']} had no score" * bool(done["without_score"])
    head = f"{named_model(done)} on {done['rows']:,} rows{skipped}: {done['output']}/report.html"
    return joined(head, table(("metric", "value", "95 % interval"), rows))
