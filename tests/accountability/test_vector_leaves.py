"""Transcripts of trees with vector leaves are proved like others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import TrainingJob
from tests.accountability.audited import OPTIONS, AuditedDaemons


@pytest.mark.parametrize("engine", ["plain", "ou"])
async def test_every_answer_about_all_classes_is_proved(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    params = TrainParams(
        objective="multi:softprob",
        num_class=4,
        multi_strategy="multi_output_tree",
        num_boost_round=2,
        max_depth=2,
        max_bin=8,
    )
    job = TrainingJob(model="m", engine=engine, engine_options=OPTIONS[engine], params=params)
    await daemons.start()
    await daemons.ask("bank", "train", job=job.model_dump(mode="json"))
    await daemons.stop()
    verdict = daemons.verified()
    assert (verdict.trees, verdict.signed) == (2, 2)
    assert verdict.answers > 4
