"""The audit says how many thresholds and cells of people answers to `fedmq changes` tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedmq
from fedmq.errors import DataError
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.told_changes import thresholds_from_changes
from tests.leakage.test_sealed_scores import trained
from tests.simulation.test_fedxgboost import synthetic


def found(model: fedmq.SimulatedModel, first: int = 0) -> dict[tuple[str, str, str], Finding]:
    """What is found where the person ``first`` is asked about first."""
    active, _, passive = (np.roll(table, -first, axis=0) for table in synthetic(300))
    splits = {"telco": model.passive_shares["telco"].lookup_table}
    findings = thresholds_from_changes(model.share, active, {"telco": passive}, splits)
    return {(of.attack, of.target, of.where): of for of in findings}


def test_each_lie_tells_three_thresholds_until_all_are_known() -> None:
    model = trained(4)
    table = model.passive_shares["telco"].lookup_table
    different = len(np.unique(np.stack([table.feature, table.threshold]), axis=1).T)
    learned = found(model)
    one = learned["changes by lies", "telco's thresholds", "1 answer about people"]
    assert 3 / len(table) <= one.value < 1
    assert different <= 3 * 20  # so a day is enough
    for of in ("thresholds", "cells of 200 people"):
        day = learned["changes by lies", f"telco's {of}", "20 answers about people"]
        assert day.value == 1 and day.succeeds


def test_changes_as_meant_tell_less_than_lies() -> None:
    learned = found(trained(4))
    for target in ("telco's thresholds", "telco's cells of 200 people"):
        for answers in ("20 answers", "140 answers"):
            meant = learned["changes as meant", target, f"{answers} about people"]
            lies = learned["changes by lies", target, f"{answers} about people"]
            assert meant.chance <= meant.value < lies.value


def test_one_person_without_a_value_hides_the_thresholds_of_that_column_alone() -> None:
    model = trained(4)
    table = model.passive_shares["telco"].lookup_table
    passive = synthetic(300)[2]
    lacking = int(np.flatnonzero(np.isnan(passive).sum(axis=1) == 1)[0])
    row = passive[lacking]
    learned = found(model, first=lacking)
    told = learned["changes by lies", "telco's thresholds", "140 answers about one person"].value
    assert 0 < told < 1
    assert told == pytest.approx((~np.isnan(row[table.feature])).mean())


def test_columns_that_are_not_those_of_the_splits_are_refused() -> None:
    model = trained(1)
    active, _, passive = synthetic(300)
    splits = {"telco": model.passive_shares["telco"].lookup_table}
    with pytest.raises(DataError, match="telco has 2 columns, and its lookup table 3"):
        list(thresholds_from_changes(model.share, active, {"telco": passive[:, :2]}, splits))


def test_the_audit_of_a_recording_has_the_attack(tmp_path: Path) -> None:
    model = trained(1, record=tmp_path)
    active, _, passive = synthetic(300)
    report = fedmq.audit(
        tmp_path / "active.recording",
        passive={"telco": passive},
        share=model.share,
        active=active,
        lookup_tables={"telco": model.passive_shares["telco"].lookup_table},
        solve=False,
    )
    attacks = {finding.attack for finding in report.findings}
    assert {"changes as meant", "changes by lies"} <= attacks
