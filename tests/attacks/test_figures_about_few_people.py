"""Reports and cards leave the active party: what do they say of single people?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.evaluation.card import card_of
from fedmq.evaluation.evaluate import ScoredRows, evaluate
from fedmq.evaluation.groups import group_table
from fedmq.party.card.model_card import ModelCard
from fedmq.party.configuration.online import DriftSection

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ({"a": 40, "b": 50, "c": 1}, {"b": 50, "other": 41}),
        ({"a": 40, "b": 50, "c": 29, "d": 3}, {"a": 40, "b": 50, "other": 32}),
        ({"a": 40, "b": 50}, {"a": 40, "b": 50}),
        ({"a": 40, "b": 50, "other": 2}, {"b": 50, "other": 42}),
        ({"a": 40, "b": 1}, {"other": 41}),
        ({"a": 4, "b": 1}, {"other": 5}),
    ],
)
def test_a_report_shows_no_group_of_few_not_even_as_the_others(
    sizes: dict[str, int], shown: dict[str, int]
) -> None:
    groups = [name for name, size in sizes.items() for _ in range(size)]
    label, score = RANDOM.integers(0, 2, len(groups)).astype(float), RANDOM.random(len(groups))
    table = group_table(label, score, groups, "town", 0.5, 30)
    assert {row[0]: row[1] for row in table.rows} == shown


def card(rows: int) -> ModelCard:
    """The card of a model that was evaluated on so many people."""
    table = RANDOM.normal(size=(80, 4)).astype(np.float32)
    made = fedmq.simulate(
        active=table[:, :2],
        label=(table.sum(axis=1) > 0).astype(int),
        passive={"telco": table[:, 2:]},
        params=fedmq.TrainParams(num_boost_round=1, max_depth=1, max_bin=4),
        engine="plain",
        workers=1,
    )
    label = (np.arange(rows) % 2).astype(float)
    ids, sets = tuple(map(str, range(rows))), ("eval",) * rows
    held = ScoredRows(ids=ids, sets=sets, label=label, score=RANDOM.random(rows))
    report = evaluate("m", "binary", held, {}, samples=2)
    share: Any = made.share
    return card_of(share, "demo", None, report, {}, DriftSection())


def test_a_card_has_no_figure_of_fewer_than_ten_people() -> None:
    assert card(9).evaluation is None
    assert card(10).evaluation is not None


@pytest.mark.parametrize("rows", [10, 19, 21, 55, 1000])
def test_no_part_of_a_cards_calibration_is_about_fewer_than_ten(rows: int) -> None:
    evaluation = card(rows).evaluation
    assert evaluation is not None
    counts = [count for _, _, count in evaluation.calibration]
    assert sum(counts) == rows
    assert min(counts) >= 10
    ones = sum(rate * count for _, rate, count in evaluation.calibration)
    assert ones == pytest.approx(rows // 2)
