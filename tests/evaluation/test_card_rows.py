"""A card says of a file of rows that the model may have learned from some of them."""

from __future__ import annotations

import pytest

from fedmq.evaluation.card import _evaluation, _quality
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Figure, Report
from fedmq.party.card.model_card import ModelCard, canonical


def _card(**facts: str) -> ModelCard:
    report = Report(
        model="m",
        made="2026-11-27",
        facts={"rows evaluated": "40 of eval", **facts},
        metrics={"auc": Figure(value=0.9)},
    )
    return ModelCard(
        model="m",
        made="2026-11-27",
        federation="demo",
        parties=("bank",),
        objective="binary:logistic",
        params={},
        trees=1,
        departures=(),
        withheld={},
        total_gain={},
        splits={},
        evaluation=_evaluation(report),
    )


@pytest.mark.parametrize("facts", [{}, {ROWS_FROM: HELD_OUT}], ids=["earlier version", "held out"])
def test_held_out_rows_were_not_learned_from_and_the_card_is_as_before(
    facts: dict[str, str],
) -> None:
    card = _card(**facts)
    assert "40 of eval, which it did not learn from" in next(_quality(card))
    assert "held_out" not in canonical(card)  # signatures of earlier versions stay good


def test_rows_of_a_file_may_have_been_learned_from() -> None:
    card = _card(**{ROWS_FROM: "the file people.csv"})
    first = next(_quality(card))
    assert "of a file, from some of which it may have learned" in first
    assert "did not learn from" not in first
