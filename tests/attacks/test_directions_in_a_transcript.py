"""Directions at random spoil a model; where sums are not exact, no check ends the training.

The check that would is switched off here: the replay finds them by the table alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.splits import ColumnMark
from fedmq.errors import Inconsistent
from fedmq.protocol.training import passive_growth
from fedmq.protocol.training.claims import ConsistencyCheck
from tests.accountability.audited import AuditedDaemons


@pytest.mark.parametrize("engine", ["plain", "ou", "lattice", "smm1", "smm2"])
async def test_directions_at_random_are_found_in_the_transcript(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(9)

    def at_random(*given: Any) -> Any:
        return random.random(len(given[-1])) < 0.5

    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        lies.setattr(passive_growth, "went_left", at_random)
        lies.setattr(ConsistencyCheck, "mark", lambda *_: ColumnMark())
        await daemons.trained(3, engine)
    with pytest.raises(Inconsistent, match=r"tree \d, node \d: other rows go left, or another"):
        daemons.verified()
