"""Splits of one column are put together, and people in its order, as far as it can be done."""

from __future__ import annotations

import numpy as np
import pytest

import fedmq
from fedmq.errors import ConfigError, DataError
from fedmq.leakage.attacks.row_order import (
    guessed_columns,
    order_of_people,
    order_of_ranks,
    pairs_judged,
)
from fedmq.leakage.audit import order_from_columns

RANDOM = np.random.default_rng(4)
VALUES = RANDOM.normal(size=(2000, 3)).astype(np.float32)
FEATURE = np.array([0, 1, 0, 2, 1, 0, 2, 2])
THRESHOLD = np.array([-1.0, -0.5, 0.0, 0.2, 0.5, 1.0, -0.7, 1.1])
LEFT = VALUES[:, FEATURE] <= THRESHOLD


def test_thresholds_of_a_column_are_nested_and_those_of_others_are_not() -> None:
    guessed = guessed_columns(LEFT)
    assert pairs_judged(guessed, FEATURE) == (1.0, pytest.approx(1 - 7 / 28))
    assert len(np.unique(guessed)) == 3


def test_who_guesses_all_apart_is_as_right_as_chance() -> None:
    right, chance = pairs_judged(np.arange(8), FEATURE)
    assert right == chance


def test_an_order_is_told_as_far_as_thresholds_part_it() -> None:
    told = order_of_people(LEFT, FEATURE, VALUES[:, 0])
    shares = np.diff([0.0, *np.sort([(VALUES[:, 0] <= t).mean() for t in (-1, 0, 1)]), 1.0])
    assert told == pytest.approx(1 - (shares**2).sum(), abs=0.03)
    apart = order_of_people(LEFT, np.arange(8), VALUES[:, 0])
    assert apart == pytest.approx(0.5, abs=0.03)  # of one threshold in the middle
    assert order_of_people(LEFT, FEATURE, np.ones(2000, np.float32)) == 0.0
    unlike = RANDOM.normal(size=2000).astype(np.float32)
    assert order_of_people(LEFT, FEATURE, unlike) < 0.1


def test_ranks_tell_an_order_either_way_round_as_far_as_they_are_known() -> None:
    column = VALUES[:, 0]
    backwards = -column.astype(np.float64)
    assert order_of_ranks([backwards], column) == 1.0
    half = np.where(np.arange(2000) < 1000, backwards, np.nan)
    assert order_of_ranks([half], column) == pytest.approx(0.25, abs=0.05)
    assert order_of_ranks([RANDOM.normal(size=2000)], column) < 0.1
    assert order_of_ranks([backwards], np.ones(2000, np.float32)) == 0.0
    assert order_of_ranks([], column) == 0.0


def test_a_caller_orders_people_by_the_reasons_of_a_column() -> None:
    own = RANDOM.normal(size=(2000, 1)).astype(np.float32)
    label = (VALUES.sum(axis=1) + own[:, 0] > 0).astype(int)
    model = fedmq.simulate(
        active=own,
        passive={"telco": VALUES},
        label=label,
        params=fedmq.TrainParams(num_boost_round=8, max_depth=3, max_bin=8),
        engine="plain",
    )
    reasons = model.predict(active=own, passive={"telco": VALUES}, pred_contribs=True)
    for column in range(3):
        said = reasons[:, 1 + column].astype(np.float64)
        assert order_of_ranks([said], VALUES[:, column]) > 0.7
    as_a_whole = reasons[:, 1:4].sum(axis=1).astype(np.float64)
    by_party = [order_of_ranks([as_a_whole], VALUES[:, column]) for column in range(3)]
    assert max(by_party) < 0.6  # one value for the party mixes its columns


@pytest.mark.long
def test_the_audit_tells_what_showing_columns_adds(tmp_path) -> None:
    table = VALUES.copy()
    table[RANDOM.random(table.shape) < 0.2] = np.nan
    label = (np.nan_to_num(table).sum(axis=1) > 0).astype(int)
    model = fedmq.simulate(
        active=RANDOM.normal(size=(2000, 1)),
        passive={"telco": table},
        label=label,
        params=fedmq.TrainParams(num_boost_round=6, max_depth=3, max_bin=8),
        engine="plain",
        record=tmp_path,
    )
    tables = {"telco": model.passive_shares["telco"].lookup_table}
    heard = tmp_path / "active.recording"
    report = fedmq.audit(heard, passive={"telco": table}, lookup_tables=tables)
    *_, pairs, guessed, shown = report.findings
    alone = [one for one in report.findings if one.attack == "directions alone"]
    assert [one.target for one in alone] == [
        f"telco's order of rows by column {column}" for column in range(3)
    ]
    assert all(0.2 < one.value < 1 for one in alone)
    assert (pairs.attack, guessed.attack) == ("columns guessed", "columns guessed")
    assert shown.attack == "columns shown"
    assert "telco's order of rows" in shown.target
    assert shown.value >= guessed.value > 0.7  # columns that have nothing to do with each other
    assert pairs.value > pairs.chance
    without = fedmq.audit(heard, passive={"telco": table})
    assert without.findings == report.findings[:-3]
    with pytest.raises(ConfigError, match="lookup_tables: the features of shop are missing"):
        fedmq.audit(heard, passive={"telco": table}, lookup_tables={"shop": tables["telco"]})
    with pytest.raises(DataError, match="telco has 2 columns, and its lookup table 3"):
        list(order_from_columns("telco", table[:, :2], tables["telco"]))
