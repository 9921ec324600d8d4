"""``fedmq evaluate``: how good a model is on rows whose labels are known, as a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from fedmq.boosting.model.share import ActiveShare, departures_in_words
from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, request_daemon
from fedmq.cli.scores import (
    asked_margins,
    base_margin_option,
    named_model,
    read_ids,
    request_scores,
)
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.evaluate import ScoredRows, kind_of
from fedmq.evaluation.evaluate import evaluate as evaluated
from fedmq.evaluation.page import html_of
from fedmq.evaluation.report import Report, ReportTable
from fedmq.party.atomic_file import csv_for_people, write_atomically
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.id_column import comparable
from fedmq.party.data.sources.csv_file import CsvFile
from fedmq.party.data.table import read_text_column
from fedmq.party.store.documents import ModelStore, chosen_model, held_out_rows, reports

__all__ = ["evaluate", "held_out_report"]

_UNKNOWN = np.empty(0)
"""A placeholder for scores that are still to be requested."""


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
    as_json: bool,
) -> None:
    """Evaluate MODEL, what is in production when left out, on rows whose labels are known.

    Writes report.html, report.json and scores.csv into a folder. All parties score the rows, as
    for fedmq predict; nothing else leaves the active party, but for --group PARTNER.COLUMN: then
    PARTNER adds up encrypted labels and scores by group, where its policy agrees. MODEL is an id or
    an activated name; where none is activated, it is the newest when left out.
    """
    config, federation = PartyFile.read(party)
    if config.party != federation.active:
        raise ConfigError(f"{party}: only {federation.active}, which holds the labels, evaluates")
    chosen = chosen_model(config.state, model)
    share = ModelStore(config.state).active(chosen.model)
    kind = kind_of(share.params.objective)
    _check_folder(output)
    section = config.serving or config.data
    if rows is None:
        held_out = held_out_rows(config.state).read(share.model_id)
        ids, sets, labels = held_out.ids, held_out.sets, held_out.label.astype(np.float64)
    else:
        ids = tuple(read_ids(rows, section.id, section.separator, section.encoding))
        labels = _labels(rows, label or config.data.label, section, config.data.label_classes)
        sets = (rows.name,) * len(ids)
    groups = None
    owner, _, column = (group or "").partition(".")
    elsewhere = owner in share.parties[1:] and bool(column)
    if elsewhere and kind != "binary":
        raise ConfigError(f"--group {group}: groups of another party need labels of 0 and 1")
    if group is not None and not elsewhere:
        groups = _groups(party, rows, ids, group)
    all_rows = ScoredRows(ids, sets, labels, _UNKNOWN, groups)
    margins = asked_margins(base_margin, rows, section)
    usable, without_score, lacking = scored_rows(
        config.state, share.model_id, all_rows, as_json, margins
    )
    report = evaluated(
        share.model_id,
        kind,
        usable,
        _facts(share, without_score, lacking),
        share.history,
        samples,
        (false_positive, false_negative),
        group or "",
        threshold,
        smallest_group,
    )
    if elsewhere:
        found = _groups_elsewhere(config.state, share.model_id, usable, owner, column, threshold)
        report = report.model_copy(update={"tables": (*report.tables, found)})
    _write(output, report, usable, config.data.id)
    reports(config.state).keep(report.model, report.model_dump_json())
    summary = {
        **chosen.described(),
        "rows": len(usable),
        "without_score": without_score,
        "output": str(output),
        "metrics": {name: figure.model_dump() for name, figure in report.metrics.items()},
    }
    print_result(summary, as_json, _in_words)
    print_next_step(as_json, output / "report.html", program="open")


def held_out_report(config: PartyFile, share: ActiveShare, quiet: bool) -> Report:
    """The report of a model on the rows held out by its training; the daemon scores them.

    Raises:
        ConfigError: scikit-learn is not installed.
        DataError: no held-out rows are stored.
        DaemonError: the daemon cannot score them.
    """
    held_out = held_out_rows(config.state).read(share.model_id)
    labels = held_out.label.astype(np.float64)
    rows = ScoredRows(held_out.ids, held_out.sets, labels, _UNKNOWN, None)
    usable, without_score, lacking = scored_rows(config.state, share.model_id, rows, quiet)
    kind = kind_of(share.params.objective)
    facts = _facts(share, without_score, lacking)
    return evaluated(share.model_id, kind, usable, facts, share.history)


def scored_rows(
    state: Path,
    model: str,
    rows: ScoredRows,
    quiet: bool,
    margins: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[ScoredRows, int, Mapping[str, float]]:
    """The ``rows`` with a score by ``model``, with the scores; and the number of the others.

    Last, by party, the share of the rows that it does not know.

    ``margins``: the rows' base margins, as `asked_margins` returns them.
    """
    request = {"do": "predict", "model": model, "ids": list(rows.ids), "strict": False, **margins}
    answer = request_scores(state, request, quiet)
    scores = answer["scores"]
    scored = np.array([score is not None for score in scores], np.bool_)
    found = np.array([score for score in scores if score is not None])
    blank = replace(rows, score=np.full(len(scores), np.nan))
    usable = replace(blank.taken(np.flatnonzero(scored)), score=found)
    return usable, int((~scored).sum()), answer["degraded"]


def _check_folder(folder: Path) -> None:
    """ConfigError if ``folder`` cannot take a report."""
    if folder.is_file():
        raise ConfigError(f"{folder}: is a file; name a folder for the report")
    if not folder.parent.is_dir():
        raise ConfigError(f"{folder}: there is no folder {folder.parent}; make it first")


def _labels(
    path: Path, column: str | None, section: DataSection, classes: tuple[str, ...]
) -> NDArray[np.float64]:
    """Labels in ``column`` of a CSV file, float64 (rows,); DataError names an unlabelled row."""
    number_of = {word: float(number) for number, word in enumerate(classes)}
    with CsvFile(str(path), path, section.separator, section.encoding) as file:
        if column is None or column not in file.columns:
            raise DataError(
                f"{path}: there is no column {column or 'label'!r}, but {list(file.columns[:5])}; "
                "name the label's with --label"
            )
        labels = []
        for batch in file.batches([column]):
            for number, cell in zip(batch.numbers, batch.cells[column], strict=True):
                try:
                    labels.append(number_of[cell.strip()] if classes else float(cell))
                except (ValueError, KeyError):
                    raise DataError(
                        f"{path}, line {number}, column {column!r}: {cell[:40]!r} is not a label"
                    ) from None
    return np.array(labels)


def _groups(party: Path, rows: Path | None, ids: tuple[str, ...], column: str) -> tuple[str, ...]:
    """The group of each of ``ids``, from the file of rows if it has the column."""
    config, _ = PartyFile.read(party)
    section = config.serving or config.data
    if rows is not None:
        with CsvFile(str(rows), rows, section.separator, section.encoding) as file:
            if column in file.columns:
                cells = [cell for batch in file.batches([column]) for cell in batch.cells[column]]
                return tuple(str(cell).strip() or "(none)" for cell in cells)
    by_id = read_text_column(config.party, config.data, column)
    names = comparable(list(ids), config.data)
    return tuple(by_id.get(name, "") or "(none)" for name in names)


def _groups_elsewhere(
    state: Path, model: str, rows: ScoredRows, owner: str, column: str, threshold: float
) -> ReportTable:
    """The groups of ``column``, by encrypted sums that ``owner`` adds up."""
    from fedmq.evaluation.groups import GroupCounts, table_of_sums

    request = {
        "do": "group_sums",
        "model": model,
        "party": owner,
        "column": column,
        "ids": list(rows.ids),
        "ones": (rows.label == 1).tolist(),
        "selected": (rows.score < threshold).tolist(),
        "score": rows.score.tolist(),
    }
    groups = [GroupCounts(**group) for group in request_daemon(state, request)]
    return table_of_sums(groups, column, owner, threshold)


def _facts(share: ActiveShare, without_score: int, lacking: Mapping[str, float]) -> dict[str, str]:
    facts = {
        "objective": share.params.objective,
        "parties": ", ".join(share.parties),
        "trees": str(len(share.used_trees)),
        "XGBoost's model": departures_in_words(share.departures),
    }
    if without_score:
        facts["rows without a score"] = f"{without_score:,}, of ids that a party does not know"
    if lacking:
        shares = (f"{party} {unknown:.1%}" for party, unknown in lacking.items())
        facts["rows unknown at"] = ", ".join(shares)
    return facts


def _write(folder: Path, report: Report, rows: ScoredRows, id_header: str) -> None:
    several = rows.score.ndim > 1
    headers = [f"score_{number}" for number in range(rows.score.shape[1])] if several else ["score"]
    values = rows.score.reshape(len(rows), -1).tolist()
    scores = [
        (id_header, "set", "label", *headers),
        *(
            (name, held, f"{label:.9g}", *(f"{score:.9g}" for score in found))
            for name, held, label, found in zip(
                rows.ids, rows.sets, rows.label.tolist(), values, strict=True
            )
        ),
    ]
    files = {
        "report.html": html_of(report),
        "report.json": report.model_dump_json(indent=1) + "\n",
        "scores.csv": csv_for_people(scores),
    }
    try:
        for name, text in files.items():
            write_atomically(folder / name, text, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


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
