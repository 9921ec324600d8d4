"""How good a model is on rows whose labels are known: the daemons score them, this party counts."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import ActiveShare, departures_in_words
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.evaluate import ScoredRows, kind_of
from fedmq.evaluation.evaluate import evaluate as evaluated
from fedmq.evaluation.page import html_of
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Report, ReportTable
from fedmq.party.atomic_file import csv_for_people, write_atomically
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.id_column import comparable, joined
from fedmq.party.data.sources.csv_file import CsvFile
from fedmq.party.data.table import read_text_column
from fedmq.party.store.documents import (
    ChosenModel,
    Documents,
    ModelStore,
    chosen_model,
    held_out_rows,
    json_of,
    reports,
)
from fedmq.workbench.people_file import asked_margins, read_ids

__all__ = [
    "Ask",
    "Evaluation",
    "Wanted",
    "check_folder",
    "evaluate_model",
    "held_out_report",
    "kept_reports",
    "scored_rows",
]

Ask = Callable[[Mapping[str, Any]], Any]
"""Sends a request to the party's daemon, and returns its result."""

_UNKNOWN = np.empty(0)
"""A placeholder for scores that are still to be requested."""
_TALL = 600  # pixels of a report in a notebook


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an evaluation looks at, as the options of ``fedmq evaluate``.

    ``rows``: a CSV of ids and labels, in place of the training's held-out rows.
    """

    rows: Path | None = None
    label: str | None = None
    group: str | None = None
    threshold: float = 0.5
    smallest_group: int = 30
    false_positive: float = 1.0
    false_negative: float = 1.0
    samples: int = 200
    base_margin: Sequence[str] = ()


@dataclass(frozen=True)
class Evaluation:
    """A ``report`` on ``rows``; ``without_score`` others have no score. A notebook shows it."""

    report: Report
    rows: ScoredRows
    without_score: int
    id_header: str
    chosen: ChosenModel

    @property
    def metrics(self) -> dict[str, float]:
        """The figures by name, without their intervals."""
        return {name: figure.value for name, figure in self.report.metrics.items()}

    def write(self, folder: Path | str) -> None:
        """Write report.html, report.json and scores.csv; ConfigError if ``folder`` takes none."""
        check_folder(Path(folder))
        _write(Path(folder), self.report, self.rows, self.id_header)

    def _repr_html_(self) -> str:
        page = html.escape(html_of(self.report), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:{_TALL}px;border:0"></iframe>'


def evaluate_model(
    party: Path, config: PartyFile, active: str, model: str | None, wanted: Wanted, ask: Ask
) -> Evaluation:
    """Evaluate ``model``, by default what is in production, for the owner of the file ``party``.

    ``active``: the active party of its federation. The report is kept beside the model.

    Raises:
        ConfigError, DataError: an option or a row is wrong, or the party holds no labels.
        DaemonError: the daemon cannot score the rows.
    """
    if config.party != active:
        raise ConfigError(f"{party}: only {active}, which holds the labels, evaluates")
    chosen = chosen_model(config.state, model)
    share = ModelStore(config.state).active(chosen.model)
    kind = kind_of(share.params)
    section = config.serving or config.data
    rows, group = wanted.rows, wanted.group
    if rows is None:
        held_out = held_out_rows(config.state).read(share.model_id)
        ids, sets, labels = held_out.ids, held_out.sets, held_out.label.astype(np.float64)
    else:
        ids = tuple(read_ids(rows, section.ids, section.separator, section.encoding))
        columns = _label_columns(party, config.data, share, wanted.label)
        each = [_labels(rows, column, section, config.data) for column in columns]
        labels = each[0] if len(each) == 1 else np.stack(each, axis=1)
        sets = (rows.name,) * len(ids)
    groups = None
    owner, _, column = (group or "").partition(".")
    elsewhere = owner in share.parties[1:] and bool(column)
    if elsewhere and (kind != "binary" or labels.ndim > 1):
        raise ConfigError(f"--group {group}: groups of another party need one label of 0 and 1")
    if group is not None and not elsewhere:
        groups = _groups(config, rows, ids, group)
    all_rows = ScoredRows(ids, sets, labels, _UNKNOWN, groups)
    margins = asked_margins(wanted.base_margin, rows, section)
    usable, without_score, lacking, fallbacks = scored_rows(ask, share.model_id, all_rows, margins)
    report = evaluated(
        share.model_id,
        kind,
        usable,
        {
            **_facts(share, without_score, lacking, fallbacks),
            ROWS_FROM: HELD_OUT if rows is None else f"the file {rows.name}",
        },
        share.history,
        wanted.samples,
        (wanted.false_positive, wanted.false_negative),
        group or "",
        wanted.threshold,
        wanted.smallest_group,
        config.data.labels,
        share.params.quantiles,
    )
    if elsewhere:
        found = _groups_elsewhere(ask, share.model_id, usable, owner, column, wanted.threshold)
        report = report.model_copy(update={"tables": (*report.tables, found)})
    reports(config.state).keep(report.model, report.model_dump_json())
    return Evaluation(report, usable, without_score, joined(config.data.ids), chosen)


def held_out_report(config: PartyFile, share: ActiveShare, ask: Ask) -> Report:
    """The report of a model on the rows held out by its training; the daemon scores them.

    Raises:
        ConfigError: scikit-learn is not installed.
        DataError: no held-out rows are stored.
        DaemonError: the daemon cannot score them.
    """
    held_out = held_out_rows(config.state).read(share.model_id)
    labels = held_out.label.astype(np.float64)
    rows = ScoredRows(held_out.ids, held_out.sets, labels, _UNKNOWN, None)
    usable, without_score, lacking, fallbacks = scored_rows(ask, share.model_id, rows)
    kind = kind_of(share.params)
    facts = {**_facts(share, without_score, lacking, fallbacks), ROWS_FROM: HELD_OUT}
    return evaluated(
        share.model_id,
        kind,
        usable,
        facts,
        share.history,
        targets=config.data.labels,
        quantiles=share.params.quantiles,
    )


def kept_reports(state: Path) -> Documents[Report]:
    """The last report of each model's evaluation, which `evaluate_model` has kept."""
    damaged = "is damaged; delete it, and evaluate the model again"
    return Documents(reports(state).path("").parent, json_of(Report), damaged)


def scored_rows(
    ask: Ask,
    model: str,
    rows: ScoredRows,
    margins: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[ScoredRows, int, Mapping[str, float], Mapping[str, int]]:
    """The ``rows`` with a score by ``model``, with the scores; and the number of the others.

    Then, by party, the share of the rows that it does not know or has no part in since it has left;
    last, by fallback model, the number of rows that it scored.

    ``margins``: the rows' base margins, as `asked_margins` returns them.
    """
    request = {"do": "predict", "model": model, "ids": list(rows.ids), "strict": False, **margins}
    answer = ask(request)
    scores = answer["scores"]
    scored = np.array([score is not None for score in scores], np.bool_)
    found = np.array([score for score in scores if score is not None])
    blank = replace(rows, score=np.full(len(scores), np.nan))
    usable = replace(blank.taken(np.flatnonzero(scored)), score=found)
    by = [model for model in answer["fallback"] if model is not None]
    return usable, int((~scored).sum()), answer["degraded"], Counter(by)


def check_folder(folder: Path) -> None:
    """ConfigError if ``folder`` cannot take a report."""
    if folder.is_file():
        raise ConfigError(f"{folder}: is a file; name a folder for the report")
    if not folder.parent.is_dir():
        raise ConfigError(f"{folder}: there is no folder {folder.parent}; make it first")


def _label_columns(
    party: Path, data: DataSection, share: ActiveShare, given: str | None
) -> Sequence[str | None]:
    """The columns of the labels in a file of rows: the one that was ``given``, or the party's."""
    targets = share.params.num_target or 1
    if targets == 1:
        return [given or (data.labels[0] if len(data.labels) == 1 else None)]
    if given is not None or len(data.labels) != targets:
        raise ConfigError(
            f"{party}: model {share.model_id} predicts {targets} labels, so that --rows has the "
            f"columns of [data] label, all {targets} of them; leave out --label"
        )
    return data.labels


def _labels(
    path: Path, column: str | None, section: DataSection, data: DataSection
) -> NDArray[np.float64]:
    """Labels in ``column`` of a CSV file, float64 (rows,); DataError names an unlabelled row."""
    number_of = {word: float(number) for number, word in enumerate(data.label_classes)}
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
                    labels.append(number_of[cell.strip()] if number_of else float(cell))
                except (ValueError, KeyError):
                    raise DataError(
                        f"{path}, line {number}, column {column!r}: {cell[:40]!r} is not a label"
                    ) from None
    return np.array(labels)


def _groups(
    config: PartyFile, rows: Path | None, ids: tuple[str, ...], column: str
) -> tuple[str, ...]:
    """The group of each of ``ids``, from the file of rows if it has the column."""
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
    ask: Ask, model: str, rows: ScoredRows, owner: str, column: str, threshold: float
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
    groups = [GroupCounts(**group) for group in ask(request)]
    return table_of_sums(groups, column, owner, threshold)


def _facts(
    share: ActiveShare,
    without_score: int,
    lacking: Mapping[str, float],
    fallbacks: Mapping[str, int],
) -> dict[str, str]:
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
    if fallbacks:
        facts["rows scored by fallback models"] = ", ".join(
            f"{rows:,} by {model}" for model, rows in sorted(fallbacks.items())
        )
    return facts


def _write(folder: Path, report: Report, rows: ScoredRows, id_header: str) -> None:
    headers = [*_headers("label", rows.label), *_headers("score", rows.score)]
    values = np.column_stack([rows.label, rows.score]).tolist()
    scores = [
        (id_header, "set", *headers),
        *(
            (name, held, *(f"{value:.9g}" for value in found))
            for name, held, found in zip(rows.ids, rows.sets, values, strict=True)
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


def _headers(name: str, columns: NDArray[np.float64]) -> list[str]:
    """``name``, or a number of it for each of several columns."""
    if columns.ndim == 1:
        return [name]
    return [f"{name}_{number}" for number in range(columns.shape[1])]
