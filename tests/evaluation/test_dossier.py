"""The sections of a dossier, from what is known of a model: true of it, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

from fedmq.evaluation.dossier import Section, Sources, dossier_of
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Figure, Report
from fedmq.party.card.model_card import ModelCard
from fedmq.party.card.signed_card import CardFile

CARD = ModelCard(
    model="credit",
    made="2026-11-01T00:00:00+00:00",
    federation="demo",
    parties=("bank", "telco"),
    objective="binary:logistic",
    params={"eta": 0.3},
    trees=3,
    departures=(),
    withheld={},
    total_gain={"bank": 1.0, "telco": 2.0},
    splits={"bank": 1, "telco": 2},
)
KNOWN = Sources(
    party="bank",
    purpose="",
    label=("label",),
    file=CardFile(card=CARD),
    signatures=(),
    report=None,
    columns=None,
    importance=(("bank", "x0", 1.0), ("telco", "", 2.0)),
    packages=(("fedmq", "0"),),
    made="2026-11-02T00:00:00+00:00",
)


def section(title: str, sources: Sources = KNOWN) -> Section:
    return next(of for of in dossier_of(sources).sections if of.title == title)


def report(**facts: str) -> Report:
    evaluated = {"rows evaluated": "40 of eval", **facts}
    made = "2026-11-02T00:00:00+00:00"
    return Report(model="credit", made=made, facts=evaluated, metrics={"auc": Figure(value=0.75)})


def test_figures_stand_below_the_rows_that_they_are_of() -> None:
    held_out = replace(KNOWN, report=report(**{ROWS_FROM: HELD_OUT}))
    other = replace(KNOWN, report=report(**{ROWS_FROM: "the file later.csv"}))
    older = replace(KNOWN, report=report())
    title = "How good it is"
    assert section(title, held_out).tables[0].name == "On held-out rows"
    assert section(title, other).tables[0].name == "On rows of the file later.csv"
    assert section(title, older).tables[0].name == "On 40 of eval"
    assert not section(title, held_out).missing
    assert "on rows that the training held out" in section(title, other).missing[0]
