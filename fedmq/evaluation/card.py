"""From what a label holder keeps of a model to its card."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.shown_model import owned_importance
from fedmq.evaluation.report import Figure, Report
from fedmq.party.card.model_card import (
    CardDrift,
    CardEngine,
    CardEvaluation,
    CardFigure,
    CardTraining,
    ModelCard,
    Worth,
)
from fedmq.party.configuration.online import DriftSection
from fedmq.party.store.documents import TrainingRecord
from fedmq.privacy.registry import engine_named

__all__ = ["card_of", "worth_of"]

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

    ``record`` says how it was trained, ``report`` how good it is on rows it did not learn from;
    ``worth``: what it is without each party; ``drift``: how scores will be watched.
    """
    params = share.params.model_dump(mode="json", exclude=_NAMES_COLUMNS, exclude_none=True)
    gains: dict[str, float] = defaultdict(float, dict.fromkeys(share.parties, 0.0))
    for (party, _), gain in owned_importance(share, "total_gain").items():
        gains[party] += gain
    return ModelCard(
        model=share.model_id,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        federation=federation,
        parties=share.parties,
        objective=share.params.objective,
        params=params,
        trees=len(share.used_trees),
        departures=share.departures,
        withheld=dict(share.withheld),
        training=None if record is None else _training(record),
        metrics={name: _finite(value) for name, value in share.metrics.items()},
        evaluation=None if report is None else _evaluation(report),
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


def worth_of(share: ActiveShare, without: ActiveShare) -> Worth:
    """What the last metric of a model is, and what it is of a model ``without`` a party.

    Raises ValueError where a training evaluated nothing.
    """
    *_, metric = share.metrics or [""]
    if metric not in without.metrics:
        raise ValueError("there is no metric to compare by")
    value, other = _finite(share.metrics[metric]), _finite(without.metrics[metric])
    difference = None if value is None or other is None else value - other
    return Worth(
        model=without.model_id, metric=metric, value=value, without=other, difference=difference
    )


def _training(record: TrainingRecord) -> CardTraining:
    job = record.job
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
            exact=engine.exact,
            active_learns=engine.disclosed.active,
            passive_learns=engine.disclosed.passive,
            known_leak=engine.known_leak,
        ),
    )


def _evaluation(report: Report) -> CardEvaluation:
    calibration = next((found for found in report.tables if found.name == "Calibration"), None)
    rows = () if calibration is None else calibration.rows
    return CardEvaluation(
        rows=report.facts.get("rows evaluated", ""),
        made=report.made,
        metrics={name: _figure(figure) for name, figure in report.metrics.items()},
        calibration=tuple((float(mean), float(rate), float(count)) for mean, rate, count in rows),  # type: ignore[arg-type]  # its cells are numbers
    )


def _figure(figure: Figure) -> CardFigure:
    low, high = (None if bound is None else _finite(bound) for bound in (figure.low, figure.high))
    return CardFigure(value=_finite(figure.value), low=low, high=high)


def _finite(value: float) -> float | None:
    """``value``, or None where it is no number, such as the AUC of a single label."""
    return float(value) if math.isfinite(value) else None
