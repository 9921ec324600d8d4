"""The audit says how many leaves sealed scores tell: all of few trees, next to none of many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedmq
from fedmq.errors import ConfigError
from fedmq.leakage import sealed_scores
from fedmq.leakage.sealed_scores import leaves_from_scores
from tests.simulation.test_fedxgboost import synthetic


def trained(trees: int, **more: Any) -> fedmq.SimulatedModel:
    active, label, passive = synthetic(300)
    return fedmq.simulate(
        active=active,
        label=label,
        passive={"telco": passive},
        params=fedmq.TrainParams(num_boost_round=trees, max_depth=4, max_bin=16),
        engine="plain",
        **more,
    )


def test_scores_of_few_trees_tell_leaves_and_scores_of_many_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealed_scores, "_PEOPLE", 60)
    model = trained(32)
    active, _, passive = synthetic(300)
    splits = {"telco": model.passive_shares["telco"].lookup_table}
    findings = list(leaves_from_scores(model.share, active, {"telco": passive}, splits))
    told = {
        int(finding.where.split()[-2]): finding
        for finding in findings
        if finding.attack == "leaves from scores"
    }
    assert list(told) == [1, 2, 4, 8, 16, 32]
    reasons = [finding for finding in findings if finding.attack == "leaves from reasons"]
    assert all(0 < of.chance < 1 for of in reasons) and reasons[0].value == 1.0
    assert reasons[-1].value < reasons[-1].chance + 0.15
    for few in (1, 2, 4):
        assert told[few].value > 0.99
    assert told[32].value < told[32].chance + 0.1
    one, ten = (finding for finding in findings if finding.attack == "leaves by lies")
    assert one.where.startswith("1 sealed score of a person, ")
    assert ten.value == pytest.approx(min(1.0, 10 * one.value))


def test_the_audit_of_a_recording_has_the_attack_and_names_what_it_needs(tmp_path: Path) -> None:
    model = trained(1, record=tmp_path)
    active, _, passive = synthetic(300)
    given: dict[str, Any] = {"passive": {"telco": passive}, "share": model.share, "solve": False}
    recording = tmp_path / "active.recording"
    with pytest.raises(ConfigError, match="give the share and the active party's features"):
        fedmq.audit(recording, **given)
    with pytest.raises(ConfigError, match="the lookup table of telco are missing"):
        fedmq.audit(recording, active=active, **given)
    splits = {"telco": model.passive_shares["telco"].lookup_table}
    report = fedmq.audit(recording, active=active, lookup_tables=splits, **given)
    (finding,) = (of for of in report.findings if of.attack == "leaves from scores")
    assert finding.value == 1.0 and finding.where == "scores of 200 people by 1 tree"
