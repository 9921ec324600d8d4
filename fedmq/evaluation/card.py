"""The card of a model: from the active party's records of the model to Markdown."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from fedmq.boosting.model.share import ActiveShare, refreshed_in_words
from fedmq.boosting.model.shown_model import owned_importance
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Figure, Report
from fedmq.party.card.model_card import (
    CardDrift,
    CardEngine,
    CardEvaluation,
    CardFigure,
    CardSelection,
    CardTraining,
    ModelCard,
    Worth,
    finite,
)
from fedmq.party.card.signed_card import CardFile, Signature
from fedmq.party.configuration.online import DriftSection
from fedmq.party.store.documents import TrainingRecord
from fedmq.privacy.registry import engine_named

__all__ = ["card_of", "markdown_of", "selection_in_words"]

_FEWEST = 10
"""People of whom a card shows a figure."""

_NAMES_COLUMNS = {"monotone_constraints", "interaction_constraints"}
"""Parameters that may name columns: a card is for every party to read."""


def card_of(
    share: ActiveShare,
    federation: str,
    record: TrainingRecord | None,
    report: Report | None,
    worth: Mapping[str, Worth],
    drift: DriftSection,
) -> ModelCard:
    """The card of the model of ``share``: with no column's name, value or threshold.

    ``record`` describes the training, ``report`` the quality on held-out rows; ``worth``: the
    metric without each party; ``drift``: the monitoring of scores. All parties know who was held
    out, so figures of fewer than ten people stay away.
    """
    params = share.params.model_dump(mode="json", exclude=_NAMES_COLUMNS, exclude_none=True)
    gains: dict[str, float] = defaultdict(float, dict.fromkeys(share.parties, 0.0))
    for (party, _), gain in owned_importance(share, "total_gain").items():
        gains[party] += gain
    few = record is not None and 0 < record.held_out < _FEWEST
    evaluation = None if report is None else _evaluation(report)
    return ModelCard(
        model=share.model_id,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        federation=federation,
        parties=share.parties,
        objective=share.params.objective,
        params=params,
        trees=len(share.used_trees),
        refreshes=share.refreshes,
        departures=share.departures,
        withheld=dict(share.withheld),
        training=None if record is None else _training(record, share.parties[0]),
        metrics={} if few else {name: finite(of) for name, of in share.metrics.items()},
        evaluation=evaluation,
        total_gain=dict(gains),
        splits={
            party: int(sum(np.sum(tree.owner == owner) for tree in share.used_trees))
            for owner, party in enumerate(share.parties)
        },
        worth=dict(worth),
        drift=None
        if not drift.rows
        else CardDrift(threshold=drift.threshold, rows=drift.rows, least_rows=drift.least_rows),
    )


def _training(record: TrainingRecord, active: str) -> CardTraining:
    job, selection = record.job, record.selection
    engine = engine_named(job.engine, job.engine_options, record.session)
    return CardTraining(
        session=record.session,
        rows=record.rows,
        held_out=record.held_out,
        alignment=job.alignment or "",
        began=record.began,
        ended=record.ended,
        engine=CardEngine(
            name=engine.name,
            exact=engine.traits.exact,
            active_learns=engine.disclosed.active,
            passive_learns=engine.disclosed.passive,
            known_leak=engine.leak,
        ),
        selection=None
        if selection is None
        else CardSelection(
            screen=selection.screen,
            made=selection.made,
            alignment=selection.alignment,
            rows=selection.rows,
            looked_at=selection.looked_at,
            rule=selection.rule,
            columns=selection.counts(active),
        ),
    )


def _evaluation(report: Report) -> CardEvaluation | None:
    calibration = next((found for found in report.tables if found.name == "Calibration"), None)
    rows = () if calibration is None else calibration.rows
    evaluated = report.facts.get("rows evaluated", "")
    people = sum(int(held.partition(" of ")[0].replace(",", "")) for held in _parts(evaluated))
    if 0 < people < _FEWEST:
        return None
    return CardEvaluation(
        rows=evaluated,
        made=report.made,
        metrics={name: _figure(figure) for name, figure in report.metrics.items()},
        calibration=_joined(
            [(float(mean), float(rate), float(count)) for mean, rate, count in rows]  # type: ignore[arg-type]  # its cells are numbers
        ),
        held_out=report.facts.get(ROWS_FROM, HELD_OUT) == HELD_OUT,
    )


def _parts(evaluated: str) -> list[str]:
    return [held for held in evaluated.split(", ") if held]


def _joined(tenths: Iterable[tuple[float, float, float]]) -> tuple[tuple[float, float, float], ...]:
    """Calibration by mean score, share of ones and rows; neighbours join until each has enough."""
    joined: list[tuple[float, float, float]] = []
    for mean, rate, rows in tenths:
        if joined and joined[-1][2] < _FEWEST:
            joined[-1] = _together(joined[-1], (mean, rate, rows))
        else:
            joined.append((mean, rate, rows))
    if len(joined) > 1 and joined[-1][2] < _FEWEST:
        joined[-2:] = [_together(*joined[-2:])]
    return tuple(joined)


def _together(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    rows = one[2] + other[2]
    mean, rate = ((one[part] * one[2] + other[part] * other[2]) / rows for part in (0, 1))
    return mean, rate, rows


def _figure(figure: Figure) -> CardFigure:
    low, high = (None if bound is None else finite(bound) for bound in (figure.low, figure.high))
    return CardFigure(value=finite(figure.value), low=low, high=high)


def markdown_of(file: CardFile, signatures: Sequence[Signature]) -> str:
    """The page of a card; the federation's keys have verified ``signatures``."""
    card = file.card
    parts = [
        f"# {card.model}",
        f"A model of federation {card.federation}, described on {card.made}.",
        _table(("", ""), _facts(card)),
        "## How good it is",
        *_quality(card),
        "## What each party's columns brought",
        _table(
            ("party", "splits", "total gain"),
            (
                (party, f"{card.splits.get(party, 0):,}", _number(gain))
                for party, gain in card.total_gain.items()
            ),
        ),
        *_worth(card),
        "## What was disclosed",
        *_disclosed(card),
        "## Parameters",
        _table(("parameter", "value"), ((name, _value(value)) for name, value in _params(card))),
        "## Who has signed",
        _table(("party", "share (SHA-256)", "agreed", "signature"), _signed(file, signatures)),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(card: ModelCard) -> Iterator[Sequence[str]]:
    yield "parties", f"{card.parties[0]} (holds the label), {', '.join(card.parties[1:])}"
    yield "objective", card.objective
    yield "trees", f"{card.trees:,}"
    if card.refreshes:
        yield "refreshes", refreshed_in_words(card.refreshes)
    yield "as XGBoost", "; ".join(card.departures) or "yes, node by node"
    if card.drift is not None:
        yield (
            "drift",
            f"an alarm above a population stability index of {card.drift.threshold:g}, over the "
            f"{card.drift.rows:,} people scored last, from {card.drift.least_rows:,} on",
        )
    training = card.training
    if training is None:
        yield "training", "not recorded"
        return
    yield "trained", f"{training.began} to {training.ended}, session {training.session}"
    yield "rows learned from", f"{training.rows:,}"
    yield "rows held out", f"{training.held_out:,}"
    yield "people in common", f"{training.rows + training.held_out:,}"
    yield "alignment", training.alignment or "none: all parties hold the same ids"
    if training.selection is not None:
        yield from selection_in_words(training.selection)


def selection_in_words(selection: CardSelection) -> Iterator[tuple[str, str]]:
    """How many columns of each party a training was offered, and how they were selected."""
    rule = ", ".join(f"{key} = {value:g}" for key, value in selection.rule.items())
    among = selection.alignment or "no alignment"
    yield (
        "columns",
        ", ".join(
            f"{few:,} of {of:,} of {party}" for party, (few, of) in selection.columns.items()
        ),
    )
    yield (
        "selected by",
        f"{rule}; screen {selection.screen} of {selection.made} looked at "
        f"{selection.looked_at:,} of {selection.rows:,} people of {among}, held-out ones among "
        "them where they are the same",
    )


def _quality(card: ModelCard) -> Iterator[str]:
    evaluation = card.evaluation
    if evaluation is not None:
        known = (
            "which it did not learn from"
            if evaluation.held_out
            else "of a file, from some of which it may have learned"
        )
        yield f"On {evaluation.rows}, {known} ({evaluation.made}):"
        yield _table(
            ("metric", "value", "95 % interval"),
            (
                (
                    name,
                    _number(figure.value),
                    f"{_number(figure.low)} to {_number(figure.high)}"
                    if figure.low is not None
                    else "",
                )
                for name, figure in evaluation.metrics.items()
            ),
        )
        if evaluation.calibration:
            yield _table(
                ("mean score", "share of ones", "rows"),
                (
                    (_number(mean), _number(rate), f"{rows:,.0f}")
                    for mean, rate, rows in evaluation.calibration
                ),
            )
    if card.metrics:
        yield "After the last tree of the training:"
        yield _table(
            ("metric", "value"), ((name, _number(value)) for name, value in card.metrics.items())
        )
    if evaluation is None and not card.metrics:
        yield "No rows were held out: it is not known."


def _worth(card: ModelCard) -> Iterator[str]:
    if card.worth:
        yield "Trained again without one party, on the same rows:"
        yield _table(
            ("without", "metric", "with", "without", "difference"),
            (
                (
                    party,
                    worth.metric,
                    _number(worth.value),
                    _number(worth.without),
                    _number(worth.difference),
                )
                for party, worth in card.worth.items()
            ),
        )


def _disclosed(card: ModelCard) -> Iterator[str]:
    if card.training is not None:
        engine = card.training.engine
        yield _table(
            ("engine", engine.name),
            (
                ("exact", "yes" if engine.exact else "no"),
                (f"{card.parties[0]} learned beyond the model", engine.active_learns),
                ("the others learned beyond the model", engine.passive_learns),
                *([("known leak", engine.known_leak)] if engine.known_leak else []),
            ),
        )
    held = [words for party, held in card.withheld.items() for words in held.in_words(party)]
    yield "Withheld: " + ("; ".join(held) if held else "nothing") + "."


def _params(card: ModelCard) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in card.params.items() if value != [])


def _signed(file: CardFile, signatures: Sequence[Signature]) -> Iterator[Sequence[str]]:
    for signature in signatures:
        endorsement = file.of(signature.party)
        if endorsement is None:
            yield signature.party, "", "", "not signed"
            continue
        agreed = "asked for the training"
        if signature.party != file.card.parties[0]:
            agreed = "not recorded"
        if endorsement.agreed is not None:
            agreed = f"{endorsement.agreed.at}, entry {endorsement.agreed.number} of its audit log"
        key = f"by key {signature.fingerprint}" * bool(signature.fingerprint)
        yield signature.party, f"`{endorsement.share}`", agreed, f"{signature.state} {key}".strip()


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
