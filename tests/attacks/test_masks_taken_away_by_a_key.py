"""With hidden sums under `ou`, an active party sends a ciphertext of 0 where one of 1 is due.

Masks are powers of it, so that sums come back without a mask. Nobody can tell the two apart.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Given
from fedmq.privacy.homomorphic import active
from fedmq.privacy.homomorphic.engine import AdditiveEngine
from tests.privacy.homomorphic.test_hidden_sums import OU, PAILLIER, SharingPair, added
from tests.privacy.test_engine_contract import expected, gradients, table


def read(engine: AdditiveEngine) -> float:
    """The share of sums that the active party's own shares are."""
    bins, held = table(120, 5, seed=1), gradients(120, 2)
    pair, candidates = SharingPair(engine, bins), CandidateTable.of(bins.cuts)
    pair.start_tree(held)
    rows, order = np.arange(120, dtype=np.int32), np.arange(len(candidates))
    pair.ask_level({1: rows}, candidates, {1: order})
    shares = pair.active.shares("telco", 1)
    own = [added(share, np.zeros_like(share), pair.field) for share in shares]
    return float((np.array(own) == expected(bins, held, rows, candidates)).all(axis=1).mean())


@pytest.mark.parametrize("engine", [OU, PAILLIER], ids=lambda engine: engine.name)
def test_masks_hide_all_sums_from_an_honest_key(engine: AdditiveEngine) -> None:
    assert read(engine) == 0


def test_masks_of_a_lying_key_hide_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What remains: `ou` is for parties that keep the protocol."""

    def nothing(key: Any) -> Given:
        return Given(key.encrypt([0])[0])

    monkeypatch.setattr(active, "_encrypt_one", SimpleNamespace(bind=nothing))
    assert read(OU) == 1
    assert read(PAILLIER) == 0  # its masks need no such ciphertext
