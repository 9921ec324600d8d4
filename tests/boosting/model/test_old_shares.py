"""Shares that earlier versions wrote are read for ever, and score as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from tests.boosting.pooled import joint_margins

SHARES = Path(__file__).parents[1] / "shares"
VERSIONS = sorted({int(path.name.split("-")[1]) for path in SHARES.glob("version-*.json")})


@pytest.mark.parametrize("version", VERSIONS)
def test_shares_of_every_version_score_as_they_did(version: int) -> None:
    def path(what: str) -> Path:
        return SHARES / f"version-{version}-{what}.json"

    active = ActiveShare.loads(path("active").read_bytes(), "active")
    telco = PassiveShare.loads(path("telco").read_bytes(), "telco")
    then = json.loads(path("margins").read_text())
    rows = np.array(then["rows"], dtype=np.float64).astype(np.float32)

    margins = joint_margins(
        active, [active.lookup_table, telco.lookup_table], [rows[:, :2], rows[:, 2:]]
    )

    assert margins.tolist() == then["margins"]


def test_the_newest_version_is_among_them() -> None:
    assert VERSIONS[-1] == ActiveShare.newest_version == PassiveShare.newest_version
