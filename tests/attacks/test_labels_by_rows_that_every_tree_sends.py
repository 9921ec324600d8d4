"""A passive party that only looks counts how often each row is sent where `goss` draws rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedmq
from fedmq.errors import ConfigError
from fedmq.leakage.view import SessionView
from fedmq.party.sessions.observe import Recording

ROWS = 600
RANDOM = np.random.default_rng(2)
TABLE = RANDOM.normal(size=(ROWS, 4)).astype(np.float32)
SCORE = TABLE.sum(axis=1) + 2 * RANDOM.normal(size=ROWS)
RARE = np.quantile(SCORE, 0.8) < SCORE


def trained(folder: Path, **params: object) -> None:
    fedmq.simulate(
        active=TABLE[:, :2],
        label=RARE.astype(int),
        passive={"telco": TABLE[:, 2:]},
        params=fedmq.TrainParams.model_validate(
            {"num_boost_round": 8, "max_depth": 2, "max_bin": 8, "goss": True, **params}
        ),
        engine="plain",
        workers=1,
        record=folder,
    )


def test_whoever_is_sent_in_every_tree_has_the_rarer_label(tmp_path: Path) -> None:
    trained(tmp_path)
    view = SessionView(Recording.read(tmp_path / "telco.recording"))
    sent = np.zeros(ROWS)
    for tree in view.trees.values():
        for rows in tree.carried:
            sent[rows] += 1
    always = sent == len(view.trees)
    assert always.sum() > 0.3 * RARE.sum()
    assert RARE[always].mean() > 0.98


def test_dart_which_begins_again_is_refused_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="goss with dart"):
        trained(tmp_path, booster="dart", rate_drop=1.0)
