"""Trainings in bins that an owner has chosen: the auditor replays them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import TrainingJob
from tests.accountability.audited import AuditedDaemons


async def test_answers_in_own_bins_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch, "")
    for party in ("telco", "retail"):
        path = tmp_path / party / "party.toml"
        path.write_text(path.read_text() + "[data.bins]\nx0 = [-0.5, 0.125, 0.5]\nx1 = 3\n")
    params = TrainParams(num_boost_round=3, max_bin=8, min_child_weight=0.0)
    job = TrainingJob(model="m", engine="plain", params=params)
    await daemons.start()
    await daemons.ask("bank", "train", job=job.model_dump(mode="json"))
    await daemons.stop()
    for party in ("telco", "retail"):
        assert daemons.verified(party).answers > 6
        table = PassiveShare.loads(
            (tmp_path / party / "state" / "models" / "m.json").read_bytes(), party
        ).lookup_table
        of_x0 = {at for at, of in zip(table.threshold, table.feature, strict=True) if of == 0}
        assert of_x0 <= {-0.5, 0.125, 0.5, np.inf}
