"""Splits of one column are put together, and people in its order, as far as it can be done."""

from __future__ import annotations

import numpy as np
import pytest

import fedmq
from fedmq.errors import ConfigError, DataError
from fedmq.leakage.attacks.row_order import guessed_columns, order_of_people, pairs_judged
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
